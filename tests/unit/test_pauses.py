"""The pause: a file with one number, and whatever else may be in its place."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from prompt_rag import pauses


def test_no_pause(tmp_path: Path) -> None:
    assert pauses.paused_until(tmp_path) is None
    assert pauses.paused_until(tmp_path / "no-home") is None
    pauses.resume(tmp_path)


def test_until_an_instant(tmp_path: Path) -> None:
    until = time.time() + 60.25
    home = tmp_path / "home"
    pauses.pause(home, until)
    assert pauses.paused_until(home) == until
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / pauses.FILE).stat().st_mode & 0o777 == 0o600


def test_it_ends_by_itself(tmp_path: Path) -> None:
    pauses.pause(tmp_path, time.time() - 0.001)
    assert pauses.paused_until(tmp_path) is None


def test_until_it_is_ended(tmp_path: Path) -> None:
    pauses.pause(tmp_path, math.inf)
    assert pauses.paused_until(tmp_path) == math.inf
    pauses.resume(tmp_path)
    assert pauses.paused_until(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_new_pause_replaces_the_old(tmp_path: Path) -> None:
    pauses.pause(tmp_path, math.inf)
    until = time.time() + 60
    pauses.pause(tmp_path, until)
    assert pauses.paused_until(tmp_path) == until


@pytest.mark.parametrize("text", [b"", b"soon", b"nan", b"-inf", b"0", b"\xff\x00", b"1 2"])
def test_what_is_no_instant_pauses_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / pauses.FILE).write_bytes(text)
    assert pauses.paused_until(tmp_path) is None


def test_a_person_may_write_it(tmp_path: Path) -> None:
    (tmp_path / pauses.FILE).write_text(" inf \n")
    assert pauses.paused_until(tmp_path) == math.inf


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / pauses.FILE).mkdir()
    assert pauses.paused_until(tmp_path) is None
    with pytest.raises(OSError, match=pauses.FILE):
        pauses.pause(tmp_path, math.inf)
