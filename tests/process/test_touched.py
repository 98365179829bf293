"""Edits that hosts tell of, over real processes: searchable soon, and nobody waits for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import wait_for

from prompt_rag import config, generations, indexing, installing, wire
from prompt_rag.catalog import Catalog

HARBOUR = "# Harbour\n\nThe tide tables hang on the green door of the harbour master.\n"
STAYING = ("lamp", "table", "chair")  # a source that loses most of its notes keeps them
BURST = 12


class World:
    """A home with an index of a few notes, and the installed launcher."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "h"
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.home.mkdir(mode=0o700)
        (self.home / "config.toml").write_text(
            "[hook]\ndeadline_seconds = 25.0\n"
            f'[[source]]\nname = "n"\nkind = "markdown"\npath = "{self.notes}"\n'
        )
        (self.notes / "harbour.md").write_text(HARBOUR)
        for name in STAYING:
            (self.notes / f"{name}.md").write_text(f"# {name}\n\nThe {name} stays in the house.\n")
        indexing.rebuild(config.load(self.home))
        self.launcher = installing.write_launcher(self.home)

    def touched(self, path: Path | str, **more: Any) -> bytes:
        """Tell of an edit as Claude Code does."""
        payload = {
            "hook_event_name": "PostToolUse",
            "tool_name": "Edit",
            "tool_input": {"file_path": str(path)},
            "session_id": "s",
            "cwd": "/p",
            **more,
        }
        done = subprocess.run(
            [self.launcher, "--host", "claude"],
            input=json.dumps(payload).encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    def status(self) -> dict[str, Any]:
        return wire.ask(str(self.home), {"kind": "status"}, time.monotonic() + 20, start=False)

    def titles(self) -> set[str]:
        with Catalog.open(generations.current(self.home).catalog) as catalog:
            found = set()
            for key in catalog.fingerprints("n"):
                found |= {head.title for head in catalog.find_notes(key)}
            return found

    def runners(self) -> list[int]:
        """Return the processes that sync this world's notes."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    line = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"sync" in line and os.fsencode(self.notes) in b"\0".join(line):
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        with suppress(wire.Unanswered):
            wire.ask(str(self.home), {"kind": "stop"}, time.monotonic() + 5, start=False)
        wait_for(lambda: not self.runners(), 30)


@pytest.fixture
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="prag-", dir="/tmp"))  # for the socket's path
    world = World(folder)
    yield world
    world.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_edits_are_merged_and_soon_in_the_index(world: World) -> None:
    most = 0
    for number in range(BURST):
        path = world.notes / f"{number}.md"
        path.write_text(
            f"# Buoy {number}\n\nBuoy number {number} has a lamp that is lit at dusk.\n"
        )
        assert world.touched(path) == b""
        most = max(most, len(world.runners()))
    (world.notes / "harbour.md").unlink()
    world.touched(world.notes / "harbour.md")
    wanted = {*STAYING, *(f"Buoy {number}" for number in range(BURST))}
    give_up = time.monotonic() + 60
    while world.titles() != wanted:
        most = max(most, len(world.runners()))
        assert time.monotonic() < give_up, world.titles()
        time.sleep(0.05)
    assert most <= 1
    wait_for(lambda: world.status()["unsynced"] == 0, 20)
    assert not (world.home / wire.LOG).exists()  # it is about prompts


def test_edits_of_anything_else_start_nothing(world: World) -> None:
    assert world.touched("/p/code.py") == b""
    with pytest.raises(wire.Unanswered):  # not even a daemon
        world.status()


def test_edits_of_other_notes_are_not_queued(world: World) -> None:
    assert world.touched("/elsewhere/README.md") == b""
    assert world.status()["unsynced"] == 0


def test_without_a_daemon_nothing_is_started(world: World) -> None:
    (world.home / wire.SETTINGS).write_text(f"{wire.MODE_KEY}=off\n")
    assert world.touched(world.notes / "harbour.md") == b""
    assert world.runners() == []


def test_the_command_by_its_name(world: World) -> None:
    path = world.notes / "new.md"
    path.write_text("# Lighthouse\n\nThe lighthouse keeper has the spare key of the boat.\n")
    payload = {"hook_event_name": "afterFileEdit", "cursor_version": "3", "file_path": str(path)}
    done = subprocess.run(
        [Path(sys.executable).with_name("prompt-rag"), "touched", "--host", "cursor"],
        input=json.dumps(payload).encode(),
        capture_output=True,
        env={**os.environ, "PROMPT_RAG_HOME": str(world.home)},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    wait_for(lambda: "Lighthouse" in world.titles(), 60)
