"""The daemon: its loop and worker in this process, and its life as a process of its own."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Never

import pytest
from processes import Home, copy_package, wait_for

from prompt_rag import daemon, launch, server, wire, worker
from prompt_rag.domain import ConfigError, PromptRagError


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_package(tmp_path_factory.mktemp("package"))


@pytest.fixture
def home(package: Path) -> Iterator[Home]:
    home = Home(package, deadline=10)
    yield home
    home.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="prag-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Fake:
    """An answerer that repeats the prompt, once ``gate`` is open."""

    generation = "g7"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Semaphore(0)
        self.events: list[str] = []
        self.fails: dict[str, BaseException] = {}

    def _step(self, step: str) -> None:
        self.events.append(step)
        if step in self.fails:
            raise self.fails[step]

    def warm(self) -> None:
        self._step("warm")

    def follow(self) -> None:
        self._step("follow")

    def answer(self, request: worker.Message, deadline: float) -> worker.Message:
        self.begun.release()
        assert self.gate.wait(10)
        self._step(request.get("prompt") or request["kind"])
        return {"outcome": "inject", "reason": "confident", "block": request.get("prompt", "")}

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self._step("close")


class Running:
    """A daemon in a thread, with a fake answerer."""

    def __init__(self, folder: Path, make: object = None, **options: object) -> None:
        self.home = str(folder)
        self.path = folder / "run" / wire.SOCKET
        self.fake = Fake()
        self.lock = launch.take_lock(wire.runtime_folder(self.home), wire.LOCK)
        self.daemon = server.Daemon(self.home, make or (lambda: self.fake), self.lock, **options)
        self.thread = threading.Thread(target=self.daemon.serve)
        self.thread.start()

    def ask(self, prompt: str, seconds: float = 5.0) -> dict:
        request = {"kind": "prompt", "prompt": prompt}
        return wire.ask(self.home, request, time.monotonic() + seconds, start=False)

    def call(self, kind: str) -> dict:
        return wire.ask(self.home, {"kind": kind}, time.monotonic() + 5, start=False)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(str(self.path))
        return connection

    def send(self, seconds: float = 5.0, **message: object) -> socket.socket:
        connection = self.connect()
        message = {"kind": "prompt", "deadline": time.monotonic() + seconds, **message}
        connection.sendall(wire.frame(message))
        return connection

    def log(self) -> str:
        return (self.path.parent / server.LOG).read_text()

    def left(self, seconds: float = 5.0) -> bool:
        self.thread.join(seconds)
        return not self.thread.is_alive()

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self.fake.gate.set()
        if self.thread.is_alive():
            self.daemon.order("the test is over")
        assert self.left()


Start = Callable[..., Running]


@pytest.fixture
def run(folder: Path) -> Iterator[Start]:
    running: list[Running] = []

    def start(**options: object) -> Running:
        running.append(Running(folder, **options))
        return running[-1]

    yield start
    for each in running:
        each.close()


def received(connection: socket.socket) -> dict:
    """Return the message that comes through ``connection``, {} where it is closed instead."""
    data = b""
    with connection:
        while True:
            try:
                piece = connection.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                return wire.decode(data[4:]) if data else {}
            data += piece


# --- answering --------------------------------------------------------------------------------


def test_it_follows_before_each_answer(run: Start) -> None:
    running = run()
    assert running.ask("one")["block"] == "one"
    assert running.ask("two")["block"] == "two"
    assert running.fake.events == ["warm", "follow", "one", "follow", "two"]


def test_status(run: Start, folder: Path) -> None:
    running = run()
    running.ask("one")
    status = running.call("status")
    assert status["pid"] == os.getpid()
    assert status["version"] == wire.__version__
    assert (status["served"], status["queue"], status["generation"]) == (1, 0, "g7")
    assert status["home"] == str(folder)
    assert 0 <= status["idle_seconds"] <= status["uptime_seconds"] < 5
    assert 5e6 < status["rss_bytes"] < 2e9


def test_status_is_told_while_an_answer_takes_its_time(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    with running.send(prompt="slow"):
        assert running.fake.begun.acquire(timeout=5)
        assert running.call("status")["queue"] == 1
        running.fake.gate.set()


def test_memory_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_path: Path) -> Never:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", missing)
    linux = server.resident_bytes()
    monkeypatch.setattr(sys, "platform", "darwin")  # counts in bytes
    assert linux >= server.resident_bytes() * 1000 > 5e6


def test_what_is_on_disk_is_private(run: Start, folder: Path) -> None:
    running = run()
    running.ask("one")
    assert running.path.stat().st_mode & 0o777 == 0o600
    assert running.path.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in running.path.parent.glob("*.sock")] == [wire.SOCKET]


def test_the_log_holds_nothing_of_a_prompt(run: Start) -> None:
    running = run()
    running.fake.fails = {"a secret": ValueError("quotes a secret")}
    assert running.ask("a secret") | {"v": 1} == {
        "v": wire.PROTOCOL,
        "program": wire.__version__,
        "outcome": "abstain",
        "reason": "error",
        "block": "",
    }
    assert running.ask("fine")["block"] == "fine"
    running.close()
    assert "answer: ValueError" in running.log()
    assert "test_daemon.py:" in running.log()
    assert "secret" not in running.log()


def test_a_failure_to_warm_or_follow_is_not_the_end(run: Start) -> None:
    running = run()
    running.fake.fails = {"follow": PromptRagError("no index here"), "close": MemoryError()}
    assert running.ask("one")["block"] == "one"
    running.close()
    assert "follow: PromptRagError: no index here" in running.log()
    assert "close: MemoryError" in running.log()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("a bad key"), "bad-config"),
        (ImportError("x"), "error"),
        (SystemExit(), "error"),
    ],
)
def test_an_answerer_that_cannot_be_made(run: Start, error: BaseException, reason: str) -> None:
    asked = threading.Event()

    def make() -> Never:
        assert asked.wait(5)
        raise error

    running = run(make=make)
    connection = running.send(prompt="one")
    wait_for(lambda: running.daemon._asking)
    asked.set()
    assert received(connection)["reason"] == reason
    assert running.left()  # the next one may fare better
    assert "it cannot answer" in running.log()


def test_what_cannot_be_framed_is_not_sent(run: Start) -> None:
    running = run()
    running.fake.answer = lambda _request, _deadline: {"block": "x" * wire.MAX_FRAME}
    with pytest.raises(wire.Unanswered):
        running.ask("one")
    assert running.call("status")["served"] == 1
    assert "reply: ValueError" in running.log()


# --- deadlines and the queue --------------------------------------------------------------------


def test_a_request_past_its_deadline_is_dropped(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    slow = running.send(prompt="slow")
    assert running.fake.begun.acquire(timeout=5)
    with pytest.raises(wire.Unanswered) as caught:
        running.ask("late", 0.1)
    running.fake.gate.set()
    assert received(slow)["block"] == "slow"
    assert caught.value.reason == "deadline"
    running.ask("next")
    assert "late" not in running.fake.events


def test_a_request_whose_client_has_gone_is_dropped(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    slow = running.send(prompt="slow")
    assert running.fake.begun.acquire(timeout=5)
    running.send(prompt="gone").close()
    wait_for(lambda: running.call("status")["queue"] == 2 and len(running.daemon._asking) == 1)
    running.fake.gate.set()
    assert received(slow)["block"] == "slow"
    running.ask("next")
    assert "gone" not in running.fake.events


def test_a_client_that_goes_during_its_answer_harms_nobody(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    connection = running.send(prompt="gone")
    assert running.fake.begun.acquire(timeout=5)
    connection.close()
    running.fake.gate.set()
    assert running.ask("next")["block"] == "next"


@pytest.mark.parametrize("deadline", ["soon", None, 1e12])
def test_a_deadline_that_makes_no_sense_is_the_default(run: Start, deadline: object) -> None:
    assert received(run().send(prompt="one", deadline=deadline))["block"] == "one"


def test_a_full_queue_says_busy(run: Start) -> None:
    running = run(longest_queue=3)
    running.fake.gate.clear()
    waiting = [running.send(prompt=f"number {number}") for number in range(3)]
    wait_for(lambda: running.call("status")["queue"] == 3)
    assert running.ask("too many")["reason"] == "busy"
    running.fake.gate.set()
    blocks = [received(connection)["block"] for connection in waiting]
    assert blocks == ["number 0", "number 1", "number 2"]
    assert running.ask("again")["block"] == "again"


def test_a_session_that_starts_is_not_waited_for_but_comes_first(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    slow = running.send(prompt="slow")
    assert running.fake.begun.acquire(timeout=5)
    assert running.call("session-start")["outcome"] == "noted"
    later = running.send(prompt="later")
    running.fake.gate.set()
    received(slow)
    received(later)
    order = [event for event in running.fake.events if event not in ("warm", "follow")]
    assert order == ["slow", "session-start", "later"]


def test_too_many_connections_are_told_to_go(run: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    running = run()
    idle = [running.connect() for _ in range(3)]
    wait_for(lambda: len(running.daemon._clients) == 3)
    assert received(running.connect())["reason"] == "busy"
    for connection in idle:
        connection.close()
    wait_for(lambda: not running.daemon._clients)
    assert running.ask("now")["block"] == "now"


# --- bad company --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0\0\0\4nope",
        b"\0\0\0\2[]",
        b"\xff\xff\xff\xff",
        wire.frame({"kind": "prompt"}) + b"and more",
        wire.frame({"kind": "unheard of"}),
    ],
)
def test_garbage_is_closed(run: Start, data: bytes | None) -> None:
    running = run()
    connection = running.connect()
    connection.sendall(data)
    assert received(connection) == {}
    assert running.ask("fine")["block"] == "fine"
    assert running.fake.events[:1] == ["warm"]


def test_a_client_that_keeps_talking_is_closed(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    connection = running.send(prompt="one")
    assert running.fake.begun.acquire(timeout=5)
    connection.sendall(b"more")
    assert received(connection) == {}


def test_a_stalled_client_blocks_nobody_and_is_given_up(
    run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "READ_SECONDS", 0.3)
    running = run()
    stalled = running.connect()
    stalled.sendall(b"\0\0")
    begun = time.monotonic()
    assert running.ask("fine")["block"] == "fine"
    assert time.monotonic() - begun < 0.2
    assert received(stalled) == {}
    assert 0.2 < time.monotonic() - begun < 2


def test_a_client_that_does_not_read_is_given_up(
    run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.3)
    running = run()
    connection = running.send(prompt="x" * 4_000_000)
    wait_for(lambda: running.call("status")["served"] == 1)
    wait_for(lambda: not running.daemon._clients)
    connection.close()
    assert running.ask("fine")["block"] == "fine"


def test_a_client_that_goes_while_it_is_told_is_let_go(run: Start) -> None:
    running = run()
    connection = running.send(prompt="x" * 4_000_000)
    assert connection.recv(10)
    connection.close()
    wait_for(lambda: not running.daemon._clients, 0.9)  # sooner than it would be given up
    assert running.ask("fine")["block"] == "fine"


def test_a_client_that_reads_slowly_gets_all(run: Start) -> None:
    running = run()
    connection = running.send(prompt="x" * 4_000_000)
    time.sleep(0.2)
    assert len(received(connection)["block"]) == 4_000_000


def test_without_descriptors_it_waits_and_does_not_spin(
    run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = run()
    real = running.daemon._listener

    class Exhausted:
        calls = 0

        def accept(self) -> tuple[socket.socket, object]:
            Exhausted.calls += 1
            if Exhausted.calls < 3:
                raise OSError(24, "too many open files")
            return real.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    running.daemon._listener = Exhausted()
    # The selector knows the real one by its descriptor; the loop asks through the stand-in.
    assert running.ask("patience")["block"] == "patience"
    assert Exhausted.calls < 10


# --- leaving ------------------------------------------------------------------------------------


def test_another_version_makes_it_leave(run: Start) -> None:
    running = run()
    running.fake.gate.clear()
    slow = running.send(prompt="slow")
    unread = running.connect()
    assert running.fake.begun.acquire(timeout=5)
    frame = wire.frame({"kind": "prompt"}).replace(wire.__version__.encode(), b"9.9.9")
    connection = running.connect()
    connection.sendall(frame)
    assert received(connection)["outcome"] == "restart"
    # The next daemon can start before this one has finished what it owes.
    lock = launch.take_lock(str(running.path.parent), wire.LOCK)
    assert lock >= 0
    os.close(lock)
    assert not running.path.exists()
    unread.sendall(wire.frame({"kind": "prompt", "prompt": "unread"}))
    assert received(unread)["outcome"] == "restart"
    running.fake.gate.set()
    assert received(slow)["block"] == "slow"
    assert running.left()
    assert running.fake.events[-1] == "close"


def test_it_does_not_wait_for_ever_for_an_answer(
    run: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LEAVE_SECONDS", 0.2)
    running = run()
    running.fake.gate.clear()
    connection = running.send(prompt="slow")
    assert running.fake.begun.acquire(timeout=5)
    assert running.call("stop")["outcome"] == "stopping"
    assert received(connection) == {}
    assert running.left(2)


def test_it_leaves_when_nobody_asks(run: Start) -> None:
    running = run(idle_seconds=0.3)
    running.ask("one")
    time.sleep(0.2)
    running.ask("two")
    time.sleep(0.2)
    assert running.thread.is_alive()
    assert running.left(2)
    assert "nobody has asked" in running.log()


def test_questions_about_it_do_not_keep_it(run: Start) -> None:
    running = run(idle_seconds=0.5)
    give_up = time.monotonic() + 5
    while running.thread.is_alive():
        assert time.monotonic() < give_up
        with suppress(wire.Unanswered):
            running.call("status")
        time.sleep(0.05)


@pytest.mark.parametrize("what", ["socket", "home", "code", "index"])
def test_it_leaves_when_something_is_gone(
    run: Start, folder: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "generations").mkdir()
    running = run(check_seconds=0.1)
    running.ask("one")
    time.sleep(0.15)
    assert running.thread.is_alive()
    log = running.log
    if what == "socket":
        running.path.unlink()
    elif what == "home":
        monkeypatch.setattr(running.daemon, "home", str(folder / "gone"))
    elif what == "code":
        monkeypatch.setattr(wire, "__file__", "/nowhere/wire.py")
    else:
        (folder / "generations").rmdir()
    assert running.left(2)
    assert f"its {what} is gone" in log()


def test_a_socket_that_took_its_place_is_left_alone(run: Start) -> None:
    running = run(check_seconds=0.1)
    running.path.unlink()
    running.path.write_text("somebody else's")
    assert running.left(2)
    assert running.path.read_text() == "somebody else's"


def test_a_home_that_vanishes_as_a_whole(run: Start, folder: Path) -> None:
    running = run(check_seconds=0.1)
    shutil.rmtree(folder)
    assert running.left(2)


def test_a_place_that_cannot_hold_a_socket(folder: Path) -> None:
    lock = launch.take_lock(str(folder / "run"), wire.LOCK)
    (folder / "run" / wire.SOCKET).mkdir()
    with pytest.raises(OSError):
        server.Daemon(str(folder), Fake, lock)
    os.close(lock)


# --- one answer without a daemon ----------------------------------------------------------------


def test_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    reply = worker.answer_once(lambda: fake, {"kind": "prompt", "prompt": "one"})
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert reply["block"] == "one"
    assert fake.events == ["warm", "one", "close"]


@pytest.mark.parametrize(
    ("step", "error", "reason"),
    [
        ("make", ConfigError("x"), "bad-config"),
        ("make", ImportError("x"), "error"),
        ("warm", PromptRagError("x"), "confident"),
        ("warm", ValueError("x"), "error"),
        ("one", ValueError("x"), "error"),
    ],
)
def test_one_answer_that_fails(step: str, error: BaseException, reason: str) -> None:
    fake = Fake()
    fake.fails = {step: error}

    def make() -> Fake:
        fake._step("make")
        return fake

    reply = worker.answer_once(make, {"kind": "prompt", "prompt": "one"})
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert reply["reason"] == reason
    assert (fake.events[-1] == "close") == (step != "make")


# --- the process --------------------------------------------------------------------------------


def test_a_second_daemon_does_not_start(home: Home, package: Path) -> None:
    home.ask("first")
    line = [*launch.command(str(home.path))]
    line[line.index(launch.PARENT)] = str(package)
    second = subprocess.run(line, capture_output=True, timeout=20, check=False)
    assert (second.returncode, second.stdout, second.stderr) == (1, b"", b"")
    assert (home.run / wire.LOCK).read_text() == f"{home.alone()}\n"


def test_a_daemon_started_by_hand(home: Home, package: Path) -> None:
    line = [*launch.command(str(home.path))]
    line[line.index(launch.PARENT)] = str(package)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for((home.run / wire.SOCKET).exists)
    assert home.ask("one") == "note on one"
    assert home.alone() == process.pid
    assert home.call("stop")["pid"] == process.pid
    assert process.communicate(timeout=5) == (b"", b"")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(home: Home, number: int) -> None:
    home.ask("one")
    os.kill(home.alone(), signal.SIGHUP)  # no terminal is its business
    assert home.ask("two") == "note on two"
    os.kill(home.alone(), number)
    home.until_gone()
    assert not (home.run / wire.SOCKET).exists()
    assert home.asked()[-1] == "close"
    assert "leaving: it was told to end" in (home.run / server.LOG).read_text()


def test_the_idle_time_is_a_setting(home: Home) -> None:
    home.set(deadline=10, idle=0.4)
    home.ask("one")
    home.until_gone(3)


def test_it_leaves_no_time_on_the_clock_while_idle(home: Home) -> None:
    home.ask("one")
    pid = home.alone()
    time.sleep(0.2)
    before = ticks(pid)
    time.sleep(2.5)
    assert ticks(pid) - before == 0


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # user and system time


def test_a_home_with_a_long_name_works_too(package: Path, tmp_path: Path) -> None:
    home = Home(package, deadline=10)
    shutil.rmtree(home.path)
    home.path = tmp_path / ("long" * 30)
    home.path.mkdir()
    home.launcher = home.path / "hook"
    place = Path(wire.runtime_folder(str(home.path)))
    try:
        home.set(deadline=10)
        home.install(package)
        assert home.ask("anybody") == "note on anybody"
        assert (place / wire.SOCKET).exists()
        assert not (home.path / "run").exists()
    finally:
        home.close()
        shutil.rmtree(place, ignore_errors=True)


def test_a_daemon_that_breaks_says_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: server.Daemon) -> Never:
        raise RuntimeError("a secret")

    monkeypatch.setattr(server.Daemon, "serve", broken)
    monkeypatch.setattr(daemon, "_make", lambda _home: Fake())
    handlers = {n: signal.getsignal(n) for n in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(RuntimeError):
            daemon._stay(str(folder), -1)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        faulthandler.disable()
    log = (folder / "run" / server.LOG).read_text()
    assert "broken: RuntimeError test_daemon.py:" in log
    assert "secret" not in log


def test_a_lock_that_is_not_ours_is_not_believed(folder: Path) -> None:
    (folder / "run").mkdir(mode=0o700)
    held = launch.take_lock(str(folder / "run"), wire.LOCK)
    other = os.open(folder / "run" / wire.LOCK, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        daemon._stay(str(folder), other)
    os.close(other)
    fcntl.flock(held, fcntl.LOCK_UN)
    os.close(held)
