"""The generations of the index on disk, and which of them is current.

Below the home folder::

    CURRENT                  the name of the current generation and a newline
    generations/<id>/        one folder for each build
        catalog.sqlite       the truth: notes, passages, vectors, full text, changes
        vectors.hnsw         a graph over the catalog's vectors, as of some change
        vectors.json         what that graph is: change, size, sha256

A rebuild fills a generation nobody reads yet and then replaces ``CURRENT``, which is its only
commit point: before, readers see the old index; after, the new one; there is no in-between.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_rag import fsio
from prompt_rag.domain import IndexMissing

if TYPE_CHECKING:
    from collections.abc import Collection

REBUILD = "prompt-rag rebuild"
"""The command that makes a generation; the hint of every error here."""

_POINTER = "CURRENT"
_FOLDER = "generations"
# A name that is one folder below generations/ whatever happened to the pointer's bytes.
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]*")


@dataclass(frozen=True, slots=True)
class Generation:
    """One build of the index: its id and its folder. The only place that knows the file names."""

    id: str
    folder: Path

    @property
    def catalog(self) -> Path:
        """The SQLite database."""
        return self.folder / "catalog.sqlite"

    @property
    def graph(self) -> Path:
        """The checkpoint of the graph over the catalog's vectors."""
        return self.folder / "vectors.hnsw"

    @property
    def manifest(self) -> Path:
        """What the checkpoint is; without it the graph is ignored."""
        return self.folder / "vectors.json"


def current(home: Path) -> Generation:
    """Return the generation that ``CURRENT`` names.

    Raises :class:`IndexMissing` where there is none, or where its folder is gone.
    """
    try:
        name = (home / _POINTER).read_text("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        raise IndexMissing(f"There is no index in {home} yet", REBUILD) from None
    except OSError as exc:
        raise IndexMissing(f"{home / _POINTER} cannot be read: {exc.strerror}", REBUILD) from exc
    if not _ID.fullmatch(name):
        raise IndexMissing(f"{home / _POINTER} names no generation", REBUILD)
    generation = Generation(name, home / _FOLDER / name)
    if not generation.folder.is_dir():
        raise IndexMissing(f"The generation {name} that {home / _POINTER} names is gone", REBUILD)
    return generation


def stamp(home: Path) -> tuple[int, ...] | None:
    """Return what is another with every :func:`publish`, None where nothing is published.

    A tenth of the time that :func:`current` takes.
    """
    try:
        found = os.stat(f"{home}/{_POINTER}")  # noqa: PTH116 - asked before every query
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def create(home: Path) -> Generation:
    """Make the empty folder of a new generation that nobody reads yet.

    Its id is the instant in UTC and a random suffix, so that ids sort by age and never meet.
    Raises OSError.
    """
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{os.urandom(4).hex()}"
    return Generation(name, Path(fsio.private_folder(os.fspath(home / _FOLDER / name))))


def publish(home: Path, generation_id: str) -> str | None:
    """Make a finished generation the current one and return the id it replaces, if any.

    Everything in its folder reaches the disk before its name does. Close the catalog first.
    Raises :class:`IndexMissing` where the generation has no catalog, OSError where the disk fails;
    in both cases the old generation stays current.
    """
    generation = Generation(generation_id, home / _FOLDER / generation_id)
    if not generation.catalog.is_file():
        raise IndexMissing(f"The generation {generation_id} has no catalog", REBUILD)
    try:
        previous = current(home).id
    except IndexMissing:
        previous = None
    for file in generation.folder.iterdir():
        _sync(file)
    fsio.fsync_folder(os.fspath(generation.folder))
    fsio.fsync_folder(os.fspath(home / _FOLDER))
    fsio.write_atomic(os.fspath(home / _POINTER), f"{generation_id}\n".encode())
    return previous


def prune(home: Path, keep: Collection[str] = ()) -> list[str]:
    """Remove generations, leftovers of crashed rebuilds included, and return the ids removed.

    The current one and those of ``keep`` stay. Keep what :func:`publish` returned: a reader may
    have read ``CURRENT`` just before and not have opened the catalog yet. One that has a removed
    generation open goes on reading it: the files vanish with its last descriptor.

    Call it only while holding the writer's lock, which is what tells a crashed rebuild from one
    that is going on. Raises :class:`IndexMissing` where nothing is current; what a folder that
    cannot be removed holds stays for the next time.
    """
    kept = {current(home).id, *keep}
    removed = []
    for folder in sorted((home / _FOLDER).iterdir()):
        if folder.name in kept or not _ID.fullmatch(folder.name) or not folder.is_dir():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            removed.append(folder.name)
    # What a writer that was killed inside fsio.write_atomic leaves behind.
    for leftover in home.glob(f".{_POINTER}.*.tmp"):
        with contextlib.suppress(OSError):
            leftover.unlink()
    return removed


def _sync(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
