"""A writer that is killed at any moment, and a reader beside a writer: real processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from prompt_rag import vectors
from prompt_rag.catalog import Catalog, IndexedNote
from prompt_rag.domain import EmbedderIdentity, Note, Passage, note_id
from prompt_rag.generations import Generation
from prompt_rag.vectors import ExactIndex, HnswIndex

if TYPE_CHECKING:
    from prompt_rag.domain import Vector

DIM = 16
IDENTITY = EmbedderIdentity("fake", "f" * 64, DIM, True, "", "", 256)
KILLS = 36
State = dict[str, list[str]]


def vector_of(text: str) -> Vector:
    seed = int(sha256(text.encode()).hexdigest()[:12], 16)
    vector = np.random.default_rng(seed).standard_normal(DIM)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def indexed(key: str, texts: list[str]) -> IndexedNote:
    owner = note_id("notes", key)
    hashes = [sha256(text.encode()).hexdigest() for text in texts]
    passages = [
        (Passage(f"{owner}:{at}", owner, at, "section", (), text, hashes[at]), vector_of(text))
        for at, text in enumerate(texts)
    ]
    return IndexedNote(Note("notes", key, key, "", (), None, None, (), ""), "", passages)


def turn(state: State, number: int) -> tuple[State, set[str], set[str]]:
    """Return the notes after a writer's ``number``-th commit, and which it replaced and removed.

    A function of its arguments alone, so that the parent knows what the child did.
    """
    rng = random.Random(number)
    after = dict(state)
    removed: set[str] = set()
    replaced: set[str] = set()
    if number % 5 == 4 and state:
        removed = set(rng.sample(sorted(state), min(2, len(state))))
        for key in removed:
            del after[key]
    else:
        for note in rng.sample(range(25), rng.randint(1, 4)):
            key = f"note {note}.md"
            kept = [text for text in after.get(key, []) if rng.random() < 0.7]
            after[key] = kept + [f"{key} {number} {at}" for at in range(rng.randint(1, 6))]
            replaced.add(key)
    return after, replaced, removed


def write(folder: Path, first: int) -> None:
    """Be the writer: commit, checkpoint, say so, and so on until killed."""
    vectors.CHECKPOINT_AFTER = 1
    files = Generation("", folder)
    with Catalog.open(files.catalog, IDENTITY, writable=True) as catalog:
        state = state_of(catalog)
        number = first
        while True:
            state, replaced, removed = turn(state, number)
            if removed:
                catalog.remove([note_id("notes", key) for key in removed])
            else:
                catalog.replace([indexed(key, state[key]) for key in sorted(replaced)])
            say(number)
            vectors.checkpoint(files, catalog, force=number % 7 == 0)
            number += 1


def obey(folder: Path) -> None:
    """Be a writer that commits when told to on stdin, and says what has been committed."""
    files = Generation("", folder)
    with Catalog.open(files.catalog, IDENTITY, writable=True) as catalog:
        say(0)
        for line in sys.stdin:
            order = json.loads(line)
            if "checkpoint" in order:
                vectors.checkpoint(files, catalog, force=order["checkpoint"])
            else:
                catalog.replace([indexed(order["key"], order["texts"])])
            say(catalog.last_change())


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def state_of(catalog: Catalog) -> State:
    return {
        key: [passage.text for passage in catalog.passages_of(note_id("notes", key))]
        for key in sorted(catalog.fingerprints("notes"))
    }


def compare(index: HnswIndex | ExactIndex, catalog: Catalog) -> None:
    """The index answers as exact search over the catalog does."""
    exact = ExactIndex(*catalog.matrix())
    assert index.live == exact.live == catalog.live()
    assert index.change_no == catalog.last_change()
    for number in range(10):
        query = vector_of(f"question {number}")
        mine, theirs = index.knn(query, 8), exact.knn(query, 8)
        assert mine[0].tolist() == theirs[0].tolist()
        assert mine[1] == pytest.approx(theirs[1], abs=1e-5)


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run this file as a program; kill exactly that process at the end, whatever happened."""
    process = subprocess.Popen(
        [sys.executable, __file__, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_writer_killed_at_any_moment_leaves_a_right_index(tmp_path: Path) -> None:
    files = Generation("", tmp_path)
    Catalog.create(files.catalog, IDENTITY, "1").close()
    rng = random.Random(20)
    states: list[State] = [{}]  # states[n]: the notes after n commits
    commits = 0
    graphs = 0
    for _ in range(KILLS):
        with child("write", tmp_path, commits) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first, process.stderr and process.stderr.read()
            time.sleep(rng.random() * 0.06)
            process.kill()
            said = [first, *process.stdout]
        told = int(said[-1]) + 1 if said[-1].endswith("\n") else int(said[-2]) + 1
        while len(states) <= told + 1:
            states.append(turn(states[-1], len(states) - 1)[0])
        with Catalog.open(files.catalog, IDENTITY, writable=True) as catalog:
            assert catalog.check() == []
            # All that was reported, and of the one that was going on everything or nothing.
            found = state_of(catalog)
            assert found in (states[told], states[told + 1])
            commits = told + (found != states[told])
            index = vectors.load(files, catalog)
            graphs += isinstance(index, HnswIndex)
            compare(index, catalog)
    assert commits > KILLS
    # A kill between the two files or early on leaves exact search; most do not.
    assert graphs > KILLS // 3
    with Catalog.open(files.catalog, IDENTITY, writable=True) as catalog:
        vectors.checkpoint(files, catalog, force=True)
        index = vectors.load(files, catalog)
        assert isinstance(index, HnswIndex)
        compare(index, catalog)
    left = {file.name for file in tmp_path.iterdir() if file.name.endswith("hnsw.tmp")}
    assert left == set()


def test_a_reader_sees_what_another_process_commits_and_nothing_is_lost(tmp_path: Path) -> None:
    files = Generation("", tmp_path)
    with Catalog.create(files.catalog, IDENTITY, "1") as catalog:
        catalog.replace([indexed("first.md", [f"text {n}" for n in range(50)])])
        vectors.checkpoint(files, catalog)

    with child("obey", tmp_path) as writer, Catalog.open(files.catalog, IDENTITY) as reader:
        assert writer.stdin is not None
        assert writer.stdout is not None

        def tell(**order: object) -> int:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdin.write(json.dumps(order) + "\n")
            writer.stdin.flush()
            return int(writer.stdout.readline())

        assert writer.stdout.readline() == "0\n"
        index = vectors.load(files, reader)
        assert isinstance(index, HnswIndex)
        # What a process that loaded long ago would write back.
        stale = vectors.load(files, reader)
        assert isinstance(stale, HnswIndex)
        compare(index, reader)
        for number in range(20):
            revision = reader.revision()
            assert vectors.follow(index, files, reader) is index
            change = tell(key=f"{number % 4}.md", texts=[f"{number} {n}" for n in range(4)])
            assert reader.revision() != revision
            assert reader.last_change() == change
            index = vectors.follow(index, files, reader)
            compare(index, reader)
            if number == 10:
                tell(checkpoint=True)
        vectors.save_checkpoint(stale, files, reader.id)
        again = vectors.load(files, reader)
        compare(again, reader)
        assert again.live == 50 + 4 * 4
        tell(key="last.md", texts=["the last"])
        tell(checkpoint=True)
        compare(vectors.load(files, reader), reader)
        compare(vectors.follow(again, files, reader), reader)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        obey(Path(sys.argv[2]))
