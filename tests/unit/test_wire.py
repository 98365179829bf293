"""Folders, frames and the owner's checks, without a daemon."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Never

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import __version__, launch, wire

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PROMPT_RAG_"):
            monkeypatch.delenv(name)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set variables, or unset those that are None."""

    def change(**values: str | None) -> None:
        for name, value in values.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return change


# --- frames -----------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_framed_comes_out_as_it_was(message: dict[str, object]) -> None:
    data = wire.frame({"message": message})
    assert wire.body_length(data) == len(data) - 4
    back = wire.decode(data[4:])
    assert back["message"] == message
    assert (back["v"], back["program"]) == (wire.PROTOCOL, __version__)


@given(JSON)
def test_encoding_agrees_with_the_documented_module(value: object) -> None:
    assert json.loads(wire.encode(value)) == value


def test_numbers_that_json_lacks_are_null() -> None:
    values = (float("inf"), float("-inf"), float("nan"))
    assert [wire.encode(value) for value in values] == ["null"] * 3
    assert wire.encode((1, True, 2.5e-07)) == "[1,true,2.5e-07]"


def test_what_has_no_place_in_a_frame_is_refused() -> None:
    with pytest.raises(TypeError, match="set has no place"):
        wire.frame({"a": {1}})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[1]",
        b'{"a":1} more',
        b'{"a":',
        b"\xff\xfe",
        b'{"a":1}{',
        b'{"a":nope}',
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_not_one_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        wire.decode(body)


def test_the_head_of_a_frame() -> None:
    assert wire.body_length(b"\0\0\0") == -1
    assert wire.body_length(b"\0\0\1\0") == 256
    with pytest.raises(ValueError, match="cap"):
        wire.body_length((wire.MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="cap"):
        wire.frame({"prompt": "x" * wire.MAX_FRAME})


def test_the_scanner_has_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_json", None)
    monkeypatch.setitem(sys.modules, "_blake2", None)
    assert wire.decode(wire.frame({"é": ["\n", 1]})[4:])["é"] == ["\n", 1]
    assert wire.digest("é") == hashlib.blake2b("é".encode(), digest_size=8).hexdigest()


# --- folders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, "", "relative/path", "/data", "/data/"])
@pytest.mark.parametrize("home", ["/home/someone", "/home/some one/", "relative", None])
def test_the_home_is_where_platformdirs_puts_it(
    environ: Callable[..., None], data: bytes | None, home: Path
) -> None:
    environ(XDG_DATA_HOME=data, HOME=home)
    expected = platformdirs.user_data_dir("prompt-rag", appauthor=False)
    assert wire.home_folder() == os.path.normpath(expected)


def test_on_a_mac_the_home_is_in_the_library(
    environ: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    environ(XDG_DATA_HOME=None, HOME="/Users/me")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert wire.home_folder() == "/Users/me/Library/Application Support/prompt-rag"


def test_a_home_of_ones_own(
    environ: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    environ(HOME="/home/me", PROMPT_RAG_HOME="~/notes/")
    assert wire.home_folder() == "/home/me/notes"
    environ(PROMPT_RAG_HOME="here")
    assert wire.home_folder() == f"{tmp_path}/here"
    environ(PROMPT_RAG_HOME="~")
    assert wire.home_folder() == "/home/me"
    environ(PROMPT_RAG_HOME="/")
    assert wire.home_folder() == "/"


def test_a_user_without_a_home(
    environ: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pwd

    environ(HOME=None, XDG_DATA_HOME=None)
    entry = pwd.struct_passwd(("u", "x", 1, 1, "", "", ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: entry)
    with pytest.raises(LookupError):
        wire.home_folder()


def test_a_short_home_holds_its_socket() -> None:
    home = "/" + "x" * (wire.LONGEST_SOCKET_PATH - len("//run/daemon.sock"))
    assert wire.runtime_folder(home) == f"{home}/run"
    assert len(f"{wire.runtime_folder(home)}/{wire.SOCKET}") == wire.LONGEST_SOCKET_PATH


def test_a_long_home_has_its_socket_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("é" * 50)
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    place = wire.runtime_folder(str(folder))
    assert place.startswith(f"/tmp/prompt-rag-{os.getuid()}-")
    assert len(os.fsencode(f"{place}/{wire.SOCKET}")) < wire.LONGEST_SOCKET_PATH
    # One folder by two names is one index, and gets one daemon.
    long_link = tmp_path / ("l" * 80)
    long_link.symlink_to(folder)
    assert wire.runtime_folder(str(long_link)) == place


def test_settings_of_the_hook(tmp_path: Path, environ: Callable[..., None]) -> None:
    assert wire.settings(str(tmp_path / "none")) == {}
    text = "hook.deadline_seconds = 0.5\n# a remark\n\ndaemon.mode=off\nbroken\n\xff=1\n"
    (tmp_path / wire.SETTINGS).write_bytes(text.encode("latin-1"))
    found = wire.settings(str(tmp_path))
    assert found == {"hook.deadline_seconds": "0.5", "daemon.mode": "off", "\ufffd": "1"}
    environ(PROMPT_RAG_DAEMON_MODE="on")
    assert wire.settings(str(tmp_path))["daemon.mode"] == "on"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5", 0.5),
        ("2", 2.0),
        ("", 1.0),
        ("x", 1.0),
        ("0", 1.0),
        ("-1", 1.0),
        ("inf", 1.0),
        ("nan", 1.0),
    ],
)
def test_a_setting_in_seconds(text: str, expected: object) -> None:
    assert wire.seconds({"key": text}, "key", 1.0) == expected
    assert wire.seconds({}, "key", 3.0) == 3.0


# --- the call ---------------------------------------------------------------------------------


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="prag-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def soon(seconds: float = 0.3) -> float:
    return time.monotonic() + seconds


@contextmanager
def listen(home: Path, reply: bytes | None) -> Iterator[None]:
    """Listen where the daemon would and answer one connection with ``reply``, None: never."""
    (home / "run").mkdir(mode=0o700)
    done = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                if reply is None:
                    done.wait(5)
                else:
                    connection.sendall(reply)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "run" / wire.SOCKET))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def reason(home: Path, **options: object) -> str:
    with pytest.raises(wire.Unanswered) as caught:
        wire.ask(str(home), {"kind": "prompt"}, soon(), **{"start": False, **options})
    return caught.value.reason


def test_the_reply_of_a_daemon(home: Path) -> None:
    with listen(home, wire.frame({"outcome": "abstain"})):
        reply = wire.ask(str(home), {"kind": "prompt"}, soon())
    assert reply["outcome"] == "abstain"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"", "daemon-unavailable"),
        (b"\0\0\0\5{}", "daemon-unavailable"),
        (b"\0\0\0\2[]", "daemon-unavailable"),
        (b"\xff\xff\xff\xff", "daemon-unavailable"),
        (b'\0\0\0\7{"v":9}', "daemon-unavailable"),
        (b'\0\0\0\x15{"outcome":"restart"}', "daemon-unavailable"),
        (None, "deadline"),
    ],
)
def test_a_daemon_that_answers_badly_is_not_asked_twice(
    home: Path, reply: bytes | None, expected: object
) -> None:
    with listen(home, reply):
        assert reason(home) == expected


def test_nobody_is_there(home: Path) -> None:
    assert reason(home) == "daemon-unavailable"
    assert reason(home / "nothing", start=True) == "index-missing"
    assert not (home / "nothing").exists()


def test_a_socket_that_refuses_means_nobody(home: Path) -> None:
    with listen(home, b""):
        pass
    assert reason(home) == "daemon-unavailable"


def test_no_time_is_left(home: Path) -> None:
    with listen(home, b""), pytest.raises(wire.Unanswered) as caught:
        wire.ask(str(home), {}, time.monotonic() - 1)
    assert caught.value.reason == "deadline"


def test_a_prompt_that_fits_no_frame(home: Path) -> None:
    with pytest.raises(wire.Unanswered) as caught:
        wire.ask(str(home), {"prompt": "x" * wire.MAX_FRAME}, soon())
    assert caught.value.reason == "bad-input"


def test_a_folder_that_others_may_write_is_not_used(home: Path) -> None:
    with listen(home, wire.frame({"outcome": "inject"})):
        (home / "run").chmod(0o770)
        assert reason(home) == "daemon-unavailable"


def test_a_folder_that_is_a_link_is_not_used(home: Path) -> None:
    with listen(home, wire.frame({"outcome": "inject"})):
        (home / "run").rename(home / "elsewhere")
        (home / "run").symlink_to(home / "elsewhere")
        assert reason(home) == "daemon-unavailable"


def test_a_socket_that_is_a_file_is_not_used(home: Path) -> None:
    (home / "run").mkdir(mode=0o700)
    (home / "run" / wire.SOCKET).touch()
    assert reason(home) == "daemon-unavailable"


def test_a_folder_that_is_a_file_is_not_used(home: Path) -> None:
    (home / "run").touch()
    assert reason(home) == "daemon-unavailable"
    assert reason(home, start=True) == "daemon-unavailable"


def test_a_listener_of_another_user_is_not_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    uids = iter([me, me + 1])  # the owner of the files, then the one to compare the peer with
    with listen(home, wire.frame({"outcome": "inject"})):
        monkeypatch.setattr(wire.system, "getuid", lambda: next(uids, me + 1))
        assert reason(home) == "daemon-unavailable"


def test_a_system_without_credentials_trusts_the_owner(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import _socket

    monkeypatch.delattr(_socket, "SO_PEERCRED", raising=False)
    with listen(home, wire.frame({"outcome": "abstain"})):
        assert wire.ask(str(home), {}, soon())["outcome"] == "abstain"


def test_while_another_starts_the_daemon_the_client_waits(home: Path) -> None:
    lock = launch.take_lock(str(home / "run"), wire.LOCK)
    begun = time.monotonic()
    assert reason(home, start=True) == "deadline"
    assert 0.25 < time.monotonic() - begun < 0.6
    os.close(lock)


def test_a_daemon_that_cannot_be_started_ends_the_wait(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    begun = time.monotonic()
    with pytest.raises(wire.Unanswered) as caught:
        wire.ask(str(home), {"kind": "prompt"}, begun + 10)
    assert caught.value.reason == "daemon-unavailable"
    assert time.monotonic() - begun < 2


def test_no_process_can_be_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Never:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", fail)
    assert reason(home, start=True) == "daemon-unavailable"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("#!/bin/sh\ncat >/dev/null", "daemon-unavailable"),
        ("#!/bin/sh\nexec sleep 5", "deadline"),
        ("#!/bin/sh\ncat >/dev/null; printf '\\0\\0\\0\\011{}'", "daemon-unavailable"),
    ],
)
def test_a_process_for_one_question_that_fails(
    home: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: object
) -> None:
    fake = home / "python"
    fake.write_text(script)
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(wire.Unanswered) as caught:
        wire.ask_aside(str(home), {"kind": "prompt"}, soon())
    assert caught.value.reason == expected


def test_a_lock_behind_a_link_is_refused(home: Path) -> None:
    (home / "real").mkdir(mode=0o700)
    (home / "run").symlink_to(home / "real")
    with pytest.raises(PermissionError):
        launch.take_lock(str(home / "run"), wire.LOCK)
    (home / "real" / "lock").symlink_to(home / "target")
    with pytest.raises(OSError):
        launch.take_lock(str(home / "real"), "lock")
    assert not (home / "target").exists()


def test_only_one_holds_the_lock_and_its_folder_is_private(home: Path) -> None:
    first = launch.take_lock(str(home / "run"), wire.LOCK)
    assert launch.take_lock(str(home / "run"), wire.LOCK) == -1
    os.close(first)
    second = launch.take_lock(str(home / "run"), wire.LOCK)
    assert second >= 0
    os.close(second)
    assert (home / "run").stat().st_mode & 0o777 == 0o700
    assert (home / "run" / wire.LOCK).stat().st_mode & 0o777 == 0o600
