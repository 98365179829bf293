"""What a reader keeps in mind between queries: the same answers, never those of an old commit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prompt_rag import catalog as catalogs
from prompt_rag.catalog import Catalog, IndexedNote
from prompt_rag.domain import EmbedderIdentity, Note, Passage, note_id

IDENTITY = EmbedderIdentity("tiny", "f", 4, True, "", "", 256)


def indexed(key: str, *texts: str, title: str = "A title") -> IndexedNote:
    owner = note_id("s", key)
    note = Note("s", key, title, "", (), None, None, (), f"file:///{key}")
    passages = [
        (
            Passage(f"{owner}-{at}", owner, at, "section", (), text, f"{key} {text}"),
            np.array([1.0, at, len(text), 0.5], dtype=np.float32),
        )
        for at, text in enumerate(texts)
    ]
    return IndexedNote(note, key, passages)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.sqlite"
    with Catalog.create(path, IDENTITY, "1") as catalog:
        catalog.replace(
            [
                indexed("a.md", "redis locks expire", "a second passage"),
                indexed("b.md", "postgres vacuum and locks", title="Vacuum"),
                indexed("c.md"),
            ]
        )
    return path


def read(catalog: Catalog) -> list[object]:
    """Everything that a query reads, in a form that compares."""
    ids = [note_id("s", key) for key in ("a.md", "b.md", "c.md")]
    vectors = {**catalog.note_vectors(ids), **catalog.vectors_of([1, 2, 3, 99])}
    return [
        catalog.passages([1, 2, 3, 99]),
        catalog.origins([1, 2, 3, 99]),
        catalog.notes_with(["lock", "vacuum", "nothing"]),
        catalog.notes(),
        catalog.terms_shared(ids, ["lock", "vacuum", "nothing"]),
        {key: vector.tolist() for key, vector in vectors.items()},
    ]


def test_a_second_reading_in_the_same_state_is_the_first(path: Path) -> None:
    with Catalog.open(path) as catalog:
        plain = read(catalog)
        for _ in range(3):
            with catalog.snapshot():
                assert read(catalog) == plain


def test_nothing_is_read_twice_before_the_next_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Catalog.open(path) as catalog:
        with catalog.snapshot():
            before = read(catalog)
        asked: list[str] = []
        rows = catalog._db.rows
        monkeypatch.setattr(catalog._db, "rows", lambda q, v=(): asked.append(q) or rows(q, v))
        with catalog.snapshot():
            assert read(catalog) == before
        # Label 99 does not live, so passages and vectors are asked for it again.
        assert not [q for q in asked if "note_facts" in q or "FROM terms" in q or "count(" in q]
        assert sum("FROM" in query for query in asked) == 2


def test_a_commit_of_another_connection_is_seen(path: Path) -> None:
    with Catalog.open(path) as reader, Catalog.open(path, writable=True) as writer:
        with reader.snapshot():
            read(reader)
        writer.replace([indexed("a.md", "quokkas sleep", title="Animals")])
        with reader.snapshot():
            seen = read(reader)
        assert seen == read(writer)
        assert reader.terms_shared([note_id("s", "a.md")], ["lock", "quokka"]) == {
            note_id("s", "a.md"): frozenset({"quokka"})
        }


def test_a_commit_in_the_middle_of_a_snapshot_is_seen_after_it(path: Path) -> None:
    with Catalog.open(path) as reader, Catalog.open(path, writable=True) as writer:
        with reader.snapshot():
            before = read(reader)
            writer.remove([note_id("s", "b.md")])
            assert read(reader) == before
        with reader.snapshot():
            assert reader.notes() == 2
            assert 3 not in reader.passages([1, 2, 3])


def test_a_writer_sees_its_own_changes_in_a_snapshot(path: Path) -> None:
    with Catalog.open(path, writable=True) as writer:
        with writer.snapshot():
            assert writer.notes() == 3
        writer.remove([note_id("s", "b.md")])
        with writer.snapshot():
            assert writer.notes() == 2


def test_what_is_kept_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "MOST_KEPT", 2)
    with Catalog.open(path) as catalog:
        plain = read(catalog)
        for _ in range(2):
            with catalog.snapshot():
                assert read(catalog) == plain
        assert all(len(kept) <= 2 for kept in catalog._kept.values())


def test_shared_terms_are_those_of_the_note(path: Path) -> None:
    with Catalog.open(path) as catalog:
        ids = [note_id("s", key) for key in ("a.md", "b.md", "c.md")]
        every = catalog.terms_of(ids)
        wanted = [*sorted(frozenset().union(*every.values())), "absent"]
        assert catalog.terms_shared(ids, wanted) == every
        assert catalog.terms_shared([], wanted) == {}
        assert catalog.terms_shared(ids, []) == {}


def test_the_mean_of_a_note_follows_its_passages(path: Path) -> None:
    with Catalog.open(path, writable=True) as catalog:
        owner = note_id("s", "a.md")
        catalog.replace([indexed("a.md", "one", "three", "fiver")])
        vectors = list(catalog.vectors_of(p for p in catalog.live_labels().tolist() if p > 3))
        rows = [catalog.vectors_of([label])[label] for label in vectors]
        assert np.allclose(catalog.note_vectors([owner])[owner], np.mean(rows, axis=0))
        assert note_id("s", "c.md") not in catalog.note_vectors([note_id("s", "c.md")])
        assert not catalog.check()
