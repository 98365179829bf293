"""Edited notes on their way into the index: queued, merged, and synced by one runner at a time.

Hosts tell of each edit as it happens, several at once and in bursts. The daemon's loop hands the
paths in and goes on; what lies below a source waits until the burst is over, and a process of its
own then takes in all of it. What comes meanwhile waits for the next one. Hooks are only hints:
nothing is lost here that a plain ``sync`` would not find.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_rag import launch, wire
from prompt_rag.domain import ConfigError

if TYPE_CHECKING:
    from subprocess import Popen

DEBOUNCE_SECONDS = 0.3  # an agent's parallel edits arrive within less
LOOK_SECONDS = 0.1  # between two looks whether the runner has ended; only while there is one
AGAIN_SECONDS = 2.0  # another process writes the index; a sync by hand takes about as long
MOST_ATTEMPTS = 5
MOST_PATHS = 200  # on one command line; more wait for the next runner


class Freshness:
    """The queue of one home. Used by the daemon's loop only; it never waits.

    ``start`` begins to sync some paths and returns the process that does.
    """

    def __init__(
        self,
        home: str,
        log: Callable[[str], None],
        start: Callable[[str, list[str]], Popen[bytes]] | None = None,
    ) -> None:
        self._home = home
        self._log = log
        self._start = start or sync
        self._waiting: dict[str, None] = {}
        self._running: list[str] = []
        self._runner: Popen[bytes] | None = None
        self._due = math.inf
        self._attempts = 0

    @property
    def pending(self) -> int:
        """Number of paths that have been told and are not in the index yet."""
        return len(self._waiting) + len(self._running)

    def touched(self, paths: Iterable[object]) -> int:
        """Queue those of ``paths`` that a source may hold; return how many."""
        folders = self._folders()
        spelled = (_spelled(path, folders) for path in paths if isinstance(path, str))
        notes = [path for path in spelled if path]
        self._waiting.update(dict.fromkeys(notes))
        if notes:
            self._due = time.monotonic() + DEBOUNCE_SECONDS
        return len(notes)

    def next_instant(self) -> float:
        """Return when to call :meth:`step`, an instant of ``time.monotonic()``; may be infinite."""
        return time.monotonic() + LOOK_SECONDS if self._runner else self._due

    def step(self) -> None:
        """Look after the runner, and start the next one when it is time."""
        if self._runner and self._runner.poll() is not None:
            self._ended(self._runner.returncode)
        if self._runner is None and self._waiting and time.monotonic() >= self._due:
            self._run()

    def _run(self) -> None:
        self._due = math.inf
        self._running = list(self._waiting)[:MOST_PATHS]
        for path in self._running:
            del self._waiting[path]
        try:
            self._runner = self._start(self._home, self._running)
        except OSError as error:
            self._log(f"sync: {error.strerror}")
            self._ended(1)

    def _ended(self, code: int) -> None:
        self._runner = None
        again, self._running = self._running if code else [], []
        self._attempts = self._attempts + 1 if code else 0
        if code:
            self._log(f"sync of {len(again)} edited files ended with {code}")
        if self._attempts >= MOST_ATTEMPTS:
            again, self._attempts = [], 0  # a sync by hand will say what is wrong
        self._waiting = dict.fromkeys([*again, *self._waiting])
        if self._waiting:
            pause = AGAIN_SECONDS if code else 0.0
            self._due = max(time.monotonic() + pause, self._due if self._due < math.inf else 0.0)

    def _folders(self) -> list[Path]:
        from prompt_rag import config  # the socket must not wait for it

        try:
            sources = config.load(Path(self._home)).sources
        except ConfigError:  # whoever asks next is told
            return []
        return [each.path for each in sources if each.kind == "markdown" and each.path]


def _spelled(path: str, folders: Iterable[Path]) -> str:
    """Return ``path`` as the settings spell the folder it lies in, "" where it is in none.

    An agent may reach a note through a link, or the settings may; the note itself may be one.
    """
    try:
        place = Path(path)
        real = place.parent.resolve() / place.name
        for folder in folders:
            root = folder.resolve()
            if place.is_absolute() and real.is_relative_to(root):
                return str(folder / real.relative_to(root))
    except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL
        pass
    return ""


def sync(home: str, paths: list[str]) -> Popen[bytes]:
    """Start ``prompt-rag sync`` on ``paths``; it outlives us. Raises OSError."""
    import subprocess  # as above

    environment = dict(os.environ)
    if wire.home_folder() != home:
        environment["PROMPT_RAG_HOME"] = home
    return subprocess.Popen(
        launch.program("sync", "--quiet", "--", *paths),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=os.path.sep,
        env=environment,
        start_new_session=True,
    )
