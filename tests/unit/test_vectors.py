"""Checkpoints of the graph: load, follow, damage, publication step by step."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from prompt_rag import fsio, vectors
from prompt_rag.catalog import Catalog, IndexedNote
from prompt_rag.domain import EmbedderIdentity, Note, Passage, note_id
from prompt_rag.generations import Generation
from prompt_rag.vectors import ExactIndex, HnswIndex

if TYPE_CHECKING:
    from prompt_rag.domain import Matrix, Vector

DIM = 24
IDENTITY = EmbedderIdentity("fake", "f" * 64, DIM, True, "", "", 256)


def vector_of(text: str) -> Vector:
    """Return a unit vector that is a function of the text alone; equal first words lie near."""
    topic, _, rest = text.partition(" ")
    parts = [
        np.random.default_rng(int(sha256(part.encode()).hexdigest()[:8], 16)).standard_normal(DIM)
        for part in (topic, rest)
    ]
    vector = parts[0] + 0.5 * parts[1]
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def indexed(key: str, texts: list[str]) -> IndexedNote:
    owner = note_id("notes", key)
    note = Note("notes", key, key, "", (), None, None, (), "")
    passages = [
        (
            Passage(
                f"{owner}:{at}", owner, at, "section", (), text, sha256(text.encode()).hexdigest()
            ),
            vector_of(text),
        )
        for at, text in enumerate(texts)
    ]
    return IndexedNote(note, "", passages)


def texts(name: str, count: int) -> list[str]:
    return [f"topic{at % 7} {name} {at}" for at in range(count)]


@dataclass
class Home:
    """A catalog of 300 passages with the files of its checkpoint."""

    files: Generation
    catalog: Catalog

    def put(self, key: str, count: int, name: str = "") -> None:
        self.catalog.replace([indexed(key, texts(name or key, count))])

    def load(self) -> HnswIndex | ExactIndex:
        """Load as a reader does and compare with exact search over the catalog."""
        index = vectors.load(self.files, self.catalog)
        self.compare(index)
        return index

    def compare(self, index: HnswIndex | ExactIndex) -> None:
        exact = ExactIndex(*self.catalog.matrix())
        assert index.change_no == self.catalog.last_change()
        assert index.live == exact.live
        for number in range(12):
            query = vector_of(f"topic{number % 7} question {number}")
            mine, theirs = index.knn(query, 10), exact.knn(query, 10)
            assert mine[0].tolist() == theirs[0].tolist()
            assert mine[1] == pytest.approx(theirs[1], abs=1e-5)

    def manifest(self) -> dict[str, object]:
        read: dict[str, object] = json.loads(self.files.manifest.read_bytes())
        return read


def home_at(folder: Path) -> Home:
    folder.mkdir()
    files = Generation(folder.name, folder)
    home = Home(files, Catalog.create(files.catalog, IDENTITY, "1"))
    home.put("first.md", 200)
    home.put("second.md", 100)
    return home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = home_at(tmp_path / "g1")
    yield made
    made.catalog.close()


# --- writing and reading ------------------------------------------------------------------------


def test_without_a_checkpoint_a_reader_searches_exactly(home: Home) -> None:
    assert isinstance(home.load(), ExactIndex)
    assert not home.files.graph.exists()


def test_a_checkpoint_is_written_once_and_read(home: Home) -> None:
    assert vectors.checkpoint(home.files, home.catalog)
    assert isinstance(home.load(), HnswIndex)
    assert not vectors.checkpoint(home.files, home.catalog)
    manifest = home.manifest()
    assert manifest["change_no"] == 300
    assert manifest["live"] == 300
    assert manifest["bytes"] == home.files.graph.stat().st_size
    assert manifest["sha256"] == fsio.sha256_file(str(home.files.graph))
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (home.files.graph, home.files.manifest)}
    assert modes == {0o600}
    assert {file.name.partition("-")[0] for file in home.files.folder.iterdir()} == {
        "catalog.sqlite",
        "vectors.hnsw",
        "vectors.json",
    }


def test_an_empty_catalog_has_an_empty_checkpoint(tmp_path: Path) -> None:
    files = Generation("empty", tmp_path)
    with Catalog.create(files.catalog, IDENTITY, "1") as catalog:
        empty = Home(files, catalog)
        empty.load()
        assert vectors.checkpoint(files, catalog)
        index = empty.load()
        assert isinstance(index, HnswIndex)
        empty.put("a.md", 1)
        index = vectors.follow(index, files, catalog)
        empty.compare(index)
        assert index.knn(vector_of("x y"), 9)[0].tolist() == [1]


def test_a_reader_catches_up_with_what_happened_after_the_checkpoint(home: Home) -> None:
    vectors.checkpoint(home.files, home.catalog)
    home.put("first.md", 180, "rewritten")
    home.put("third.md", 40)
    home.catalog.remove([note_id("notes", "second.md")])
    # More than the allowed share is gone now, so that this one is exact.
    assert isinstance(home.load(), ExactIndex)


def test_a_reader_keeps_the_graph_while_little_has_changed(home: Home) -> None:
    vectors.checkpoint(home.files, home.catalog)
    home.put("third.md", 40)
    home.put("second.md", 60)
    index = home.load()
    assert isinstance(index, HnswIndex)
    assert index.deleted == list(range(261, 301))


def test_deleted_passages_stay_deleted_through_a_checkpoint(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CHECKPOINT_AFTER", 1)
    vectors.checkpoint(home.files, home.catalog)
    home.put("second.md", 60)
    assert vectors.checkpoint(home.files, home.catalog)
    assert home.manifest()["deleted"] == list(range(261, 301))
    assert isinstance(home.load(), HnswIndex)
    home.put("second.md", 20)
    assert vectors.checkpoint(home.files, home.catalog)
    assert isinstance(home.load(), HnswIndex)


def test_a_worn_graph_is_made_anew_by_the_writer(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CHECKPOINT_AFTER", 1)
    vectors.checkpoint(home.files, home.catalog)
    home.catalog.remove([note_id("notes", "second.md")])
    assert isinstance(home.load(), ExactIndex)
    assert vectors.checkpoint(home.files, home.catalog)
    assert home.manifest()["deleted"] == []
    assert isinstance(home.load(), HnswIndex)


def test_the_writer_saves_again_only_when_enough_has_changed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CHECKPOINT_AFTER", 50)
    vectors.checkpoint(home.files, home.catalog)
    home.put("third.md", 49)
    assert not vectors.checkpoint(home.files, home.catalog)
    home.put("fourth.md", 1)
    assert vectors.checkpoint(home.files, home.catalog)
    assert home.manifest()["change_no"] == 350


def test_a_checkpoint_made_anew_holds_no_vector_of_a_removed_passage(home: Home) -> None:
    vectors.checkpoint(home.files, home.catalog)
    home.catalog.forget([note_id("notes", "second.md")])
    secret = vector_of(texts("second.md", 100)[5]).tobytes()[:40]
    assert secret in home.files.graph.read_bytes()
    assert not vectors.checkpoint(home.files, home.catalog)
    assert vectors.checkpoint(home.files, home.catalog, force=True)
    assert secret not in home.files.graph.read_bytes()
    assert isinstance(home.load(), HnswIndex)


def test_a_reader_far_behind_searches_exactly_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors.checkpoint(home.files, home.catalog)
    monkeypatch.setattr(vectors, "REPLAY_LIMIT", 30)
    index = home.load()
    assert isinstance(index, HnswIndex)
    home.put("third.md", 31)
    assert isinstance(home.load(), ExactIndex)
    followed = vectors.follow(index, home.files, home.catalog)
    assert isinstance(followed, ExactIndex)
    home.compare(followed)
    # Where the writer has saved in the meantime, the new checkpoint is taken.
    vectors.checkpoint(home.files, home.catalog, force=True)
    followed = vectors.follow(index, home.files, home.catalog)
    assert isinstance(followed, HnswIndex)
    home.compare(followed)


def test_following_is_free_where_nothing_happened_and_right_where_something_did(
    home: Home,
) -> None:
    vectors.checkpoint(home.files, home.catalog)
    for index in (home.load(), ExactIndex(*home.catalog.matrix(), home.catalog.last_change())):
        assert vectors.follow(index, home.files, home.catalog) is index
        home.put(f"{type(index).__name__}.md", 9)
        home.put("second.md", 90 if isinstance(index, HnswIndex) else 80)
        assert vectors.follow(index, home.files, home.catalog) is index
        home.compare(index)


def test_following_gives_up_a_worn_graph(home: Home) -> None:
    vectors.checkpoint(home.files, home.catalog)
    index = home.load()
    home.catalog.remove([note_id("notes", "second.md")])
    followed = vectors.follow(index, home.files, home.catalog)
    assert isinstance(followed, ExactIndex)
    home.compare(followed)


def test_a_stale_writer_cannot_take_passages_away(home: Home, tmp_path: Path) -> None:
    stale = vectors.build(home.catalog)
    home.put("third.md", 50)
    vectors.checkpoint(home.files, home.catalog)
    vectors.save_checkpoint(stale, home.files, home.catalog.id)
    index = home.load()
    assert isinstance(index, HnswIndex)
    assert index.live == 350


def test_a_graph_that_loses_passages_is_not_published(home: Home) -> None:
    vectors.checkpoint(home.files, home.catalog)
    owner = note_id("notes", "crowd.md")
    crowd = indexed("crowd.md", texts("crowd", 500))
    same = vector_of("topic0 the same for all")
    home.catalog.replace(
        [IndexedNote(crowd.note, "", [(passage, same) for passage, _ in crowd.passages])]
    )
    for number in range(30):
        home.put(f"after {number}.md", 10)
    vectors.checkpoint(home.files, home.catalog, force=True)
    assert not home.manifest()["sound"]
    assert not home.files.graph.exists()
    assert isinstance(vectors.load(home.files, home.catalog), ExactIndex)
    # It is not tried again at every commit, but it is when much has changed.
    assert not vectors.checkpoint(home.files, home.catalog)
    home.catalog.remove([owner])
    assert vectors.checkpoint(home.files, home.catalog)
    assert isinstance(home.load(), HnswIndex)


def test_without_hnswlib_nothing_is_written_and_the_answers_are_the_same(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors.checkpoint(home.files, home.catalog)
    before = home.files.graph.stat().st_mtime_ns
    monkeypatch.setattr(vectors, "hnswlib_problem", lambda: "ImportError: no")
    assert isinstance(home.load(), ExactIndex)
    assert not vectors.checkpoint(home.files, home.catalog, force=True)
    assert home.files.graph.stat().st_mtime_ns == before


# --- damage -------------------------------------------------------------------------------------


def cut(share: float) -> Callable[[Generation], None]:
    def damage(files: Generation) -> None:
        whole = files.graph.read_bytes()
        files.graph.write_bytes(whole[: int(len(whole) * share)])

    return damage


def flip(share: float) -> Callable[[Generation], None]:
    def damage(files: Generation) -> None:
        whole = bytearray(files.graph.read_bytes())
        at = int((len(whole) - 1) * share)
        whole[at] ^= 0xFF
        files.graph.write_bytes(whole)

    return damage


def count_in_header(files: Generation) -> None:
    whole = bytearray(files.graph.read_bytes())
    whole[16:24] = (10**6).to_bytes(8, "little")  # offset, capacity, then the count of elements
    files.graph.write_bytes(whole)


def longer(files: Generation) -> None:
    with files.graph.open("ab") as file:
        file.write(b"\0" * 8)


def rewrite(**values: object) -> Callable[[Generation], None]:
    def damage(files: Generation) -> None:
        manifest = json.loads(files.manifest.read_bytes())
        files.manifest.write_text(json.dumps(manifest | values))

    return damage


def text(content: str) -> Callable[[Generation], object]:
    return lambda files: files.manifest.write_text(content)


DAMAGES: dict[str, Callable[[Generation], object]] = {
    **{f"cut at {share:.0%}": cut(share) for share in (0, 0.25, 0.53, 0.99)},
    **{f"flip at {share:.0%}": flip(share) for share in (0, 0.002, 0.25, 0.5, 0.75, 1)},
    "count in header": count_in_header,
    "longer": longer,
    "no graph": lambda files: files.graph.unlink(),
    "no manifest": lambda files: files.manifest.unlink(),
    "manifest empty": text(""),
    "manifest cut": text('{"format": 1, "libr'),
    "manifest list": text("[1, 2]"),
    "manifest other keys": text('{"format": 1}'),
    "manifest not utf-8": lambda files: files.manifest.write_bytes(b"\xff\xfe{}"),
    "another format": rewrite(format=99),
    "another library": rewrite(library="hnswlib 0.0"),
    "another catalog": rewrite(store="0" * 16),
    "another space": rewrite(space="l2"),
    "another dim": rewrite(dim=48),
    "another size": rewrite(bytes=1),
    "another hash": rewrite(sha256="0" * 64),
    "hash no text": rewrite(sha256=None),
    "from the future": rewrite(change_no=10**6),
    "change no number": rewrite(change_no="300"),
    "one deleted too many": rewrite(deleted=[5]),
    "one deleted and counted": rewrite(deleted=[5], live=299),
    "deleted no list": rewrite(deleted=7),
    "deleted no numbers": rewrite(deleted=["a"]),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Damage a checkpoint in every way and load each in one child, which a crash would end."""
    base = tmp_path_factory.mktemp("damages")
    whole = home_at(base / "whole")
    vectors.checkpoint(whole.files, whole.catalog)
    whole.catalog.close()
    for number, damage in enumerate(DAMAGES.values()):
        folder = base / str(number)
        folder.mkdir()
        for file in whole.files.folder.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        damage(Generation("", folder))
    done = subprocess.run(
        [sys.executable, __file__, str(base), str(len(DAMAGES))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"the child died: {done.returncode} {done.stderr}"
    return dict(zip(DAMAGES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_ignored_and_then_mended(
    outcomes: dict[str, str], name: str
) -> None:
    loaded, mended = outcomes[name].split()
    assert loaded == "ExactIndex"
    assert mended == "HnswIndex"


def load_damaged(base: Path, count: int) -> None:
    """Print, for each damaged home, what a reader loads, and what after the writer's next turn."""
    vectors.CHECKPOINT_AFTER = 1
    for number in range(count):
        files = Generation("", base / str(number))
        with Catalog.open(files.catalog, writable=True) as catalog:
            home = Home(files, catalog)
            before = type(home.load()).__name__
            home.put("more.md", 3)
            vectors.checkpoint(files, catalog)
            after = type(home.load()).__name__
        sys.stdout.write(f"{before} {after}\n")


def test_a_checkpoint_of_another_generation_is_not_taken(home: Home, tmp_path: Path) -> None:
    other = home_at(tmp_path / "g2")
    vectors.checkpoint(home.files, home.catalog)
    vectors.checkpoint(other.files, other.catalog)
    for pair in (["vectors.json"], ["vectors.hnsw"], ["vectors.json", "vectors.hnsw"]):
        for name in pair:
            (home.files.folder / name).write_bytes((other.files.folder / name).read_bytes())
        if pair != ["vectors.hnsw"]:
            assert isinstance(home.load(), ExactIndex)
        vectors.checkpoint(home.files, home.catalog, force=True)
    other.catalog.close()


def test_a_graph_of_other_vectors_under_the_same_labels_is_not_taken(home: Home) -> None:
    labels = home.catalog.live_labels()
    wrong = HnswIndex(DIM, home.catalog.last_change())
    shifted: Matrix = np.roll(home.catalog.matrix()[1], 1, axis=0)
    wrong.add(labels, shifted)
    vectors.save_checkpoint(wrong, home.files, home.catalog.id)
    assert isinstance(home.load(), ExactIndex)


def test_a_catalog_that_went_back_in_time_is_not_followed(home: Home) -> None:
    index = vectors.build(home.catalog)
    index.change_no += 5
    vectors.save_checkpoint(index, home.files, home.catalog.id)
    assert isinstance(home.load(), ExactIndex)
    assert vectors.checkpoint(home.files, home.catalog)
    assert isinstance(home.load(), HnswIndex)


# --- publication, step by step ------------------------------------------------------------------


def test_a_writer_that_dies_at_any_step_leaves_an_index_that_is_right(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that reaches the disk is once the one where the writer dies."""

    class Killed(BaseException):
        pass

    calls: list[str] = []

    def deadly(owner: object, name: str, last: int) -> None:
        real = getattr(owner, name)

        def call(*args: object, **named: object) -> object:
            if len(calls) == last:
                raise Killed
            calls.append(name)
            return real(*args, **named)

        monkeypatch.setattr(owner, name, call)

    deaths = 0
    while True:
        vectors.checkpoint(home.files, home.catalog, force=True)
        home.put(f"note {deaths}.md", 5)
        index = vectors.build(home.catalog)
        calls.clear()
        for owner, name in ((os, "fsync"), (os, "replace"), (fsio, "sha256_file")):
            deadly(owner, name, deaths)
        try:
            vectors.save_checkpoint(index, home.files, home.catalog.id)
        except Killed:
            deaths += 1
        else:
            break
        finally:
            monkeypatch.undo()
        home.load()
        assert not [file for file in home.files.folder.iterdir() if file.suffix == ".tmp"]
    assert calls == ["fsync", "sha256_file", "replace", "fsync", "fsync", "replace", "fsync"]
    assert deaths == len(calls)


def test_between_graph_and_manifest_the_pair_is_ignored(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors.checkpoint(home.files, home.catalog)
    home.put("third.md", 30)

    def die(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fsio, "write_atomic", die)
    with pytest.raises(KeyboardInterrupt):
        vectors.checkpoint(home.files, home.catalog, force=True)
    monkeypatch.undo()
    assert isinstance(home.load(), ExactIndex)
    assert vectors.checkpoint(home.files, home.catalog)
    assert isinstance(home.load(), HnswIndex)


def test_a_publication_in_the_middle_of_a_load_is_noticed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors.checkpoint(home.files, home.catalog)
    restore = HnswIndex.restore
    turns: list[int] = []

    def publish_first(*args: object) -> HnswIndex:
        turns.append(1)
        if len(turns) == 1:
            home.put("second.md", 100, "rewritten")
            vectors.save_checkpoint(vectors.build(home.catalog), home.files, home.catalog.id)
        return restore(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(HnswIndex, "restore", publish_first)
    index = home.load()
    assert isinstance(index, HnswIndex)
    assert index.change_no == 500
    assert len(turns) == 2


def test_a_graph_that_hnswlib_refuses_is_ignored(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors.checkpoint(home.files, home.catalog)

    def refuse(*_args: object) -> None:
        raise RuntimeError("Index seems to be corrupted or unsupported")

    monkeypatch.setattr(HnswIndex, "restore", refuse)
    assert isinstance(home.load(), ExactIndex)


if __name__ == "__main__":
    load_damaged(Path(sys.argv[1]), int(sys.argv[2]))
