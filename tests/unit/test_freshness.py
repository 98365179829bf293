"""Edited files on their way into the index, with runners that are pure pretence."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from prompt_rag import freshness, wire
from prompt_rag.freshness import Freshness
from prompt_rag.sources import markdown


class Runner:
    """A process that ends when it is told to."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode


class Queue:
    """A queue whose runners are collected instead of started."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.runners: list[Runner] = []
        self.log: list[str] = []
        self.broken = False
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.queue = Freshness(str(home), self.log.append, self._start)  # type: ignore[arg-type]

    def _start(self, _home: str, paths: list[str]) -> Runner:
        if self.broken:
            raise OSError(12, "Cannot allocate memory")
        self.runners.append(Runner(paths))
        return self.runners[-1]

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.queue.step()

    def end(self, code: int = 0) -> None:
        self.runners[-1].returncode = code
        self.queue.step()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    notes.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[[source]]\nname = "n"\nkind = "markdown"\npath = "{notes}"\n'
        '[[source]]\nname = "b"\nkind = "bear"\n'
    )
    return notes


@pytest.fixture
def queue(tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path / "home", monkeypatch)


def test_only_what_a_source_may_hold_is_queued(queue: Queue, notes: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(notes)
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    others = ["/etc/a.md", "a.md", f"{notes}-2/a.md", f"{notes}/../a.md", 7, "\0", f"{circle}/a.md"]
    assert queue.queue.touched(others) == 0
    assert queue.queue.next_instant() == math.inf
    assert queue.queue.touched([f"{link}/a.md", f"{notes}/b/c.md"]) == 2
    queue.later(1)
    assert [runner.paths for runner in queue.runners] == [[f"{notes}/a.md", f"{notes}/b/c.md"]]


def test_a_burst_is_one_run_and_the_rest_waits_for_the_next(queue: Queue, notes: Path) -> None:
    for number in range(50):
        queue.queue.touched([f"{notes}/{number % 5}.md"])
        queue.later(0.1)
    assert queue.runners == []
    assert queue.queue.next_instant() == pytest.approx(queue.now + freshness.DEBOUNCE_SECONDS - 0.1)
    queue.later(0.3)
    assert [len(runner.paths) for runner in queue.runners] == [5]
    queue.queue.touched([f"{notes}/x.md"])
    queue.later(10)
    assert len(queue.runners) == 1
    assert queue.queue.pending == 6
    assert queue.queue.next_instant() == queue.now + freshness.LOOK_SECONDS
    queue.end()
    assert queue.runners[-1].paths == [f"{notes}/x.md"]
    queue.end()
    assert queue.queue.pending == 0
    assert queue.queue.next_instant() == math.inf
    assert queue.log == []


def test_very_many_files_take_more_than_one_run(queue: Queue, notes: Path) -> None:
    queue.queue.touched([f"{notes}/{number}.md" for number in range(freshness.MOST_PATHS + 1)])
    queue.later(1)
    queue.end()
    assert [len(runner.paths) for runner in queue.runners] == [freshness.MOST_PATHS, 1]


def test_a_run_that_fails_is_done_again_and_at_last_given_up(queue: Queue, notes: Path) -> None:
    queue.queue.touched([f"{notes}/a.md"])
    queue.later(1)
    for _ in range(freshness.MOST_ATTEMPTS - 1):
        queue.end(1)
        assert queue.queue.pending == 1
        assert queue.queue.next_instant() == queue.now + freshness.AGAIN_SECONDS
        queue.later(freshness.AGAIN_SECONDS)
    assert len(queue.runners) == freshness.MOST_ATTEMPTS
    queue.end(1)
    assert queue.queue.pending == 0
    assert queue.log == ["sync of 1 edited files ended with 1"] * freshness.MOST_ATTEMPTS


def test_a_run_that_cannot_start(queue: Queue, notes: Path) -> None:
    queue.broken = True
    queue.queue.touched([f"{notes}/a.md"])
    queue.later(1)
    assert queue.log[0] == "sync: Cannot allocate memory"
    queue.broken = False
    queue.later(freshness.AGAIN_SECONDS)
    assert queue.runners[0].paths == [f"{notes}/a.md"]


def test_settings_that_do_not_parse(queue: Queue, notes: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "config.toml").write_text("[")
    assert queue.queue.touched([f"{notes}/a.md"]) == 0


def test_the_hook_lets_through_what_a_folder_of_notes_may_hold() -> None:
    assert wire.NOTE_SUFFIXES == markdown.SUFFIXES
