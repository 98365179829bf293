"""One request to one reply: what daemon and in-process hook do with a prompt.

Here the decision meets its surroundings: the switches a person types, the pause, what the session
has been shown already, and the decision log. A known failure is a reply with its reason, never an
exception.
"""

from __future__ import annotations

import contextlib
import gc
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from prompt_rag import calibration, decisions, pauses, redaction, search, shared_model, wire
from prompt_rag import config as configuration
from prompt_rag.config import Config
from prompt_rag.decisions import DecisionLog
from prompt_rag.domain import (
    Candidate,
    ConfigError,
    Decision,
    Embedder,
    IndexDamaged,
    IndexIncompatible,
    IndexMissing,
    ModelUnavailable,
    PromptRagError,
    Reason,
)
from prompt_rag.search import Reader
from prompt_rag.sessions import Sessions, text_key

REASON_OF_ERROR: Mapping[type[PromptRagError], Reason] = {
    IndexMissing: Reason.INDEX_MISSING,
    IndexIncompatible: Reason.INDEX_INCOMPATIBLE,
    IndexDamaged: Reason.INDEX_DAMAGED,
    ModelUnavailable: Reason.MODEL_MISSING,
    ConfigError: Reason.BAD_CONFIG,
}
# A context that was compacted or cleared no longer holds what was injected into it.
FORGETTING = ("compact", "clear")


# Lines of the log that may wait while one prompt follows the other without a pause.
MOST_UNSETTLED = 32


class Answerer:
    """Answers for one home; nothing is loaded until it is needed. Used by one thread at a time.

    With ``settle_later`` the decision log is written by :meth:`settle`, which the daemon calls when
    nobody waits; without it before :meth:`answer` returns.
    """

    def __init__(self, config: Config, *, settle_later: bool = False) -> None:
        self._config = config
        self._settle_later = settle_later
        self._unsettled: list[Callable[[], None]] = []
        self._stamp = _stamp(self._config)
        self._embedder: Embedder | None = None
        self._reader: Reader | None = None
        self._sessions = Sessions(self._config.home / "sessions")

    @property
    def generation(self) -> str:
        """The generation of the index that is open, "" where none is."""
        return self._reader.generation if self._reader is not None else ""

    def warm(self) -> None:
        """Load model and index. Raises :class:`PromptRagError`."""
        self._open()
        # The first pass of a model and the first masking are slower than all others; nobody waits
        # for these.
        if self._reader is not None:
            self._reader.embedder.embed_query("warm")
            redaction.mask("")
            _give_back()
            # What is loaded stays for good: the collector need not walk it again and again. It is
            # not run first, because the first prompt waits for this.
            gc.freeze()

    def follow(self) -> None:
        """See settings, commits and generations that are newer than what is open.

        Raises :class:`PromptRagError`; what was open stays open.
        """
        stamp = _stamp(self._config)
        if stamp != self._stamp:
            self._reload(stamp)
        if self._reader is not None:
            self._reader.follow()

    def answer(self, request: Mapping[str, object], deadline: float) -> dict[str, object]:
        """Return ``{"outcome", "reason", "block"}`` for a request of the hook.

        To a request of :mod:`prompt_rag.shared_model` the answer is a vector.

        ``deadline`` is an instant of ``time.monotonic()``. The hook ends at that instant and says
        so in the log itself: past it nothing is remembered as shown, and nothing is logged twice.
        """
        if request.get("kind") == shared_model.KIND:
            return self._embedded(_text(request, "text"))
        started = time.perf_counter()
        session = _text(request, "session")
        if request.get("kind") == "session-start":
            if _text(request, "source") in FORGETTING:
                self._sessions.forget(session)
            return _reply(Decision("abstain", Reason.EMPTY))
        prompt = _text(request, "prompt")
        repeats: set[str] = set()
        try:
            decision = self._before_search(prompt, session)
            if decision is None:
                decision = self._decide(prompt, session, repeats)
        except Exception:
            self._log(Decision("abstain", Reason.ERROR), request, 0, started)
            raise  # the worker tells where it came from, in a log of its own
        if time.monotonic() >= deadline:
            return _reply(replace(decision, outcome="abstain", reason=Reason.DEADLINE, block=""))
        if decision.outcome == "inject":
            shown = {text_key(excerpt.candidate.passage.text) for excerpt in decision.excerpts}
            self._sessions.add(session, shown)
        self._log(decision, request, len(repeats), started)
        return _reply(decision)

    def settle(self) -> None:
        """Do what was put off while somebody waited."""
        waiting, self._unsettled = self._unsettled, []
        for task in waiting:
            task()

    def close(self) -> None:
        """Write what was put off and close the index."""
        self.settle()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # --- steps ---------------------------------------------------------------------------------

    def _embedded(self, text: str) -> dict[str, object]:
        """Return the vector of ``text``, for a process that has no model of its own."""
        try:
            work = self._model()
        except PromptRagError as error:
            reason = REASON_OF_ERROR.get(type(error), Reason.ERROR)
            return _reply(Decision("abstain", reason))
        return {
            "outcome": shared_model.EMBEDDED,
            "model": work.identity.fingerprint,
            "vector": shared_model.packed(work.embed_query(text)),
        }

    def _before_search(self, prompt: str, session: str) -> Decision | None:
        """Return an abstention that needs no search, None where there is none."""
        settings = self._config.settings
        if pauses.paused_until(self._config.home) is not None:
            return Decision("abstain", Reason.PAUSED)
        if _has_word(prompt, settings.skip_word):
            return Decision("abstain", Reason.SWITCHED_OFF)
        if not self._sessions.first_call(session, wire.digest(prompt)):
            return Decision("abstain", Reason.DUPLICATE_CALL)
        return None

    def _decide(self, prompt: str, session: str, repeats: set[str]) -> Decision:
        try:
            reader = self._open()
            shown = self._sessions.shown(session)

            def unseen(candidate: Candidate) -> bool:
                key = text_key(candidate.passage.text)
                if key in shown:
                    repeats.add(key)
                return key not in shown

            return decide(reader, prompt, unseen)
        except PromptRagError as error:
            if isinstance(error, IndexDamaged):
                self.close()  # a rebuild may have mended it by the next prompt
            return Decision("abstain", REASON_OF_ERROR.get(type(error), Reason.ERROR))

    def _open(self) -> Reader:
        if self._reader is None:
            self._reader = Reader.open(self._config, self._model, any_thread=True)
        return self._reader

    def _model(self) -> Embedder:
        """Return the model, loaded once: an index that does not open is tried at every prompt."""
        if self._embedder is None:
            self._embedder = search.load_embedder(self._config)
        return self._embedder

    def _reload(self, stamp: tuple[object, ...]) -> None:
        """Take over changed settings; what they make useless is opened anew at the next prompt."""
        changed = configuration.load(self._config.home)
        before, after = self._config.settings, changed.settings
        if after.model_name != before.model_name:
            self._embedder = None
        if (after.model_name, after.tiers) != (before.model_name, before.tiers):
            self.close()
        if self._reader is not None:
            self._reader.take_settings(changed)
        self._config, self._stamp = changed, stamp

    def _log(
        self, decision: Decision, request: Mapping[str, object], repeats: int, started: float
    ) -> None:
        log = DecisionLog(
            self._config.home / wire.LOG, keep_text=self._config.settings.log_prompt_text
        )
        keys = {
            excerpt.candidate.passage.id: text_key(excerpt.candidate.passage.text)
            for excerpt in decision.excerpts
        }
        timed = replace(decision, timings_ms=_timings(decision, request, started))
        now = datetime.now(UTC)

        def append() -> None:
            line = decisions.record(timed, request, text_keys=keys, repeats=repeats, now=now)
            with contextlib.suppress(OSError):  # a full disk must not cost the person the notes
                log.append(line)

        self._unsettled.append(append)
        if not self._settle_later or len(self._unsettled) >= MOST_UNSETTLED:
            self.settle()


def decide(
    reader: Reader, prompt: str, unseen: Callable[[Candidate], bool] | None = None
) -> Decision:
    """Return what the hook decides on ``prompt``, with the words that a person may put into it.

    ``unseen`` as in :meth:`Reader.decide`.
    """
    settings = reader.config.settings
    if _has_word(prompt, settings.skip_word):
        return Decision("abstain", Reason.SWITCHED_OFF)
    wide = _has_word(prompt, settings.wide_word)
    asked = _alone(settings.wide_word).sub(" ", prompt) if wide else prompt
    return reader.decide(asked, wide=wide, unseen=unseen)


def _give_back() -> None:
    """Return to the system what loading a model has freed: with glibc 58 of 258 MB, in 10 ms."""
    import ctypes  # loaded already, by the model's libraries

    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _reply(decision: Decision) -> dict[str, object]:
    return {
        "outcome": decision.outcome,
        "reason": decision.reason.value,
        "block": decision.block if decision.outcome == "inject" else "",
    }


def _text(request: Mapping[str, object], name: str) -> str:
    value = request.get(name)
    return value if isinstance(value, str) else ""


def _timings(decision: Decision, request: Mapping[str, object], started: float) -> dict[str, float]:
    """Return how long the parts took, in milliseconds.

    ``client`` is what the hook spent until it sent the request; ``total`` has that in it.
    """
    sent = request.get("sent_ms")
    client = float(sent) if isinstance(sent, int | float) and sent >= 0 else 0.0
    total = client + (time.perf_counter() - started) * 1000
    return {**decision.timings_ms, "client": client, "total": round(total, 3)}


def _alone(word: str) -> re.Pattern[str]:
    """Return the pattern of ``word`` by itself, before or without a mark of punctuation."""
    return re.compile(rf"(?<!\S){re.escape(word)}(?=[.,;:!?)]*(?:\s|$))")


def _has_word(prompt: str, word: str) -> bool:
    """Whether ``word`` stands by itself in ``prompt``; most prompts do not contain it at all."""
    return bool(word) and word in prompt and _alone(word).search(prompt) is not None


def _stamp(config: Config) -> tuple[object, ...]:
    """Return what changes when a settings file is written, made or removed."""
    stamps: list[object] = []
    for file in (config.file, config.home / calibration.OWN):
        try:
            found = file.stat()
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            stamps.append(None)
    return tuple(stamps)
