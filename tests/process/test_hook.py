"""The hook as hosts run it: real processes, a real daemon, an answerer without a model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Home, copy_package, prompt_payload, wait_for

from prompt_rag import launch, wire

ALLOWED_LATENESS = 0.05  # seconds beyond the deadline, as promised
BUSY_MACHINE = 0.25  # what starting a process may take while others run here


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_package(tmp_path_factory.mktemp("package"))


@pytest.fixture
def home(package: Path) -> Iterator[Home]:
    home = Home(package, deadline=10)
    yield home
    home.close()


# --- answering --------------------------------------------------------------------------------


def test_a_warm_answer_is_exactly_what_the_host_reads(home: Home) -> None:
    home.ask("first")
    assert home.hook(prompt_payload("how do we rotate the wiki token")) == (
        b'{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit",'
        b'"additionalContext":"note on how do we rotate the wiki token"}}'
    )


def test_the_first_prompt_gets_its_notes_and_leaves_one_process(home: Home) -> None:
    assert home.ask("the very first") == "note on the very first"
    daemon = home.alone()
    assert home.ask("the second") == "note on the second"
    assert home.alone() == daemon
    assert home.asked() == [f"warm {daemon}", "prompt the very first", "prompt the second"]


def test_the_daemon_has_no_parent_of_ours_and_none_of_our_descriptors(home: Home) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    home.ask("hello there", pass_fds=[writing])
    os.close(writing)
    daemon = home.alone()
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b""  # nobody holds the other end
    os.close(reading)
    status = Path(f"/proc/{daemon}/status").read_text()
    assert f"PPid:\t{os.getpid()}\n" not in status
    assert os.getsid(daemon) != os.getsid(0)
    assert Path(f"/proc/{daemon}/cwd").readlink() == Path("/")
    for fd in ("0", "1", "2"):
        assert Path(f"/proc/{daemon}/fd/{fd}").readlink() == Path(os.devnull)


def test_fifty_hooks_at_once_start_one_daemon_and_get_fifty_answers(home: Home) -> None:
    home.set(deadline=30)
    processes = [home.start(None) for _ in range(50)]
    for number, process in enumerate(processes):
        process.stdin.write(json.dumps(prompt_payload(f"number {number}")).encode())
        process.stdin.close()
        process.stdin = None
    for number, process in enumerate(processes):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, b"")
        assert f'note on number {number}"' in out.decode()
    home.alone()
    assert len([line for line in home.asked() if line.startswith("warm")]) == 1


def test_an_abstention_prints_nothing(home: Home) -> None:
    assert home.hook(prompt_payload("silence please")) == b""


def test_a_host_that_wants_an_object_gets_one(home: Home) -> None:
    payload = {"hook_event_name": "beforeSubmitPrompt", "cursor_version": "3", "prompt": "silence"}
    assert home.hook(payload, "--host", "cursor") == b"{}"


def test_a_host_that_keeps_stdin_open_is_answered(home: Home) -> None:
    home.ask("wake up")
    process = home.start(json.dumps(prompt_payload("still open")).encode())
    assert b"note on still open" in process.stdout.read()
    assert process.wait(5) == 0
    process.communicate()


def test_a_payload_in_pieces_is_read_to_its_end(home: Home) -> None:
    home.ask("wake up")
    data = json.dumps(prompt_payload("in } pieces")).encode()
    process = home.start(None)
    for start in range(0, len(data), 17):
        process.stdin.write(data[start : start + 17])
        process.stdin.flush()
        time.sleep(0.002)
    assert b"note on in } pieces" in process.communicate(timeout=10)[0]


def test_the_locale_does_not_matter(home: Home) -> None:
    prompt = '表 🏠 "quoted" \ud83d'
    environment = {"LC_ALL": "C", "PYTHONIOENCODING": "cp932", "PATH": os.environ["PATH"]}
    assert home.ask(prompt, env=environment) == 'note on 表 🏠 "quoted" \ufffd'


def test_an_answer_larger_than_a_pipe_arrives_whole(home: Home) -> None:
    prompt = "é" * 300_000
    assert home.ask(prompt) == f"note on {prompt}"


def test_what_a_library_prints_goes_nowhere(home: Home) -> None:
    assert home.ask("print a lot") == "note on print a lot"
    home.set(mode="off", deadline=10)
    assert home.ask("print a lot") == "note on print a lot"


# --- what nobody typed, and what cannot be read -------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("<task-notification>\n<task-id>secret</task-id></task-notification>", "machine-prompt"),
        ("<system-reminder>secret</system-reminder>", "machine-prompt"),
        ("/deploy secret", "command"),
        ("! secret", "command"),
        ("  ", "empty"),
    ],
)
def test_what_nobody_typed_reaches_no_daemon(home: Home, prompt: str, reason: str) -> None:
    assert home.hook(prompt_payload(prompt, session="secret id")) == b""
    assert not home.processes()
    assert not home.run.exists()
    (line,) = home.log()
    assert (line["reason"], line["outcome"]) == (reason, "abstain")
    assert (line["host"], line["chars"]) == ("claude", len(prompt))
    assert line["prompt"] == wire.digest(prompt)
    assert line["session"] == wire.digest("secret id")
    assert 0 < line["timings_ms"]["total"] < 1000
    assert "secret" not in (home.path / wire.LOG).read_text()
    assert (home.path / wire.LOG).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"\xef\xbb\xbf",
        b"[1, 2]",
        b'{"hook_event_name":"UserPromptSubmit","prompt":"cut o',
        b'{"hook_event_name":"UserPromptSubmit","prompt":"\xff\xfe',
        b"[" * 200_000,
        b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
        b'{"a":' + b"9" * 10_000 + b"}",
        b'{"prompt":"' + b"x" * (6 * 1024 * 1024),
    ],
    ids=range(10),
)
def test_what_cannot_be_read_is_met_with_silence(home: Home, data: bytes | None) -> None:
    process = home.start(None)
    try:
        out, err = process.communicate(data, timeout=20)
    except BrokenPipeError:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert home.reasons() == ["bad-input"]
    assert not home.processes()


@pytest.mark.parametrize(
    "payload",
    [
        {"hook_event_name": "PostToolUse", "tool_name": "Edit", "tool_input": {"file_path": "/a"}},
        {"hook_event_name": "Stop"},
        {},
        {"hook_event_name": 7, "prompt": {}},
    ],
)
def test_other_events_are_met_with_silence(home: Home, payload: dict[str, object]) -> None:
    assert home.hook(payload) == b""
    assert not home.processes()


def test_bytes_that_are_not_utf_8_are_read_with_replacement(home: Home) -> None:
    data = b'\xef\xbb\xbf{"hook_event_name":"UserPromptSubmit","prompt":"caf\xe9 opening"}\r\n'
    assert "note on caf\ufffd opening" in json.loads(home.hook(data))["hookSpecificOutput"].values()


# --- the deadline -----------------------------------------------------------------------------


def ends_at(home: Home, process: subprocess.Popen, deadline: float, begun: float) -> None:
    """Check that ``process`` ends by the deadline with nothing printed."""
    try:
        assert process.wait(timeout=20) == 0
        took = time.monotonic() - begun
        assert deadline * 0.8 < took < deadline + ALLOWED_LATENESS + BUSY_MACHINE
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
        # The promise itself, without what starting the process took.
        (line,) = [each for each in home.log() if each["reason"] == "deadline"]
        assert line["timings_ms"]["total"] < (deadline + ALLOWED_LATENESS) * 1000
        assert line["outcome"] == "abstain"
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


def timed(home: Home, deadline: float, data: bytes, **more: object) -> None:
    home.set(deadline=deadline, **more)
    begun = time.monotonic()
    ends_at(home, home.start(data), deadline, begun)


def test_a_daemon_that_hangs_costs_the_deadline(home: Home) -> None:
    home.ask("wake up")
    daemon = home.alone()
    os.kill(daemon, signal.SIGSTOP)
    timed(home, 0.4, json.dumps(prompt_payload("are you there")).encode())
    os.kill(daemon, signal.SIGCONT)
    home.set(deadline=10)
    assert home.ask("and now") == "note on and now"
    # Whoever has gone is not answered: it would count as shown.
    assert "prompt are you there" not in home.asked()


def test_a_slow_answer_costs_the_deadline(home: Home) -> None:
    home.ask("wake up")
    timed(home, 0.3, json.dumps(prompt_payload("sleep long")).encode())


def test_native_code_that_holds_the_daemon_costs_the_deadline(home: Home) -> None:
    home.ask("wake up")
    timed(home, 0.3, json.dumps(prompt_payload("native hang")).encode())


def test_a_host_that_never_finishes_its_payload_costs_the_deadline(home: Home) -> None:
    timed(home, 0.3, b'{"hook_event_name":"UserPromptSubmit","prompt":"half')


def test_in_process_native_code_is_killed_at_the_deadline(home: Home) -> None:
    timed(home, 0.6, json.dumps(prompt_payload("native hang")).encode(), mode="off")
    assert "prompt native hang" in home.asked()  # it did get there
    home.until_gone(0.5)


def test_without_timers_a_thread_keeps_the_deadline(home: Home, package: Path) -> None:
    home.set(deadline=0.3)
    code = (
        "import sys, _signal; del _signal.setitimer, _signal.SIGALRM; "
        f"sys.path.append({str(package)!r}); from prompt_rag.hook import main; main(sys.argv[1:])"
    )
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-ISc", code, "--home", str(home.path), "--host=claude"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ends_at(home, process, 0.3, begun)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_silence(home: Home, number: int) -> None:
    process = home.start(b'{"prompt":')
    wait_for(lambda: ignores_nothing_more(process.pid))
    process.send_signal(number)
    out, err = process.communicate(timeout=5)
    assert (process.returncode, out, err) == (0, b"", b"")


def ignores_nothing_more(pid: int) -> bool:
    """Whether the process has set its handlers: SIGALRM is the last it catches."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGALRM - 1) & 1)
    return False


# --- daemons that come and go -------------------------------------------------------------------


def test_after_a_kill_the_next_prompt_is_served(home: Home) -> None:
    home.ask("before")
    for number in range(3):
        os.kill(home.alone(), signal.SIGKILL)
        home.until_gone()
        assert (home.run / wire.SOCKET).exists()  # a stale one
        assert home.ask(f"after {number}") == f"note on after {number}"


def test_a_daemon_that_dies_over_a_prompt_is_not_started_again_for_it(home: Home) -> None:
    assert home.ask("crash") == ""
    assert home.asked().count("prompt crash") == 1
    assert home.reasons() == ["daemon-unavailable"]
    assert home.ask("after") == "note on after"


def test_an_upgraded_client_is_served_and_the_old_daemon_leaves(home: Home, tmp_path: Path) -> None:
    home.ask("old")
    old = home.alone()
    home.install(copy_package(tmp_path / "new", version="99.0"))
    assert home.ask("new") == "note on new"
    wait_for(lambda: old not in home.processes())
    assert "of version '99.0'" in (home.run / "daemon.log").read_text()
    assert len(home.processes()) == 1


def test_many_upgraded_clients_at_once_are_served(home: Home, tmp_path: Path) -> None:
    home.ask("old")
    home.install(copy_package(tmp_path / "new", version="99.0"))
    payload = json.dumps(prompt_payload("new")).encode()
    processes = [home.start(payload) for _ in range(10)]
    for process in processes:
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, b"")
        assert b"note on new" in out
    wait_for(lambda: len(home.processes()) == 1)


def test_a_daemon_that_cannot_start_is_tried_twice_and_no_more(home: Home, tmp_path: Path) -> None:
    broken = copy_package(tmp_path / "broken")
    (broken / "prompt_rag" / "daemon.py").write_text("raise RuntimeError\n")
    home.install(broken)
    begun = time.monotonic()
    assert home.ask("anybody") == ""
    assert time.monotonic() - begun < 5  # of a deadline of 10
    assert home.reasons() == ["daemon-unavailable"]


def test_an_answerer_that_cannot_be_made_means_silence(home: Home, tmp_path: Path) -> None:
    broken = copy_package(tmp_path / "broken")
    (broken / "prompt_rag" / "answer.py").write_text("raise RuntimeError('secret')\n")
    home.install(broken)
    assert home.ask("anybody") == ""
    home.until_gone()
    log = (home.run / "daemon.log").read_text()
    assert "cannot answer: RuntimeError answer.py:1" in log
    assert "secret" not in log
    home.set(mode="off", deadline=10)
    assert home.ask("anybody") == ""


def test_a_new_session_wakes_the_daemon(home: Home) -> None:
    payload = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "s"}
    assert home.hook(payload) == b""
    wait_for(home.asked)
    assert home.asked()[0] == f"warm {home.alone()}"


def test_what_a_session_forgot_is_known_before_its_next_prompt(home: Home) -> None:
    home.ask("wake up")
    payload = {"hook_event_name": "SessionStart", "source": "compact", "session_id": "s"}
    assert home.hook(payload) == b""
    home.ask("after")
    assert home.asked()[2:] == ["session-start compact s", "prompt after"]


# --- in process -------------------------------------------------------------------------------


def test_without_a_daemon_the_hook_answers_by_itself(home: Home) -> None:
    home.set(mode="off", deadline=10)
    assert home.ask("alone") == "note on alone"
    assert home.asked()[1:] == ["prompt alone", "close"]
    assert not home.processes()
    assert not home.run.exists()


def test_without_a_daemon_a_session_still_forgets(home: Home) -> None:
    home.set(mode="off", deadline=10)
    payload = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "s"}
    assert home.hook(payload) == b""
    assert home.asked() == []
    assert home.hook({**payload, "source": "clear"}) == b""
    assert home.asked() == ["session-start clear s", "close"]  # and no model for that


def test_a_process_for_one_prompt_that_dies_means_silence(home: Home) -> None:
    home.set(mode="off", deadline=10)
    assert home.ask("crash") == ""
    assert home.reasons() == ["daemon-unavailable"]


# --- a hostile world --------------------------------------------------------------------------


def test_no_home_stays_no_home(home: Home, package: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    home.launcher.write_bytes(launch.launcher(sys.executable, str(package), str(missing)))
    assert home.ask("anybody") == ""
    assert home.hook(prompt_payload("/command")) == b""
    assert not missing.exists()


def test_a_user_without_any_home(package: Path, home: Home) -> None:
    code = home.launcher.read_text().replace(f"['--home', '{home.path}'] + ", "")
    assert "--home" not in code
    home.launcher.write_text(code)
    assert home.ask("anybody", env={"HOME": "/nonexistent"}) == ""
    # A home that the environment names is used where the launcher names none.
    assert home.ask("anybody", env={"PROMPT_RAG_HOME": str(home.path)}) == "note on anybody"


def test_a_home_where_nothing_can_be_made(home: Home) -> None:
    home.run.write_text("a file where the folder should be")
    assert home.ask("anybody") == ""
    assert home.reasons() == ["daemon-unavailable"]


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_home(home: Home) -> None:
    home.path.chmod(0o500)
    try:
        assert home.ask("anybody") == ""
        assert home.hook(prompt_payload("/command")) == b""
    finally:
        home.path.chmod(0o700)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk(home: Home) -> None:
    (home.path / wire.LOG).symlink_to("/dev/full")
    assert home.hook(prompt_payload("/command")) == b""
    assert home.hook(b"") == b""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["folder", "socket"])
def test_a_socket_of_somebody_else_is_not_talked_to(home: Home, what: str) -> None:
    home.ask("wake up")
    path = home.run if what == "folder" else home.run / wire.SOCKET
    os.chown(path, 12345, 12345)
    assert home.ask("a word in private") == ""
    assert "prompt a word in private" not in home.asked()
    assert home.reasons() == ["daemon-unavailable"]
    os.chown(path, 0, 0)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_descriptors(home: Home, closed: tuple[int, ...]) -> None:
    home.ask("wake up")
    code = f"import os, sys; [os.close(fd) for fd in {closed}]; os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.run(
        [sys.executable, "-c", code, str(home.launcher), "--host", "claude"],
        input=json.dumps(prompt_payload("with less")).encode(),
        capture_output=True,
        timeout=20,
        check=True,
    )
    assert process.stderr == b""
    assert (b"note on with less" in process.stdout) == (closed == (2,))


def test_a_host_that_has_stopped_reading(home: Home) -> None:
    reading, writing = os.pipe()
    process = home.start(None, stdout=writing)
    os.close(reading)
    os.close(writing)
    _, err = process.communicate(json.dumps(prompt_payload("anybody")).encode(), timeout=20)
    assert (process.returncode, err) == (0, b"")


def test_a_pipe_that_does_not_block_gets_all(home: Home) -> None:
    home.ask("wake up")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = home.start(None, stdout=writing)
    os.close(writing)
    process.stdin.write(json.dumps(prompt_payload("x" * 200_000)).encode())
    process.stdin.close()
    time.sleep(0.1)
    with os.fdopen(reading, "rb") as file:
        assert len(json.loads(file.read())["hookSpecificOutput"]["additionalContext"]) > 200_000
    assert process.wait(5) == 0
    process.stdin = None
    process.communicate()


def test_a_host_that_does_not_read_an_answer_does_not_keep_the_hook(home: Home) -> None:
    home.ask("wake up")
    reading, writing = os.pipe()
    process = home.start(None, stdout=writing)
    os.close(writing)
    process.communicate(json.dumps(prompt_payload("x" * 200_000)).encode(), timeout=20)
    assert process.returncode == 0
    os.close(reading)


# --- the launcher -----------------------------------------------------------------------------


def test_the_launcher_is_started_by_the_kernel(home: Home) -> None:
    assert home.launcher.read_bytes().startswith(f"#!{sys.executable} -IS\n".encode())


@pytest.mark.parametrize("folder", ["with space", 'it\'s $HOME \\x `id` "é"', "long" * 40])
def test_interpreters_the_kernel_cannot_name(package: Path, tmp_path: Path, folder: Path) -> None:
    place = tmp_path / folder
    place.mkdir()
    python = place / "python"
    python.symlink_to(sys.executable)
    home = Home(package, deadline=10)
    try:
        home.launcher.write_bytes(launch.launcher(str(python), str(package), str(home.path)))
        assert home.launcher.read_bytes().startswith(b"#!/bin/sh\n")
        assert home.ask("anybody") == "note on anybody"
        assert home.ask("anybody", env={"ENV": "/nonexistent"}) == "note on anybody"
    finally:
        home.close()


def test_a_package_in_a_strange_folder(tmp_path: Path) -> None:
    package = copy_package(tmp_path / 'it\'s\n"é" \\x')
    home = Home(package, deadline=10)
    try:
        assert home.ask("anybody") == "note on anybody"
    finally:
        home.close()


def test_a_launcher_whose_package_is_gone_is_silent(home: Home, tmp_path: Path) -> None:
    home.install(tmp_path)
    assert home.hook(prompt_payload("anybody")) == b""


def test_the_command_line_runs_the_same_hook(home: Home, package: Path) -> None:
    code = "from prompt_rag.hook import main; import sys; main(sys.argv[1:])"
    process = subprocess.run(
        [sys.executable, "-c", code, f"--home={home.path}", "--host", "claude"],
        input=json.dumps(prompt_payload("from the command line")).encode(),
        capture_output=True,
        cwd=package,
        timeout=20,
        check=True,
    )
    assert json.loads(process.stdout)["hookSpecificOutput"]
    assert process.stderr == b""
