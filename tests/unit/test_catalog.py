"""The catalog: replace, follow, full text, names, damage."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_rag import catalog as catalog_module
from prompt_rag.catalog import Catalog, IndexedNote, SourceCounts, body_hash
from prompt_rag.database import Database, storable
from prompt_rag.domain import (
    EmbedderIdentity,
    IndexDamaged,
    IndexIncompatible,
    IndexMissing,
    Note,
    Passage,
    PromptRagError,
    WriterBusy,
    note_id,
)

if TYPE_CHECKING:
    from prompt_rag.domain import Vector

IDENTITY = EmbedderIdentity("fake", "f" * 64, 384, True, "", "", 256)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def vector_of(text: str) -> Vector:
    """Return a unit vector that is a function of the text alone."""
    seed = int.from_bytes(sha256(text.encode("utf-8", "replace")).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(IDENTITY.dim).astype(np.float32)
    return vector / np.linalg.norm(vector)


def indexed(
    key: str,
    *texts: str,
    source: str = "notes",
    title: str = "Title",
    tags: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    kind: str = "section",
    headings: tuple[str, ...] = (),
    fingerprint: str = "fp",
    uri: str = "",
) -> IndexedNote:
    note = Note(
        source=source,
        key=key,
        title=title,
        text="\n\n".join(texts),
        blocks=(),
        modified_at=NOON,
        created_at=None,
        tags=tags,
        uri=uri or f"file:///home/me/notes/{key}",
        aliases=aliases,
        fingerprint=fingerprint,
    )
    owner = note_id(source, key)
    passages = [
        Passage(
            id=f"{owner}:{at}",
            note_id=owner,
            ordinal=at,
            kind="tldr" if kind == "tldr" and at == 0 else "section",
            heading_path=headings,
            text=text,
            text_hash=sha256(f"{title}\n{text}".encode("utf-8", "replace")).hexdigest(),
        )
        for at, text in enumerate(texts)
    ]
    return IndexedNote(note, f"hash of {key}", [(each, vector_of(each.text)) for each in passages])


def labels_of(catalog: Catalog, key: str, source: str = "notes") -> dict[str, int]:
    """Return label by text for one note."""
    owner = note_id(source, key)
    found = catalog.passages(catalog.live_labels().tolist())
    return {
        passage.text: label for label, (passage, _) in found.items() if passage.note_id == owner
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    with Catalog.create(path, IDENTITY, "1") as made:
        yield made
        assert made.check() == []


# --- create and open ----------------------------------------------------------------------------


def test_a_new_catalog_is_empty_and_valid(catalog: Catalog) -> None:
    assert catalog.check() == []
    assert (catalog.live(), catalog.last_change(), catalog.sources()) == (0, 0, [])
    assert catalog.counts() == []
    assert catalog.full_text("anything", 10) == []
    labels, matrix = catalog.matrix()
    assert labels.shape == (0,)
    assert matrix.shape == (0, 384)
    assert catalog.dim == 384


def test_what_it_was_built_with_comes_back(path: Path) -> None:
    before = datetime.now(UTC)
    with Catalog.create(path, IDENTITY, "7") as made:
        number = made.id
    with Catalog.open(path, IDENTITY, chunker_version="7") as opened:
        assert opened.identity == IDENTITY
        assert opened.chunker_version == "7"
        assert opened.id == number
        assert before <= opened.created_at <= datetime.now(UTC)


def test_nobody_else_may_read_any_of_its_files(path: Path) -> None:
    old = os.umask(0)
    try:
        with Catalog.create(path, IDENTITY, "1") as made:
            made.replace([indexed("a.md", "text")])
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(
        ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"], 0o600
    )


def test_create_never_takes_over_a_file(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        Catalog.create(path, IDENTITY, "1")
    assert path.read_text() == "mine"


def test_create_closes_what_it_could_not_finish(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "_SCHEMA", "CREATE TABLE meta (name, value); nonsense;")
    with pytest.raises(IndexDamaged):
        Catalog.create(path, IDENTITY, "1")
    monkeypatch.setattr(catalog_module, "_SCHEMA", "CREATE TABLE other (name);")
    with pytest.raises(IndexDamaged):
        Catalog.create(path.with_name("two.sqlite"), IDENTITY, "1")


def test_open_without_a_file_is_a_missing_index(path: Path) -> None:
    with pytest.raises(IndexMissing) as caught:
        Catalog.open(path)
    assert caught.value.hint == "prompt-rag rebuild"
    assert not path.exists()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (EmbedderIdentity("other", "f" * 64, 384, True, "", "", 256), "name 'fake'"),
        (EmbedderIdentity("fake", "e" * 64, 384, True, "", "", 256), "fingerprint"),
        (EmbedderIdentity("fake", "f" * 64, 768, True, "", "", 256), "dim 384 instead of 768"),
        (EmbedderIdentity("fake", "f" * 64, 384, False, "", "", 256), "normalised"),
        (EmbedderIdentity("fake", "f" * 64, 384, True, "query: ", "", 256), "query_prefix"),
        (EmbedderIdentity("fake", "f" * 64, 384, True, "", "passage: ", 256), "passage_prefix"),
        (EmbedderIdentity("fake", "f" * 64, 384, True, "", "", 128), "max_tokens"),
    ],
)
def test_another_model_never_mixes(path: Path, other: EmbedderIdentity, named: str) -> None:
    Catalog.create(path, IDENTITY, "1").close()
    with pytest.raises(IndexIncompatible, match=named) as caught:
        Catalog.open(path, other)
    assert caught.value.hint == "prompt-rag rebuild"


def test_another_chunker_or_layout_is_incompatible(path: Path) -> None:
    Catalog.create(path, IDENTITY, "1").close()
    with pytest.raises(IndexIncompatible, match="chunker 1 instead of 2"):
        Catalog.open(path, IDENTITY, chunker_version="2")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = '999' WHERE name = 'schema'")
    with pytest.raises(IndexIncompatible, match="layout 999"):
        Catalog.open(path)


@pytest.mark.parametrize("content", [b"", b"junk" * 2000, b"SQLite format 3\0" + b"\0" * 4096])
@pytest.mark.parametrize("writable", [False, True])
def test_what_is_no_database_is_damaged(path: Path, content: bytes, writable: bool) -> None:
    path.write_bytes(content)
    with pytest.raises(IndexDamaged) as caught:
        Catalog.open(path, writable=writable)
    assert caught.value.hint == "prompt-rag rebuild"


def test_a_description_that_makes_no_sense_is_damage(path: Path) -> None:
    Catalog.create(path, IDENTITY, "1").close()
    for name, value in (
        ("identity", "not json"),
        ("identity", "{}"),
        ("created_at", "yesterday"),
    ):
        with closing(sqlite3.connect(path)) as db, db:
            old = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
            db.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
        with pytest.raises(IndexDamaged, match="makes no sense"):
            Catalog.open(path)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE meta SET value = ? WHERE name = ?", (old, name))
    Catalog.open(path).close()


def test_a_catalog_that_is_open_for_reading_cannot_write(path: Path) -> None:
    Catalog.create(path, IDENTITY, "1").close()
    with Catalog.open(path) as reader, pytest.raises(PromptRagError) as caught:
        reader.replace([indexed("a.md", "text")])
    assert not isinstance(caught.value, IndexDamaged)


def test_a_path_with_every_awkward_character_opens(tmp_path: Path) -> None:
    folder = tmp_path / "Max O'Neil $HOME 50% #1?mode=rw ü"
    folder.mkdir()
    path = folder / "catalog.sqlite"
    Catalog.create(path, IDENTITY, "1").close()
    with Catalog.open(path) as reader:
        assert reader.check() == []
    # A reader that closes last may leave SQLite's own two files, but nothing under another name.
    assert {each.name.partition("-")[0] for each in tmp_path.rglob("*.*")} == {"catalog.sqlite"}


def test_misuse_is_not_disguised_as_damage(path: Path) -> None:
    made = Catalog.create(path, IDENTITY, "1")
    made.close()
    with pytest.raises(sqlite3.ProgrammingError):
        made.live()


def test_threads_take_turns_only_where_that_was_asked_for(path: Path) -> None:
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed("a.md", "text")])
    outcomes: dict[bool, object] = {}

    def read(catalog: Catalog, key: bool) -> None:
        try:
            outcomes[key] = catalog.live()
        except sqlite3.ProgrammingError as exc:
            outcomes[key] = type(exc)

    for any_thread in (False, True):
        with Catalog.open(path, any_thread=any_thread) as reader:
            thread = threading.Thread(target=read, args=(reader, any_thread))
            thread.start()
            thread.join()
    assert outcomes == {False: sqlite3.ProgrammingError, True: 1}


# --- replace, touch, remove ---------------------------------------------------------------------


def test_what_goes_in_comes_out(catalog: Catalog) -> None:
    note = indexed(
        "a/b.md", "one", "two", tags=("work/rag", "x"), headings=("Intro", 'a "quoted" \\ one')
    )
    catalog.replace([note])
    owner = note_id("notes", "a/b.md")
    assert catalog.passages_of(owner) == [passage for passage, _ in note.passages]
    found = catalog.passages(catalog.live_labels().tolist())
    assert [passage for passage, _ in found.values()] == [passage for passage, _ in note.passages]
    head = next(iter(found.values()))[1]
    assert (head.id, head.source, head.key, head.title) == (owner, "notes", "a/b.md", "Title")
    assert (head.uri, head.modified_at, head.tags) == (note.note.uri, NOON, ("work/rag", "x"))
    labels, matrix = catalog.matrix()
    assert matrix.dtype == np.float32
    assert labels.dtype == np.int64
    assert np.array_equal(matrix, np.stack([vector for _, vector in note.passages]))
    assert catalog.fingerprints("notes") == {"a/b.md": "fp"}
    assert catalog.content_hashes("notes") == {"a/b.md": "hash of a/b.md"}
    assert catalog.fingerprints("other") == {}
    assert catalog.sources() == ["notes"]


def test_a_passage_of_the_same_text_keeps_label_and_vector_and_is_no_change(
    catalog: Catalog,
) -> None:
    catalog.replace([indexed("a.md", "one", "two", "three")])
    before = labels_of(catalog, "a.md")
    change = catalog.last_change()
    catalog.replace([indexed("a.md", "new first", "three", "one", tags=("t",))])
    after = labels_of(catalog, "a.md")
    assert after["one"] == before["one"]
    assert after["three"] == before["three"]
    assert after["new first"] not in before.values()
    changes = catalog.changes_after(change)
    assert changes.added_labels.tolist() == [after["new first"]]
    assert changes.removed_labels.tolist() == [before["two"]]
    assert np.array_equal(changes.added_vectors[0], vector_of("new first"))
    ordered = catalog.passages_of(note_id("notes", "a.md"))
    assert [(each.ordinal, each.text) for each in ordered] == [
        (0, "new first"),
        (1, "three"),
        (2, "one"),
    ]


def test_the_same_note_again_is_no_change(catalog: Catalog) -> None:
    catalog.replace([indexed("a.md", "one", "one", "two")])
    change = catalog.last_change()
    catalog.replace([indexed("a.md", "one", "one", "two")])
    assert catalog.last_change() == change
    assert catalog.live() == 3


def test_a_label_is_never_used_twice(catalog: Catalog) -> None:
    used: set[int] = set()
    for turn in range(5):
        catalog.replace([indexed("a.md", f"text {turn}")])
        used.update(catalog.live_labels().tolist())
        catalog.remove([note_id("notes", "a.md")])
        assert catalog.live() == 0
    assert len(used) == 5


def test_a_batch_is_one_transaction(catalog: Catalog, path: Path) -> None:
    catalog.replace([indexed("a.md", "one")])
    good, bad = indexed("b.md", "two"), indexed("c.md", "three")
    broken = IndexedNote(bad.note, "", [(bad.passages[0][0], np.zeros(3, dtype=np.float32))])
    with pytest.raises(ValueError, match="vector of 384"):
        catalog.replace([good, broken])
    assert set(catalog.fingerprints("notes")) == {"a.md"}
    assert catalog.check() == []
    with Catalog.open(path) as reader:
        assert reader.live() == 1


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_vector_with_a_hole_is_refused(catalog: Catalog, number: float) -> None:
    note = indexed("a.md", "one")
    vector = note.passages[0][1].copy()
    vector[7] = number
    with pytest.raises(ValueError, match="finite"):
        catalog.replace([IndexedNote(note.note, "", [(note.passages[0][0], vector)])])


def test_a_passage_of_another_note_is_refused(catalog: Catalog) -> None:
    a, b = indexed("a.md", "one"), indexed("b.md", "two")
    with pytest.raises(ValueError, match="does not belong"):
        catalog.replace([IndexedNote(a.note, "", b.passages)])
    assert catalog.live() == 0


def test_an_iterable_that_reads_the_catalog_does_not_meet_the_lock(
    catalog: Catalog, path: Path
) -> None:
    def notes() -> Iterator[IndexedNote]:
        with Catalog.open(path, writable=True) as other:
            other.replace([indexed("other.md", "from elsewhere")])
        yield indexed("a.md", "one")

    catalog.replace(notes())
    assert set(catalog.fingerprints("notes")) == {"a.md", "other.md"}


def test_a_note_without_passages_is_known_all_the_same(catalog: Catalog) -> None:
    catalog.replace([indexed("empty.md")])
    assert catalog.fingerprints("notes") == {"empty.md": "fp"}
    assert catalog.passages_of(note_id("notes", "empty.md")) == []


def test_touch_takes_over_what_can_change_without_the_content(catalog: Catalog) -> None:
    catalog.replace([indexed("a.md", "one")])
    change = catalog.last_change()
    moved = indexed("a.md", "one", fingerprint="later", uri="file:///elsewhere/a.md").note
    catalog.touch([moved, indexed("unknown.md", fingerprint="x").note])
    assert catalog.fingerprints("notes") == {"a.md": "later"}
    assert catalog.find_notes("a.md")[0].uri == "file:///elsewhere/a.md"
    assert catalog.last_change() == change


def test_instants_are_kept_in_utc(catalog: Catalog) -> None:
    east = datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=9)))
    note = indexed("a.md", "one")
    changed = replace(note.note, modified_at=east)
    catalog.replace([IndexedNote(changed, "", note.passages)])
    found = catalog.find_notes("a.md")[0].modified_at
    assert found == east
    assert found is not None
    assert found.utcoffset() == timedelta(0)


def test_remove_takes_everything_of_a_note(catalog: Catalog) -> None:
    catalog.replace([indexed("a.md", "apple"), indexed("b.md", "banana", tags=("t",))])
    change = catalog.last_change()
    label = labels_of(catalog, "b.md")["banana"]
    assert catalog.remove([note_id("notes", "b.md"), "unknown"]) == 1
    assert catalog.changes_after(change).removed_labels.tolist() == [label]
    assert catalog.full_text("banana", 5) == []
    assert catalog.labels_where(["t"]).tolist() == []
    assert catalog.passages([label]) == {}
    assert catalog.live() == 1


def test_a_forgotten_note_stays_out_and_leaves_no_trace(path: Path) -> None:
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed("a.md", "the quokkazebra word"), indexed("b.md", "other")])
        assert made.full_text("quokkazebra", 5)
        made.forget([note_id("notes", "a.md"), "not here"])
        assert made.forgotten() == {note_id("notes", "a.md"), "not here"}
        made.replace([indexed("a.md", "again"), indexed("c.md", "third")])
        assert set(made.fingerprints("notes")) == {"b.md", "c.md"}
        made.forget([note_id("notes", "a.md")])
        assert len(made.forgotten()) == 2
        assert made.check() == []
        for file in path.parent.iterdir():
            assert b"quokkazebr" not in file.read_bytes(), file.name


def test_vectors_are_found_by_the_text_that_made_them(catalog: Catalog) -> None:
    note = indexed("a.md", "one", "two")
    catalog.replace([note, indexed("b.md", "one")])
    hashes = [passage.text_hash for passage, _ in note.passages]
    found = catalog.vectors_by_hash([*hashes, "unknown", "\ud800"])
    assert set(found) == set(hashes)
    assert np.array_equal(found[hashes[1]], vector_of("two"))


def test_notes_move_to_another_catalog_with_all_they_have(catalog: Catalog, tmp_path: Path) -> None:
    notes = [
        indexed("a.md", "one", "two", tags=("t/u",), aliases=("Al",), headings=("H",)),
        indexed("b.md"),
        indexed("bear:1", "three", source="bear", kind="tldr"),
    ]
    catalog.replace(notes)
    owners = [note_id(each.note.source, each.note.key) for each in notes]
    moved = catalog.stored([*owners, "unknown"])
    assert [each.note.key for each in moved] == ["bear:1", "a.md", "b.md"]
    assert moved[1].note == replace(notes[0].note, text="")
    assert [passage for passage, _ in moved[1].passages] == [each for each, _ in notes[0].passages]
    with Catalog.create(tmp_path / "other.sqlite", IDENTITY, "1") as other:
        other.replace(moved)
        assert [each.note for each in other.stored(owners)] == [each.note for each in moved]
        assert other.content_hashes("notes") == catalog.content_hashes("notes")
        assert other.full_text("al", 3)
        texts = [passage.text_hash for each in notes for passage, _ in each.passages]
        mine, theirs = catalog.vectors_by_hash(texts), other.vectors_by_hash(texts)
        assert len(mine) == 3
        assert all(np.array_equal(mine[each], theirs[each]) for each in texts)


def test_the_vector_of_a_note_is_the_mean_of_its_passages(catalog: Catalog) -> None:
    catalog.replace([indexed("a.md", "one", "two"), indexed("b.md"), indexed("c.md", "three")])
    a, b, c = (note_id("notes", key) for key in ("a.md", "b.md", "c.md"))
    found = catalog.note_vectors([a, b, c, "unknown"])
    assert set(found) == {a, c}
    assert found[a] == pytest.approx((vector_of("one") + vector_of("two")) / 2, abs=1e-6)
    assert np.array_equal(found[c], vector_of("three"))
    assert found[a].dtype == np.float32


# --- following ----------------------------------------------------------------------------------


def test_changes_lead_from_any_number_to_the_present(catalog: Catalog) -> None:
    states: list[tuple[int, set[int]]] = [(0, set())]
    rng = np.random.default_rng(5)
    for turn in range(30):
        key = f"{rng.integers(6)}.md"
        if rng.random() < 0.3:
            catalog.remove([note_id("notes", key)])
        else:
            texts = [f"{turn} {at}" for at in range(rng.integers(4))]
            catalog.replace([indexed(key, "shared", *texts)])
        states.append((catalog.last_change(), set(catalog.live_labels().tolist())))
    for number, live in states:
        changes = catalog.changes_after(number)
        assert changes.upto == catalog.last_change()
        reached = (live - set(changes.removed_labels.tolist())) | set(changes.added_labels.tolist())
        assert reached == states[-1][1]
        assert np.array_equal(changes.added_vectors, catalog.matrix(changes.added_labels)[1])


def test_a_reader_notices_a_commit_and_follows(catalog: Catalog, path: Path) -> None:
    with Catalog.open(path, IDENTITY) as reader:
        revision = reader.revision()
        assert reader.revision() == revision
        catalog.replace([indexed("a.md", "one")])
        assert reader.revision() != revision
        revision = reader.revision()
        catalog.touch([indexed("a.md", fingerprint="new").note])
        assert reader.revision() != revision
        assert reader.changes_after(0).added_labels.tolist() == [1]


def test_a_snapshot_sees_one_commit_and_nests(catalog: Catalog, path: Path) -> None:
    with Catalog.open(path) as reader:
        with reader.snapshot():
            assert reader.live() == 0
            catalog.replace([indexed("a.md", "one")])
            with reader.snapshot():
                assert reader.live() == 0
            assert reader.last_change() == 0
        assert reader.live() == 1


def test_a_snapshot_ends_with_its_block_even_on_an_error(catalog: Catalog, path: Path) -> None:
    with Catalog.open(path) as reader:
        with suppress(KeyError), reader.snapshot():
            assert reader.live() == 0
            raise KeyError
        catalog.replace([indexed("a.md", "one")])
        assert reader.live() == 1


@pytest.mark.parametrize("holds_on", [False, True])
def test_a_reader_that_stays_does_not_let_the_log_grow(
    catalog: Catalog, path: Path, holds_on: bool
) -> None:
    """SQLite starts the log anew at 4 MiB unless somebody is in the middle of reading it."""
    log = path.with_name("catalog.sqlite-wal")
    with Catalog.open(path) as reader, reader.snapshot() if holds_on else nullcontext():
        for turn in range(60):
            catalog.replace(
                [indexed(f"{at}.md", *(f"{turn} {at} {n}" for n in range(5))) for at in range(5)]
            )
            reader.changes_after(max(0, reader.last_change() - 1))
            reader.full_text("text", 3)
            reader.passages([1, 2, 3])
        assert (log.stat().st_size > 6 << 20) == holds_on


def test_a_second_writer_waits_and_then_says_so(
    catalog: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prompt_rag.database._BUSY_SECONDS", 0.05)
    with Catalog.open(path, writable=True) as other, closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(WriterBusy):
            other.replace([indexed("a.md", "one")])
        with Catalog.open(path) as reader:  # a reader never waits
            assert reader.live() == 0
        db.rollback()
        other.replace([indexed("a.md", "one")])
    assert catalog.live() == 1


def test_a_matrix_of_some_labels_leaves_out_what_does_not_live(catalog: Catalog) -> None:
    catalog.replace([indexed("a.md", "one", "two", "three")])
    labels, matrix = catalog.matrix([3, 1, 99, 1])
    assert labels.tolist() == [1, 3]
    assert np.array_equal(matrix, np.stack([vector_of("one"), vector_of("three")]))
    assert catalog.matrix([])[1].shape == (0, 384)


# --- search -------------------------------------------------------------------------------------


def test_full_text_finds_stems_accents_titles_headings_aliases_and_tags(catalog: Catalog) -> None:
    catalog.replace(
        [
            indexed("1.md", "We were running the café", title="One"),
            indexed("2.md", "x", title="Ferret handbook"),
            indexed("3.md", "x", headings=("Installing wombats",)),
            indexed("4.md", "x", aliases=("Marmot",)),
            indexed("5.md", "x", tags=("zoo/lemur",)),
        ]
    )
    for query, label in (
        ("run", 1),
        ("CAFE", 1),
        ("cafe\u0301", 1),
        ("ferrets", 2),
        ("wombat install", 3),
        ("marmots", 4),
        ("lemur", 5),
    ):
        assert [found for found, _ in catalog.full_text(query, 9)] == [label], query


def test_full_text_orders_by_bm25_and_stops_at_the_limit(catalog: Catalog) -> None:
    catalog.replace([indexed("a.md", "lock", "lock and many other words here", "redis lock")])
    found = catalog.full_text("redis lock", 2)
    assert len(found) == 2
    assert found[0][0] == labels_of(catalog, "a.md")["redis lock"]
    assert found[0][1] < found[1][1] < 0
    assert catalog.full_text("redis lock", 0) == []
    assert catalog.full_text("redis lock", -1) == []


def test_full_text_follows_a_title_that_changes_without_its_passages(catalog: Catalog) -> None:
    note = indexed("a.md", "body")
    catalog.replace([note])
    renamed = indexed("a.md", "body", tags=("gecko",))
    catalog.replace([IndexedNote(renamed.note, "", note.passages)])
    assert catalog.full_text("gecko", 3)
    assert catalog.labels_where(["gecko"]).tolist() == [1]


HARD_QUERIES = [
    "",
    "   ",
    '"',
    '""" OR',
    "AND OR NOT NEAR",
    "NEAR(a b)",
    "title:body",
    "a* ^b {c} -d +e",
    "(((",
    "'; DROP TABLE notes; --",
    "\0",
    "\ud800 lone",
    "²",
    "_",
    "foo_bar config.js",
    "日本語のメモ",
    "👩‍👩‍👧",
    "word " * 50_000,
    " ".join(f"w{n}" for n in range(5_000)),
]


@pytest.mark.parametrize("query", HARD_QUERIES)
def test_no_query_is_a_syntax_error(catalog: Catalog, query: str) -> None:
    catalog.replace([indexed("a.md", "near body lone word foo bar")])
    assert isinstance(catalog.full_text(query, 5), list)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    folder = tmp_path_factory.mktemp("shared")
    with Catalog.create(folder / "catalog.sqlite", IDENTITY, "1") as made:
        made.replace([indexed("a.md", "some text with words")])
        yield made


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(), max_size=60))
def test_any_text_can_be_asked_for(shared: Catalog, query: str) -> None:
    assert all(label == 1 for label, _ in shared.full_text(query, 5))
    assert all(head.key == "a.md" for head in shared.find_notes(query))
    shared.labels_where([query], query)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.characters(), max_size=30), max_size=3),
    st.text(st.characters(), max_size=20),
    st.lists(st.text(st.characters(), max_size=8), max_size=3),
)
def test_any_text_can_be_stored(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], title: str, tags: list[str]
) -> None:
    path = tmp_path_factory.mktemp("any") / "catalog.sqlite"
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed("a.md", *texts, title=title, tags=tuple(tags), headings=(title,))])
        stored = [passage.text for passage in made.passages_of(note_id("notes", "a.md"))]
        assert stored == [storable(text) for text in texts]
        made.replace([indexed("a.md", *texts[1:], title=title)])
        assert made.check() == []


def test_what_cannot_be_stored_is_replaced_and_pairs_are_joined() -> None:
    assert storable("plain ü 👩") == "plain ü 👩"
    assert storable("a\0b") == "a\ufffdb"
    assert storable("a\ud800b\0") == "a\ufffdb\ufffd"
    assert storable("\ud83d\ude00") == "😀"


def test_tags_roll_up_and_sources_narrow(catalog: Catalog) -> None:
    catalog.replace(
        [
            indexed("1.md", "one", tags=("Work/Rag/Notes",)),
            indexed("2.md", "two", tags=("work",)),
            indexed("3.md", "three", tags=("workshop",)),
            indexed("4.md", "four", tags=("#Straße/",), source="bear"),
        ]
    )

    def find(*tags: str, source: str | None = None) -> list[int]:
        return catalog.labels_where(tags, source).tolist()

    assert find("work") == [1, 2]
    assert find("#WORK/rag") == [1]
    assert find("work/rag/notes/") == [1]
    assert find("rag") == []
    assert find("STRASSE") == [4]
    assert find("workshop", "straße") == [3, 4]
    assert find("workshop", "straße", source="bear") == [4]
    assert find(source="bear") == [4]
    assert find(source="none") == []
    assert find() == [1, 2, 3, 4]
    assert find("") == []


def test_the_same_text_in_two_notes_has_two_origins(catalog: Catalog) -> None:
    catalog.replace(
        [
            indexed("a.md", "The  same\ntext", "only here"),
            indexed("bear:1", "the same TEXT", source="bear"),
            indexed("c.md", "the same text", "the same text"),
        ]
    )
    found = catalog.origins([1, 2, 3, 99])
    assert {label: [head.key for head in heads] for label, heads in found.items()} == {
        1: ["bear:1", "c.md"],
        3: ["a.md", "c.md"],
    }
    assert body_hash("The  same\ntext") == body_hash(" the same TEXT ")
    assert body_hash("a b") != body_hash("ab")
    assert body_hash("\ud800") == body_hash("\ufffd")


def test_notes_answer_to_their_names(catalog: Catalog) -> None:
    catalog.replace(
        [
            indexed("work/plan.md", "x", title="The Plan"),
            indexed("home/plan.md", "x", title="Holiday", aliases=("Sommer",)),
            indexed("plan", "x", title="work/plan.md and more"),
            indexed("a b.md", "x", title="Café", uri="file:///home/me/notes/a%20b.md"),
            indexed("bear:AB-12", "x", title="Café", source="bear", uri="bear://x-callback?id=AB"),
            indexed(".hidden/notes.d/file", "x", title="Odd"),
        ]
    )

    def keys(text: str) -> list[str]:
        return [head.key for head in catalog.find_notes(text)]

    assert keys("work/plan.md") == ["work/plan.md"]
    assert keys("./work/plan.md") == ["work/plan.md"]
    assert keys(note_id("notes", "home/plan.md")) == ["home/plan.md"]
    assert keys("plan.md") == ["home/plan.md", "work/plan.md"]
    assert keys("work/plan") == ["work/plan.md"]
    assert keys("plan") == ["plan"]
    assert keys("the plan") == ["work/plan.md"]
    assert keys("SOMMER") == ["home/plan.md"]
    assert keys("cafe\u0301") == ["bear:AB-12", "a b.md"]
    assert keys("bear:AB-12") == ["bear:AB-12"]
    assert keys("bear://x-callback?id=AB") == ["bear:AB-12"]
    assert keys("/home/me/notes/a b.md") == ["a b.md"]
    assert keys("/another/mount/work/plan.md") == ["work/plan.md"]
    assert keys("notes.d/file") == [".hidden/notes.d/file"]
    assert keys("an.md") == []
    assert keys("nothing") == []
    assert keys("  ") == []


def test_counts_tell_notes_passages_and_tldrs_by_source(catalog: Catalog) -> None:
    catalog.replace(
        [
            indexed("1.md", "tldr", "one", kind="tldr"),
            indexed("2.md", "one", "two"),
            indexed("3.md"),
            indexed("bear:1", "tldr", source="bear", kind="tldr"),
        ]
    )
    assert catalog.counts() == [
        SourceCounts("bear", 1, 1, 1, 0),
        SourceCounts("notes", 3, 4, 1, 2),
    ]


# --- damage -------------------------------------------------------------------------------------

DAMAGES = [
    ("DELETE FROM notes WHERE key = 'a.md'", "a passage belongs to no note"),
    ("INSERT INTO note_tags VALUES ('t', 'nobody')", "a tag belongs to no note"),
    ("DELETE FROM words_docsize WHERE id = 1", "a passage is not in the full-text index"),
    ("INSERT INTO words_docsize VALUES (99, x'00')", "holds a passage that is gone"),
    ("DELETE FROM changes WHERE label = 1", "the change log and the passages disagree"),
    ("INSERT INTO changes (label, added) VALUES (77, 1)", "the change log and the passages"),
    ("INSERT INTO forgotten SELECT id, '' FROM notes", "a forgotten note is still there"),
    ("UPDATE passages SET vector = x'0011' WHERE label = 1", "a vector has the wrong length"),
    ("UPDATE passages SET vector = 'text' WHERE label = 1", "a vector has the wrong length"),
    ("UPDATE passages SET text = 'other words' WHERE label = 1", "malformed"),
]


@pytest.mark.parametrize(("statement", "problem"), DAMAGES)
def test_check_names_what_is_wrong(path: Path, statement: str, problem: str) -> None:
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed("a.md", "one", "two")])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    with Catalog.open(path, writable=True) as opened:
        assert any(problem in each for each in opened.check()), opened.check()


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE passages SET vector = x'00'", lambda catalog: catalog.matrix()),
        ("UPDATE passages SET vector = 7", lambda catalog: catalog.changes_after(0)),
        ("UPDATE notes SET tags = '[[['", lambda catalog: catalog.passages([1])),
        ("UPDATE notes SET modified_at = 'then'", lambda catalog: catalog.find_notes("a.md")),
        ("UPDATE passages SET heading_path = 5", lambda catalog: catalog.passages([1])),
        ("UPDATE passages SET text = CAST(x'ff' AS TEXT)", lambda catalog: catalog.passages([1])),
        ("DROP TABLE words", lambda catalog: catalog.full_text("one", 3)),
    ],
)
def test_a_row_that_makes_no_sense_is_damage(path: Path, statement: str, read: object) -> None:
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed("a.md", "one", "two")])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    with Catalog.open(path) as opened, pytest.raises(IndexDamaged):
        read(opened)  # type: ignore[operator]  # a lambda of the list above


def test_pages_that_are_overwritten_are_damage_and_never_another_error(path: Path) -> None:
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed(f"{n}.md", *(f"{n} {at}" for at in range(5))) for n in range(60)])
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    noticed = 0
    for _ in range(40):
        torn = bytearray(whole)
        if rng.random() < 0.3:
            del torn[int(rng.integers(200, len(torn))) :]
        else:
            start = int(rng.integers(0, len(torn) - 4096))
            torn[start : start + 4096] = rng.bytes(4096)
        path.write_bytes(torn)
        for extra in path.parent.glob("catalog.sqlite-*"):
            extra.unlink()
        try:
            with Catalog.open(path) as opened:
                noticed += bool(opened.check())
                opened.matrix()
                opened.passages(range(1, 301))
                opened.full_text("one", 10)
                opened.counts()
        except (IndexDamaged, IndexIncompatible):
            noticed += 1
    assert noticed >= 30


def test_a_folder_in_place_of_the_file_is_a_missing_index(path: Path) -> None:
    path.mkdir()
    with pytest.raises(IndexMissing):
        Catalog.open(path)


def test_a_full_disk_is_not_called_damage_and_changes_nothing(path: Path) -> None:
    with Catalog.create(path, IDENTITY, "1") as made:
        made.replace([indexed("a.md", "one")])
        made._db.rows("PRAGMA max_page_count = 40")
        with pytest.raises(PromptRagError, match="full") as caught:
            made.replace([indexed("b.md", *(f"text {n}" for n in range(500)))])
        assert not isinstance(caught.value, IndexDamaged)
        assert set(made.fingerprints("notes")) == {"a.md"}
        assert made.check() == []


def test_a_connection_that_cannot_be_prepared_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Catalog.create(path, IDENTITY, "1").close()
    closed = []
    monkeypatch.setattr(Database, "_prepare", lambda _: (_ for _ in ()).throw(IndexDamaged("no")))
    monkeypatch.setattr(Database, "close", lambda self: closed.append(self._connection.close()))
    with pytest.raises(IndexDamaged):
        Database(path)
    assert closed == [None]
