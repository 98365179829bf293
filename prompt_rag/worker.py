"""The thread that answers: one request at a time, out of a bounded queue, each before its deadline.

The daemon's loop puts requests in and takes replies out; it never touches the index, and the
worker never touches a connection. What is answered, and from what, is the business of an
:class:`Answerer`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from prompt_rag import wire
from prompt_rag.domain import ConfigError, PromptRagError, Reason

LONGEST_QUEUE = 64  # waiting requests; at 20 ms each the last still meets the default deadline
SETTLE_SECONDS = 0.003  # the loop has sent the reply by then, and no prompt is typed so soon
LONGEST_WAIT = 60.0  # seconds; a deadline further away is a mistake

Message = dict[str, object]


class Answerer(Protocol):
    """What turns a request into a reply; used by one thread only."""

    @property
    def generation(self) -> str:
        """The generation of the index that is open, "" where none is."""

    def warm(self) -> None:
        """Load model and index."""

    def follow(self) -> None:
        """See what has changed on disk since the last request; cheap where nothing has."""

    def answer(self, request: Message, deadline: float) -> Message:
        """Return the reply; ``deadline`` is an instant of ``time.monotonic()``."""

    def settle(self) -> None:
        """Do what was put off while somebody waited for the answer."""

    def close(self) -> None:
        """Give back what is open."""


def abstention(reason: Reason) -> Message:
    """Return the reply that injects nothing because of ``reason``."""
    return {"outcome": "abstain", "reason": reason.value, "block": ""}


def deadline_of(message: Message) -> float:
    """Return the instant at which the sender of ``message`` stops waiting."""
    now = time.monotonic()
    given = message.get("deadline")
    if isinstance(given, int | float) and given <= now + LONGEST_WAIT:
        return float(given)
    return now + wire.DEADLINE_SECONDS


class Request:
    """A message in the queue. ``wanted`` becomes false when its sender has gone."""

    __slots__ = ("deadline", "message", "wanted")

    def __init__(self, message: Message, deadline: float) -> None:
        self.message = message
        self.deadline = deadline
        self.wanted = True


class Worker:
    """Answers requests in the order they came, in a thread of its own.

    ``wake`` is called in that thread whenever :meth:`answers` has something new; ``log`` with a
    line that never holds anything of a prompt.
    """

    def __init__(
        self,
        make: Callable[[], Answerer],
        wake: Callable[[], None],
        log: Callable[[str], None],
        longest_queue: int = LONGEST_QUEUE,
    ) -> None:
        self.generation = ""
        self.served = 0
        self.broken = False
        """Whether the answerer could not be made, so that every reply will be an error."""
        self._make = make
        self._wake = wake
        self._log = log
        self._longest_queue = longest_queue
        self._open = 0
        self._questions: SimpleQueue[Request | None] = SimpleQueue()
        self._answers: deque[tuple[Request, Message | None]] = deque()
        self._thread = threading.Thread(target=self._work, name="worker", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests that have been put and whose answer has not been taken."""
        return self._open

    def put(self, request: Request) -> bool:
        """Queue ``request``; return whether there was room. Called by the loop only."""
        if self._open >= self._longest_queue:
            return False
        self._open += 1
        self._questions.put(request)
        return True

    def answers(self) -> Iterator[tuple[Request, Message | None]]:
        """Take what has been answered since the last call; None where it came to nothing."""
        while self._answers:
            self._open -= 1
            request, reply = self._answers.popleft()
            self.served += reply is not None
            yield request, reply

    def end(self, wait_seconds: float) -> None:
        """Finish what is queued and end, waiting for it at most so long."""
        self._questions.put(None)
        self._thread.join(wait_seconds)

    def _work(self) -> None:
        answerer, refusal = self._prepare()
        while (request := self._next(answerer)) is not None:
            reply = None
            if request.wanted and time.monotonic() < request.deadline:
                reply = self._reply(answerer, request) if answerer else refusal
            self._answers.append((request, reply))
            self._wake()
        if answerer:
            with self._logged("close"):
                answerer.close()

    def _next(self, answerer: Answerer | None) -> Request | None:
        """Return the next request; between two there may be time for what was put off."""
        try:
            return self._questions.get(timeout=SETTLE_SECONDS)
        except Empty:
            if answerer:
                with self._logged("settle"):
                    answerer.settle()
            return self._questions.get()

    def _prepare(self) -> tuple[Answerer | None, Message]:
        """Load everything; return the answerer, or what to say for want of one."""
        try:
            answerer = self._make()
        except BaseException as error:  # noqa: BLE001  (the thread must live to say so)
            self._log(f"cannot answer: {told(error)}")
            self.broken = True
            self._wake()
            bad_config = isinstance(error, ConfigError)
            return None, abstention(Reason.BAD_CONFIG if bad_config else Reason.ERROR)
        with self._logged("warm"):
            answerer.warm()
        self.generation = answerer.generation
        return answerer, {}

    def _reply(self, answerer: Answerer, request: Request) -> Message:
        with self._logged("follow"):
            answerer.follow()
        reply = abstention(Reason.ERROR)
        with self._logged("answer"):
            reply = answerer.answer(request.message, request.deadline)
        self.generation = answerer.generation
        return reply

    @contextlib.contextmanager
    def _logged(self, step: str) -> Iterator[None]:
        """Log an exception of ``step`` and go on: the next request may fare better."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001  (nothing may end the thread)
            self._log(f"{step}: {told(error)}")


def told(error: BaseException) -> str:
    """Return ``error`` in one line, without the text of unknown errors, which may quote a prompt.

    A known error is told by its message, any other by its type and the lines it passed through.
    """
    if isinstance(error, PromptRagError):
        return f"{type(error).__name__}: {error.message}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} " + " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames)
    )


def answer_once(make: Callable[[], Answerer], message: Message) -> Message:
    """Return the reply to ``message`` of an answerer made for it alone.

    The system ends this process at the deadline of ``message``, in native code too.
    """
    left = deadline_of(message) - time.monotonic()
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))
    try:
        answerer = make()
    except ConfigError:
        return abstention(Reason.BAD_CONFIG)
    except Exception:  # noqa: BLE001  (there is nobody to tell but the one who waits)
        return abstention(Reason.ERROR)
    try:
        if message.get("kind") == "prompt":
            with contextlib.suppress(PromptRagError):  # the answer will say why
                answerer.warm()
        return answerer.answer(message, deadline_of(message))
    except Exception:  # noqa: BLE001  (as above)
        return abstention(Reason.ERROR)
    finally:
        answerer.close()
