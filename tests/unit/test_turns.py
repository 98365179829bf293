"""One call of the hook inside this process, step by step; ``tests/process`` runs it for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prompt_rag import daemon, hook, launch, server, wire, worker

PAYLOAD = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "a question"}


class Left(BaseException):
    """The hook has ended the process."""


class Echo:
    """An answerer that says what it was asked."""

    generation = "g1"

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def warm(self) -> None:
        """Be ready."""

    follow = settle = close = warm

    def answer(self, request: worker.Message, deadline: float) -> worker.Message:
        self.kinds.append(str(request["kind"]))
        if request.get("prompt") == "too many":
            return {"outcome": "abstain", "reason": "busy"}
        if request.get("prompt") == "nothing":
            return {"outcome": "inject", "block": ""}
        left = deadline - time.monotonic()
        return {"outcome": "inject", "block": f"{request.get('prompt')} {0 < left < 60}"}


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("h")
    for name in [name for name in os.environ if name.startswith("PROMPT_RAG_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)  # a socket's path is short from here
    monkeypatch.setattr(wire, "runtime_folder", lambda _home: "run")
    return folder


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the hook do to this process what it does to its own, and undo it."""

    def leave() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Left

    monkeypatch.setattr(hook, "_leave", leave)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    saved = [os.dup(fd) for fd in (0, 1, 2)]
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for fd, copy in enumerate(saved):
        os.dup2(copy, fd)
        os.close(copy)


@pytest.fixture
def run(home: Path, as_process: None) -> Callable[..., bytes]:
    """Run the hook on a payload and return what it printed."""

    def call(payload: object, *arguments: str, close: bool = True) -> bytes:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        os.write(writing, data)
        if close:
            os.close(writing)
        printed, out = os.pipe()
        os.dup2(out, 1)
        os.close(out)
        try:
            with pytest.raises(Left):
                hook.main(["--home", str(home), "--host", "claude", *arguments])
        finally:
            os.dup2(0, 1)  # the writing end is closed, the number stays taken
            with os.fdopen(printed, "rb") as file:
                found = file.read()
            if not close:
                os.close(writing)
        return found

    return call


@pytest.fixture
def answerer(home: Path) -> Iterator[Echo]:
    echo = Echo()
    lock = launch.take_lock("run", wire.LOCK)
    resident = server.Daemon(str(home), lambda: echo, lock)
    thread = threading.Thread(target=resident.serve)
    thread.start()
    yield echo
    resident.order("the test is over")
    thread.join(5)


def reasons(home: Path) -> list[str]:
    return [json.loads(line)["reason"] for line in (home / wire.LOG).read_text().splitlines()]


def test_a_question_is_answered(run: Callable[..., bytes], answerer: Echo, home: Path) -> None:
    found = json.loads(run(PAYLOAD))
    assert found["hookSpecificOutput"]["additionalContext"] == "a question True"
    assert not (home / wire.LOG).exists()


@pytest.mark.parametrize("prompt", ["nothing", "too many"])
def test_an_abstention(run: Callable[..., bytes], answerer: Echo, home: Path, prompt: str) -> None:
    assert run({**PAYLOAD, "prompt": prompt}) == b""
    cursor = {"cursor_version": "3", "hook_event_name": "beforeSubmitPrompt", "prompt": prompt}
    assert run(cursor) == b"{}"
    if prompt == "too many":
        assert reasons(home) == ["busy"] * 2


def test_a_session_that_starts(run: Callable[..., bytes], answerer: Echo) -> None:
    assert run({"hook_event_name": "SessionStart", "source": "clear", "session_id": "s"}) == b""
    run(PAYLOAD)
    assert answerer.kinds == ["session-start", "prompt"]


def test_what_nobody_typed(run: Callable[..., bytes], home: Path) -> None:
    assert run({**PAYLOAD, "prompt": "/deploy"}) == b""
    assert run(b"nonsense") == b""
    assert run({"hook_event_name": "Stop"}) == b""
    assert reasons(home) == ["command", "bad-input"]


def test_an_error_nobody_thought_of(
    run: Callable[..., bytes], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_prompt: str) -> str:
        raise RecursionError

    monkeypatch.setattr(hook.hosts, "untyped", fail)
    assert run(PAYLOAD) == b""
    line = json.loads((home / wire.LOG).read_text())
    assert (line["reason"], line["detail"]) == ("error", "RecursionError")


def test_the_deadline_comes_while_it_reads(run: Callable[..., bytes], home: Path) -> None:
    (home / wire.SETTINGS).write_text(f"{wire.DEADLINE_KEY}=0.1\n")
    begun = time.monotonic()
    assert run(b'{"prompt":', close=False) == b""
    assert 0.05 < time.monotonic() - begun < 0.5
    assert reasons(home) == ["deadline"]


def test_a_signal_comes_while_it_reads(run: Callable[..., bytes], home: Path) -> None:
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert run(b'{"prompt":', close=False) == b""
    timer.join()
    assert "deadline" not in reasons(home)


def test_without_timers_a_thread_watches(
    home: Path, as_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import _signal

    monkeypatch.delattr(_signal, "setitimer")
    monkeypatch.delattr(_signal, "SIGALRM")
    left = threading.Event()
    monkeypatch.setattr(hook, "_leave", left.set)
    turn = hook.Turn()
    turn.home = str(home)
    turn.deadline = turn.started + 0.1
    hook._protect(turn)
    assert left.wait(2)
    assert reasons(home) == ["deadline"]


def test_standard_descriptors_that_are_closed_stay_taken(as_process: None, home: Path) -> None:
    os.close(0)
    os.close(1)
    hook._protect(hook.Turn())
    signal.setitimer(signal.ITIMER_REAL, 0)
    for fd in (0, 1, 2):
        assert os.fstat(fd).st_rdev == Path(os.devnull).stat().st_rdev


def test_a_pipe_that_does_not_block(as_process: None) -> None:
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    os.set_blocking(1, False)
    data = b"x" * 300_000
    thread = threading.Thread(target=hook._write, args=(data,))
    thread.start()
    found = b""
    while len(found) < len(data):
        found += os.read(reading, 65536)
    thread.join()
    os.close(reading)
    assert found == data


def test_without_a_home_nothing_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    turn = hook.Turn()
    hook._note(turn, "error")
    turn.home = str(tmp_path / "missing")
    hook._note(turn, "error")
    assert list(tmp_path.iterdir()) == []


def test_it_ends_without_taking_the_interpreter_down() -> None:
    code = (
        "import atexit; from prompt_rag import hook; atexit.register(print, 'late'); hook._leave()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b""


def test_options() -> None:
    assert hook._option(["--host", "codex", "--home=/h"], "--host") == "codex"
    assert hook._option(["--host", "codex", "--home=/h"], "--home") == "/h"
    assert hook._option(["--host"], "--host") == ""


# --- a process for one prompt, and the daemon's own ---------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Echo:
    echo = Echo()
    monkeypatch.setattr(daemon, "_make", lambda _home, **_options: echo)
    monkeypatch.setattr(os, "umask", lambda _mask: 0o022)

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    return echo


def test_without_a_daemon(
    run: Callable[..., bytes], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / wire.SETTINGS).write_text(f"{wire.MODE_KEY}=off\n")
    asked: list[worker.Message] = []

    def once(_home: str, data: bytes, _deadline: float) -> bytes:
        asked.append(wire.decode(data[4:]))
        return wire.frame({"outcome": "inject", "block": "by itself"})

    monkeypatch.setattr(launch, "once", once)
    assert b"by itself" in run(PAYLOAD)
    for source in ("startup", "compact"):
        run({"hook_event_name": "SessionStart", "source": source, "session_id": "s"})
    assert [each["kind"] for each in asked] == ["prompt", "session-start"]


def test_the_process_for_one_prompt(answers: Echo, as_process: None) -> None:
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    os.write(writing, wire.frame({"kind": "prompt", "prompt": "one"}))
    os.close(writing)
    printed, out = os.pipe()
    os.dup2(out, 1)
    os.close(out)
    with pytest.raises(Left):
        daemon.main(["--home", "/nowhere", "--once"])
    signal.setitimer(signal.ITIMER_REAL, 0)
    reply = os.read(printed, 65536)
    os.close(printed)
    assert wire.decode(reply[4:])["outcome"] == "inject"
    assert os.fstat(1).st_rdev == Path(os.devnull).stat().st_rdev


def test_the_daemon_serves_until_it_is_told(answers: Echo, as_process: None, home: Path) -> None:
    def ask_and_end() -> None:
        give_up = time.monotonic() + 5
        while not Path("run", wire.SOCKET).exists() and time.monotonic() < give_up:
            time.sleep(0.01)
        request = {"kind": "prompt", "prompt": "one"}
        found.append(wire.ask(str(home), request, give_up, start=False))
        os.kill(os.getpid(), signal.SIGTERM)

    found: list[dict] = []
    thread = threading.Thread(target=ask_and_end)
    thread.start()
    with pytest.raises(Left) as left:
        daemon.main(["--home", str(home)])
    thread.join()
    assert left.value.args == (0,)
    assert found[0]["block"] == "one True"
    assert Path("run", wire.LOCK).read_text() == f"{os.getpid()}\n"


def test_a_second_daemon_leaves_at_once(answers: Echo, home: Path) -> None:
    lock = launch.take_lock("run", wire.LOCK)
    with pytest.raises(Left) as left:
        daemon.main(["--home", str(home)])
    os.close(lock)
    assert left.value.args == (1,)


def test_what_answers_for_a_home_is_made_from_its_settings(home: Path) -> None:
    made = daemon._make(str(home))
    assert made.generation == ""
    made.close()
