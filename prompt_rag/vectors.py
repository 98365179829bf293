"""The graph over the catalog's vectors: kept beside the catalog, verified, followed.

The graph is a cache. A *writer* makes and saves it (:func:`checkpoint`); a *reader* takes it as
saved and follows the catalog from there (:func:`load`, :func:`follow`). A checkpoint that is
missing, torn, damaged, far behind or not of this catalog is ignored, and the reader searches
exactly: at once, and with the same answers. Only writers spend the time to make a graph.

hnswlib crashes the process on a damaged file, so a file is handed to it only after its size and
sha256 have been compared with the manifest, which is written after it. And a graph can lose
passages behind a crowd of equal ones, so one is published only if it finds its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

import numpy as np

from prompt_rag import fsio
from prompt_rag.neighbours import (
    SAME,
    SPACE,
    ExactIndex,
    HnswIndex,
    hnswlib_problem,
    inverse_lengths,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from prompt_rag.domain import Changes, Matrix

__all__ = [
    "CheckpointFiles",
    "ExactIndex",
    "HnswIndex",
    "VectorStore",
    "build",
    "checkpoint",
    "follow",
    "hnswlib_problem",
    "load",
    "save_checkpoint",
]

FORMAT = 1
"""The layout of the manifest. Another one is ignored, like any checkpoint that does not fit."""
REPLAY_LIMIT = 1000
"""Most additions a reader links by itself: 0.2 to 0.45 ms each, so under half a second once."""
CHECKPOINT_AFTER = REPLAY_LIMIT // 2
"""Changes after which a writer saves again, so that readers rarely meet the limit above."""
SELF_CHECKS = 1000
"""Passages (or up to twice as many) that a graph is asked for by their own vector before it is
saved: 0.1 s."""
FOUND = 0.999
"""The share of them that must be found. 1,000 equal vectors added after 300 others hide half of
those: share 0.895. 10,000 vectors in 200 clusters have 1.000; the hard ones at
:data:`prompt_rag.neighbours.EF_SEARCH` have 0.9985 and are left to exact search."""
PORTION = 4096
"""Vectors read from the catalog at a time while a graph is made: 6 MB at 384 dimensions."""
SPOT_CHECKS = 16
"""Vectors of a loaded graph that are compared with the catalog's. They catch a graph of other
vectors under the same labels, which differs everywhere."""


class CheckpointFiles(Protocol):
    """Where the two files of a checkpoint are; a generation is one."""

    @property
    def graph(self) -> Path:
        """The file that hnswlib writes."""

    @property
    def manifest(self) -> Path:
        """What that file is."""


class VectorStore(Protocol):
    """What this module asks of the catalog, which says what each of these means."""

    @property
    def id(self) -> str:
        """Random, given when the catalog was made."""

    @property
    def dim(self) -> int:
        """Dimensions of every vector."""

    def snapshot(self) -> AbstractContextManager[None]:
        """One commit for all reads of a block."""

    def last_change(self) -> int:
        """The number of the last change."""

    def changes_after(self, change_no: int) -> Changes:
        """What happened after it."""

    def live_labels(self) -> NDArray[np.int64]:
        """All labels, rising."""

    def matrix(self, labels: Iterable[int] | None = None) -> tuple[NDArray[np.int64], Matrix]:
        """Labels, rising, and their vectors."""


# --- readers ------------------------------------------------------------------------------------


def load(files: CheckpointFiles, store: VectorStore) -> HnswIndex | ExactIndex:
    """Return an index of everything in the catalog: from its checkpoint, or else exact.

    Takes under a second for 100,000 passages either way.
    """
    index = _from_checkpoint(files, store, REPLAY_LIMIT)
    if index is not None and not index.worn:
        return index
    with store.snapshot():
        return ExactIndex(*store.matrix(), store.last_change())


def follow(
    index: HnswIndex | ExactIndex, files: CheckpointFiles, store: VectorStore
) -> HnswIndex | ExactIndex:
    """Return an index that holds what the catalog holds now; mostly the same one, in microseconds.

    A new one comes back where following would take long, or has worn the graph.
    """
    if store.last_change() == index.change_no:
        return index
    changes = store.changes_after(index.change_no)
    if isinstance(index, HnswIndex) and len(changes.added_labels) > REPLAY_LIMIT:
        return load(files, store)
    index.apply(changes)
    return load(files, store) if index.worn else index


# --- the writer ---------------------------------------------------------------------------------


def checkpoint(files: CheckpointFiles, store: VectorStore, *, force: bool = False) -> bool:
    """Bring the checkpoint up to date and return whether it was written.

    It is written once :data:`CHECKPOINT_AFTER` changes have gathered and where there is none that
    fits. ``force`` makes the graph from nothing and writes it whatever is there: the way to be rid
    of vectors that were removed. Call it after a commit and while holding the writer's lock.

    Raises OSError where the disk is full or failing; the checkpoint before it stays.
    """
    if hnswlib_problem():
        return False
    index = None
    if not force:
        manifest = _read_manifest(files, store)
        if manifest is not None and _whole(files, manifest):
            behind = store.last_change() - manifest.change_no
            if 0 <= behind < CHECKPOINT_AFTER:
                return False
        index = _from_checkpoint(files, store, None)
    if index is None or index.worn:
        index = build(store)
    save_checkpoint(index, files, store.id)
    return True


def build(store: VectorStore) -> HnswIndex:
    """Return a new graph of everything in the catalog; of the vectors it holds the only copy."""
    with store.snapshot():
        index = HnswIndex(store.dim, store.last_change())
        labels = store.live_labels()
        for start in range(0, len(labels), PORTION):
            index.add(*store.matrix(labels[start : start + PORTION].tolist()))
    return index


def save_checkpoint(index: HnswIndex, files: CheckpointFiles, store_id: str) -> None:
    """Publish ``index`` as the checkpoint: the graph by rename, then the manifest that vouches.

    Killed in between, the old manifest no longer fits the new graph and the pair is ignored. A
    graph that does not find its own passages is not published; a manifest that says so is, which
    makes readers search exactly and keeps the writer from trying again at every commit.

    Raises OSError.
    """
    # One name: there is one writer, and what a killed one left is written over.
    temporary = files.graph.with_name(f"{files.graph.name}.tmp")
    sound = index.share_found(SELF_CHECKS) >= FOUND
    size, digest = 0, ""
    try:
        if sound:
            size = index.save(temporary)
            digest = fsio.sha256_file(os.fspath(temporary))
            temporary.replace(files.graph)
            fsio.fsync_folder(os.fspath(files.graph.parent))
        manifest = _Manifest(
            format=FORMAT,
            library=_library(),
            store=store_id,
            change_no=index.change_no,
            space=SPACE,
            dim=index.dim,
            sound=sound,
            live=index.live,
            deleted=index.deleted,
            bytes=size,
            sha256=digest,
        )
        text = json.dumps(asdict(manifest), indent=1)
        fsio.write_atomic(os.fspath(files.manifest), text.encode())
        if not sound:
            files.graph.unlink(missing_ok=True)
    finally:
        temporary.unlink(missing_ok=True)


# --- checkpoints --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What the file beside it is; ``deleted`` lists the labels marked as removed in it."""

    format: int
    library: str
    store: str
    change_no: int
    space: str
    dim: int
    sound: bool
    live: int
    deleted: list[int]
    bytes: int
    sha256: str


def _library() -> str:
    return f"hnswlib {version('hnswlib')}"


def _read_manifest(files: CheckpointFiles, store: VectorStore) -> _Manifest | None:
    """Return the manifest where it is of this catalog and was written by this version, or None."""
    try:
        manifest = _Manifest(**json.loads(files.manifest.read_bytes()))
        numbers = [manifest.change_no, manifest.live, manifest.bytes, *manifest.deleted]
    except (OSError, TypeError, ValueError):
        return None
    if not all(type(number) is int for number in numbers):
        return None
    expected = (FORMAT, _library(), store.id, SPACE, store.dim)
    found = (manifest.format, manifest.library, manifest.store, manifest.space, manifest.dim)
    return manifest if found == expected else None


def _whole(files: CheckpointFiles, manifest: _Manifest) -> bool:
    """Whether the graph's file is there at full length; its bytes are compared when it is read."""
    try:
        return not manifest.sound or files.graph.stat().st_size == manifest.bytes
    except OSError:
        return False


def _from_checkpoint(
    files: CheckpointFiles, store: VectorStore, replay_limit: int | None
) -> HnswIndex | None:
    """Return the checkpoint's graph, brought up to the catalog and compared with it, or None."""
    if hnswlib_problem():
        return None
    # Twice: a writer may have published between the manifest's read and the graph's.
    index = _read_checkpoint(files, store) or _read_checkpoint(files, store)
    if index is None:
        return None
    with store.snapshot():
        if index.change_no > store.last_change():
            return None
        changes = store.changes_after(index.change_no)
        if replay_limit is not None and len(changes.added_labels) > replay_limit:
            return None
        index.apply(changes)
        return index if _agrees(index, store) else None


def _read_checkpoint(files: CheckpointFiles, store: VectorStore) -> HnswIndex | None:
    manifest = _read_manifest(files, store)
    if manifest is None or not manifest.sound:
        return None
    try:
        with files.graph.open("rb") as file:
            before = os.fstat(file.fileno())
            if before.st_size != manifest.bytes:
                return None
            if hashlib.file_digest(file, "sha256").hexdigest() != manifest.sha256:
                return None
            index = HnswIndex.restore(
                files.graph, manifest.dim, manifest.deleted, manifest.change_no
            )
            # hnswlib opens by name. While this descriptor is open its inode is not used again, so
            # the same inode under the name now means that it was read.
            after = files.graph.stat()
    except (OSError, RuntimeError):
        return None
    same = (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    return index if same and index.live == manifest.live else None


def _agrees(index: HnswIndex, store: VectorStore) -> bool:
    """Whether the graph has the catalog's labels and, where looked at, its vectors."""
    labels = store.live_labels()
    if not np.array_equal(index.labels, labels):
        return False
    some = labels[:: max(1, len(labels) // SPOT_CHECKS)]
    theirs = store.matrix(some.tolist())[1]
    theirs = theirs * inverse_lengths(theirs)[:, np.newaxis]
    return bool(np.allclose(index.vectors(some), theirs, atol=SAME))
