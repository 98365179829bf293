"""What a prompt makes the interpreter load: every module costs every person at every prompt."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Home, copy_package, prompt_payload

from prompt_rag import launch, server, wire

# What a bare interpreter has loaded, on any version that is supported.
BARE = {
    "__main__",
    "_abc",
    "_codecs",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "_imp",
    "_io",
    "_signal",
    "_thread",
    "_warnings",
    "_weakref",
    "abc",
    "builtins",
    "codecs",
    "encodings",
    "encodings.aliases",
    "encodings.utf_8",
    "io",
    "linecache",
    "marshal",
    "posix",
    "sys",
    "time",
    "zipimport",
}
OURS = {"prompt_rag", "prompt_rag.hook", "prompt_rag.hosts", "prompt_rag.wire"}
COMPILED = {"__future__", "_json", "_blake2"}
WITH_DAEMON = {"_socket"}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(copy_package(tmp_path / "package"), deadline=10)
    yield home
    home.close()


def loaded(home: Home, payload: dict, package: str) -> set[str]:
    """Return the modules that the hook has loaded when it leaves."""
    code = (
        "import sys\n"
        f"sys.path.append({package!r})\n"
        "from prompt_rag import hook\n"
        "leave = hook._leave\n"
        "def told():\n"
        "    posix = sys.modules['posix']\n"
        "    posix.write(1, ('\\n' + ' '.join(sorted(sys.modules))).encode())\n"
        "    leave()\n"
        "hook._leave = told\n"
        "hook.main(sys.argv[1:])\n"
    )
    out = subprocess.run(
        [sys.executable, "-ISc", code, "--home", str(home.path), "--host", "claude"],
        input=json.dumps(payload).encode(),
        capture_output=True,
        timeout=20,
        check=True,
    ).stdout
    return set(out.decode().rpartition("\n")[2].split())


def test_what_nobody_typed_loads_next_to_nothing(home: Home) -> None:
    names = loaded(home, prompt_payload("/deploy staging"), launch.PARENT)
    assert names - BARE == (OURS | COMPILED) & names
    assert names >= OURS


class Echo:
    """Answers at once, to nobody in particular."""

    generation = "g1"

    def warm(self) -> None:
        pass

    follow = close = warm

    def answer(self, request: dict[str, object], deadline: float) -> dict[str, object]:
        return {"outcome": "inject", "reason": "confident", "block": "note"}


def test_a_warm_prompt_loads_little_more(home: Home) -> None:
    lock = launch.take_lock(wire.runtime_folder(str(home.path)), wire.LOCK)
    daemon = server.Daemon(str(home.path), Echo, lock)
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        names = loaded(home, prompt_payload("a question"), launch.PARENT)
    finally:
        daemon.order("the test is over")
        thread.join(5)
    assert names - BARE == (OURS | COMPILED | WITH_DAEMON) & names
    assert names >= OURS | WITH_DAEMON


def test_the_measure_sees_what_is_loaded(home: Home, tmp_path: Path) -> None:
    package = copy_package(tmp_path / "slow")
    hosts = package / "prompt_rag" / "hosts.py"
    hosts.write_text(hosts.read_text() + "\nimport re\n")
    names = loaded(home, prompt_payload("/deploy staging"), str(package))
    assert {"re", "enum"} <= names - BARE - OURS - COMPILED


def test_the_modules_are_compiled_once(home: Home, tmp_path: Path) -> None:
    home.hook(prompt_payload("/deploy staging"))
    compiled = {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")}
    assert compiled == {"__init__", "hook", "hosts", "wire"}


def test_an_answer_takes_one_connection_and_no_file_of_ours(home: Home) -> None:
    """The cold parts stay out of the way while a daemon answers."""
    home.ask("wake up")
    cold = [home.path / wire.SETTINGS, home.run / wire.LOCK]
    times = [path.stat().st_mtime_ns for path in cold]
    time.sleep(0.01)
    assert home.ask("warm") == "note on warm"
    assert [path.stat().st_mtime_ns for path in cold] == times
    assert not (home.path / wire.LOG).exists()
