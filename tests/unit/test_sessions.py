"""What a session has been shown, across processes and accidents."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import fsio, sessions
from prompt_rag.sessions import Sessions, text_key


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


# --- the same text ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    ["Rotate the token", "  rotate\tthe\n\ntoken ", "ROTATE THE TOKEN", "rotate the ｔｏｋｅｎ"],
)
def test_the_same_text_however_it_is_set(other: str) -> None:
    assert text_key(other) == text_key("rotate the token")


@pytest.mark.parametrize("other", ["rotate the tokens", "rotate thetoken", "", "\ud83d"])
def test_another_text(other: str) -> None:
    assert text_key(other) != text_key("rotate the token")


@given(st.text())
def test_the_composition_of_characters_does_not_matter(text: str) -> None:
    assert text_key(unicodedata.normalize("NFD", text)) == text_key(text)
    assert len(text_key(text)) == 16


# --- shown ------------------------------------------------------------------------------------


def test_what_was_shown_is_known_to_the_next_process(folder: Path) -> None:
    first = Sessions(folder)
    assert first.shown("s") == set()
    first.add("s", {"a", "b"})
    first.add("s", ["c"])
    first.add("s", [])
    assert Sessions(folder).shown("s") == {"a", "b", "c"}
    assert Sessions(folder).shown("another") == set()


def test_it_forgets_one_session_and_no_other(folder: Path) -> None:
    memory = Sessions(folder)
    memory.add("s", {"a"})
    memory.add("t", {"b"})
    memory.forget("s")
    memory.forget("never seen")
    assert (memory.shown("s"), memory.shown("t")) == (set(), {"b"})


def test_a_session_without_an_id_has_no_memory(folder: Path) -> None:
    memory = Sessions(folder)
    memory.add("", {"a"})
    memory.forget("")
    assert memory.shown("") == set()
    assert memory.first_call("", "p")
    assert memory.first_call("", "p")
    assert not folder.exists()


@pytest.mark.parametrize("session", ["../../etc/passwd", "a/b\0c\n", "x" * 10_000, "\ud83d", "."])
def test_an_id_may_hold_anything(folder: Path, session: str) -> None:
    Sessions(folder).add(session, {"a"})
    assert Sessions(folder).shown(session) == {"a"}
    (file,) = files(folder)
    assert file.parent == folder
    assert len(file.name) == 16
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "damage",
    [b"", b"\0\0\0", b"nonsense\n", b"[1]\n", b'{"shown":7}\n', b'{"shown":[7,null]}\n', b'{"sho'],
)
def test_what_is_damaged_is_as_if_it_were_not_there(folder: Path, damage: bytes) -> None:
    memory = Sessions(folder)
    memory.add("s", {"a"})
    (file,) = files(folder)
    file.write_bytes(damage)
    assert memory.shown("s") == set()
    assert memory.first_call("s", "p")
    memory.add("s", {"b"})
    assert memory.shown("s") == {"b"}
    assert not memory.first_call("s", "p")


def test_a_line_cut_off_by_a_crash_costs_that_line_only(folder: Path) -> None:
    memory = Sessions(folder)
    memory.add("s", {"a"})
    memory.add("s", {"b"})
    (file,) = files(folder)
    file.write_bytes(file.read_bytes()[:-5])
    memory.add("s", {"c"})
    assert memory.shown("s") == {"a", "c"}


def test_where_nothing_can_be_written_a_process_still_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    memory = Sessions(blocked / "sessions")
    memory.add("s", {"a"})
    memory.add("s", {"b"})
    assert memory.shown("s") == {"a", "b"}
    assert memory.first_call("s", "p")
    monkeypatch.setattr(sessions, "MOST_UNSAVED", 2)
    memory.add("t", {"c"})
    memory.add("u", {"d"})
    assert (memory.shown("s"), memory.shown("u")) == (set(), {"d"})
    memory.forget("u")
    assert memory.shown("u") == set()


# --- two calls --------------------------------------------------------------------------------


def test_a_second_call_for_one_prompt(folder: Path) -> None:
    memory = Sessions(folder)
    assert memory.first_call("s", "p", now=100.0)
    assert not Sessions(folder).first_call("s", "p", now=100.1)
    assert not memory.first_call("s", "p", now=101.9)
    assert memory.first_call("s", "q", now=101.9)
    assert memory.first_call("t", "p", now=101.9)
    assert memory.first_call("s", "p", now=102.1)  # asked again by a person
    assert memory.first_call("s", "p", now=50.0)  # the clock was set back


def test_calls_and_texts_do_not_mix(folder: Path) -> None:
    memory = Sessions(folder)
    memory.first_call("s", "p")
    memory.add("s", {"p2"})
    assert memory.shown("s") == {"p2"}
    assert memory.first_call("s", "p2")


def test_of_many_processes_one_has_the_first_call(folder: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from prompt_rag.sessions import Sessions\n"
        "memory = Sessions(Path(sys.argv[1]))\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "print(memory.first_call('s', 'p')); memory.add('s', {sys.argv[3]})\n"
    )
    at = str(time.time() + 1.0)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder), at, f"text {number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    said = [process.communicate(timeout=30)[0].strip() for process in processes]
    assert sorted(said) == ["False"] * 5 + ["True"]
    assert Sessions(folder).shown("s") == {f"text {number}" for number in range(6)}


def test_a_stuck_process_does_not_stop_the_others(folder: Path) -> None:
    fsio.private_folder(str(folder))
    with fsio.Lock(str(folder / ".lock")):
        begun = time.monotonic()
        memory = Sessions(folder)
        assert memory.first_call("s", "p")
        memory.add("s", {"a"})
        assert time.monotonic() - begun < 1.0
        assert memory.shown("s") == {"a"}


# --- bounds -----------------------------------------------------------------------------------


def test_a_long_session_keeps_its_latest_half(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_BYTES", 2000)
    memory = Sessions(folder)
    for number in range(200):
        memory.add("s", {text_key(str(number))})
    (file,) = files(folder)
    assert file.stat().st_size < 2200
    shown = memory.shown("s")
    assert {text_key(str(number)) for number in range(185, 200)} <= shown
    assert text_key("0") not in shown


def test_old_sessions_go_and_so_do_too_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 3)
    memory = Sessions(folder)
    now = time.time()
    for number in range(6):
        memory.add(f"s{number}", {"a"})
        os.utime(memory._path(f"s{number}"), (now - 100 * (6 - number),) * 2)
    memory.clean()
    left = [number for number in range(6) if memory.shown(f"s{number}")]
    assert left == [3, 4, 5]
    memory.clean(now=now + sessions.KEPT_SECONDS - 150)
    assert [number for number in range(6) if memory.shown(f"s{number}")] == [5]
    assert (folder / ".lock").exists()


def test_a_new_session_cleans_up_behind_the_old(folder: Path) -> None:
    memory = Sessions(folder)
    memory.add("old", {"a"})
    long_ago = time.time() - sessions.KEPT_SECONDS - 1
    os.utime(memory._path("old"), (long_ago, long_ago))
    memory.add("new", {"b"})
    assert len(files(folder)) == 1


def test_cleaning_what_is_not_there(folder: Path) -> None:
    Sessions(folder).clean()
    assert not folder.exists()


def test_cleaning_leaves_what_it_cannot_remove(folder: Path) -> None:
    memory = Sessions(folder)
    memory.add("s", {"a"})
    (folder / "a folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nothing")
    memory.clean(now=time.time() + 2 * sessions.KEPT_SECONDS)
    assert {path.name for path in files(folder)} == {"a folder", "dangling"}
