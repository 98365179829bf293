"""The catalog: the SQLite database that holds notes, passages, vectors, full text and changes.

It is the truth about the index; graphs over its vectors are caches of it. One writer at a time
(whoever holds the writer's lock) and any number of readers, in WAL mode: a reader never waits for
the writer, and between two calls it holds no transaction, so the log does not grow behind it.

A catalog is used by one thread at a time. Text is stored as valid UTF-8 without NUL: what a note
holds beyond that is replaced, never refused.

Needs SQLite 3.38 or newer, for FTS5 and built-in JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import unicodedata
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote
from zlib import crc32

import numpy as np

from prompt_rag import lexical
from prompt_rag.database import REBUILD, Database, storable
from prompt_rag.domain import (
    Changes,
    EmbedderIdentity,
    IndexDamaged,
    IndexIncompatible,
    Note,
    NoteHead,
    Passage,
    note_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from prompt_rag.database import Row, Values
    from prompt_rag.domain import Matrix, Vector

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

SCHEMA_VERSION = 2

MAX_TERMS = 256
"""Most words of a query the full-text search looks for: as many as the embedder reads tokens, so
that both searches see the same part of a pasted page."""

MOST_KEPT = 2048
"""Most passages, notes and words a reader keeps in mind: at 384 dimensions under 20 MB in all. One
person's prompts circle around fewer, and what is kept spares a query three quarters of its time."""

# Stored little-endian, so that a home folder can move to another machine.
_FLOAT = np.dtype("<f4")
_HASH = np.dtype("<u4")

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE notes (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    key TEXT NOT NULL,
    title TEXT NOT NULL,
    uri TEXT NOT NULL,
    modified_at TEXT,
    created_at TEXT,
    tags TEXT NOT NULL,
    aliases TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    UNIQUE (source, key)
) WITHOUT ROWID;

-- The different terms of each note, in a table of their own because only a few rows are read for a
-- query, and how many notes have each term.
CREATE TABLE note_terms (
    note_id TEXT PRIMARY KEY REFERENCES notes (id) ON DELETE CASCADE,
    terms TEXT NOT NULL
) WITHOUT ROWID;
-- What every query asks of its candidates: the mean of a note's vectors, and its terms as hashes.
-- With a rowid, because such rows fit into a page.
CREATE TABLE note_facts (
    note_id TEXT PRIMARY KEY REFERENCES notes (id) ON DELETE CASCADE,
    mean BLOB NOT NULL,
    term_hashes BLOB NOT NULL
);
CREATE TABLE terms (term TEXT PRIMARY KEY, notes INTEGER NOT NULL) WITHOUT ROWID;

-- Each tag with its ancestors, folded: work/rag is found under work too.
CREATE TABLE note_tags (
    tag TEXT NOT NULL,
    note_id TEXT NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, note_id)
) WITHOUT ROWID;
CREATE INDEX note_tags_note ON note_tags (note_id);

-- AUTOINCREMENT: a label is never used twice, so a graph can delete by mark. The vector stands
-- before the text, so that reading all vectors does not walk the pages a long text spills into.
CREATE TABLE passages (
    label INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    note_id TEXT NOT NULL REFERENCES notes (id),
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text_hash TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    vector BLOB NOT NULL,
    heading_path TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX passages_note ON passages (note_id, ordinal);
CREATE INDEX passages_text ON passages (text_hash);
CREATE INDEX passages_body ON passages (body_hash);

CREATE TABLE changes (
    change_no INTEGER PRIMARY KEY AUTOINCREMENT,
    label INTEGER NOT NULL,
    added INTEGER NOT NULL CHECK (added IN (0, 1))
);

CREATE TABLE forgotten (note_id TEXT PRIMARY KEY, forgotten_at TEXT NOT NULL) WITHOUT ROWID;

-- The columns of the records that leave this file, each list written once.
CREATE VIEW heads AS SELECT id, source, key, title, uri, modified_at, tags FROM notes;
CREATE VIEW bodies AS
SELECT label, id, note_id, ordinal, kind, heading_path, text, text_hash FROM passages;

-- The full-text index keeps no copy of the text; it reads it through this view.
CREATE VIEW passage_words AS
SELECT p.label AS label, p.note_id AS note_id, n.title AS title, n.aliases AS aliases,
       p.heading_path AS headings, p.text AS body, n.tags AS tags
FROM passages p JOIN notes n ON n.id = p.note_id;

CREATE VIRTUAL TABLE words USING fts5 (
    title, aliases, headings, body, tags,
    content = 'passage_words', content_rowid = 'label',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
"""

_ADD_WORDS = """
INSERT INTO words (rowid, title, aliases, headings, body, tags)
SELECT label, title, aliases, headings, body, tags FROM passage_words WHERE note_id = ?
"""
# FTS5 deletes by being told what it had indexed, so this runs before anything else changes.
_DROP_WORDS = """
INSERT INTO words (words, rowid, title, aliases, headings, body, tags)
SELECT 'delete', label, title, aliases, headings, body, tags FROM passage_words WHERE note_id = ?
"""
_PUT_NOTE = """
INSERT INTO notes (id, source, key, title, uri, modified_at, created_at, tags, aliases,
                   fingerprint, content_hash)
VALUES (:id, :source, :key, :title, :uri, :modified_at, :created_at, :tags, :aliases,
        :fingerprint, :content_hash)
ON CONFLICT (id) DO UPDATE SET
    title = excluded.title, uri = excluded.uri, modified_at = excluded.modified_at,
    created_at = excluded.created_at, tags = excluded.tags, aliases = excluded.aliases,
    fingerprint = excluded.fingerprint, content_hash = excluded.content_hash
"""
_INSERT_PASSAGE = """
INSERT INTO passages (id, note_id, ordinal, kind, text_hash, body_hash, vector, heading_path, text)
VALUES (:id, :note_id, :ordinal, :kind, :text_hash, :body_hash, :vector, :heading_path, :text)
"""
_UPDATE_PASSAGE = """
UPDATE passages SET id = :id, ordinal = :ordinal, kind = :kind, body_hash = :body_hash,
                    heading_path = :heading_path, text = :text
WHERE label = :label
"""

# Each counts what must not be.
_CHECKS = (
    (
        "a passage belongs to no note",
        "SELECT count(*) FROM passages WHERE note_id NOT IN (SELECT id FROM notes)",
    ),
    (
        "a tag belongs to no note",
        "SELECT count(*) FROM note_tags WHERE note_id NOT IN (SELECT id FROM notes)",
    ),
    (
        "a passage is not in the full-text index",
        "SELECT count(*) FROM passages WHERE label NOT IN (SELECT id FROM words_docsize)",
    ),
    (
        "the full-text index holds a passage that is gone",
        "SELECT count(*) FROM words_docsize WHERE id NOT IN (SELECT label FROM passages)",
    ),
    (
        "the change log and the passages disagree",
        """
        SELECT count(*) FROM (
            SELECT label, sum(2 * added - 1) AS lives FROM changes GROUP BY label
            UNION ALL
            SELECT label, 0 FROM passages WHERE label NOT IN (SELECT label FROM changes)
        ) WHERE lives <> (label IN (SELECT label FROM passages))
        """,
    ),
    (
        "the count of a term is wrong",
        """
        SELECT abs((SELECT coalesce(sum(notes), 0) FROM terms) - (
            SELECT coalesce(sum(length(terms) - length(replace(terms, ' ', '')) + 1), 0)
            FROM note_terms))
        """,
    ),
    (
        "a note lacks its mean or its terms",
        "SELECT count(*) FROM notes WHERE id NOT IN (SELECT note_id FROM note_facts)",
    ),
    (
        "a forgotten note is still there",
        "SELECT count(*) FROM notes WHERE id IN (SELECT note_id FROM forgotten)",
    ),
    (
        "a vector has the wrong length",
        "SELECT count(*) FROM passages WHERE typeof(vector) <> 'blob' OR length(vector) <> :bytes",
    ),
)


@dataclass(frozen=True, slots=True)
class IndexedNote:
    """A note with what is stored for it.

    ``content_hash`` is the caller's: equal hashes mean that the note need not be indexed again.
    ``passages`` are in the note's order, each with its vector, ``(dim,)`` float32, finite.
    """

    note: Note
    content_hash: str
    passages: Sequence[tuple[Passage, Vector]]


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """What the catalog holds of one source."""

    source: str
    notes: int
    passages: int
    tldr_passages: int
    notes_without_tldr: int


def body_hash(text: str) -> str:
    """Return the sha256 (hex) of a passage's text without regard to case and white space.

    Passages of different notes that have it in common are one text with several origins.
    """
    return sha256(" ".join(storable(text).casefold().split()).encode()).hexdigest()


class Catalog:
    """One generation's database, open for reading or for writing; a context manager that closes.

    Make one with :meth:`create` or :meth:`open`. Every method raises :class:`IndexDamaged` where
    the database turns out not to be readable; methods that write raise :class:`WriterBusy` where
    another connection keeps it locked. One that raises has changed nothing.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._kept: dict[str, dict[Any, Any]] = {}
        self._kept_of = -1
        meta = {name: str(value) for name, value in self._db.rows("SELECT name, value FROM meta")}
        schema = meta.get("schema")
        if schema != str(SCHEMA_VERSION):
            raise IndexIncompatible(
                f"The index has layout {schema}, this version reads {SCHEMA_VERSION}", REBUILD
            )
        try:
            self.id = meta["id"]
            self.identity = EmbedderIdentity(**json.loads(meta["identity"]))
            self.chunker_version = meta["chunker"]
            self.created_at = datetime.fromisoformat(meta["created_at"])
        except (KeyError, TypeError, ValueError) as exc:
            raise database.damaged(f"its description makes no sense ({exc})") from exc

    @classmethod
    def create(cls, path: Path, identity: EmbedderIdentity, chunker_version: str) -> Catalog:
        """Make an empty catalog at ``path``, readable by nobody else, and open it for writing.

        Raises FileExistsError where there is a file, OSError where none can be made.
        """
        database = Database.create(path, _SCHEMA)
        try:
            database.run_many(
                "INSERT INTO meta VALUES (?, ?)",
                [
                    ("schema", str(SCHEMA_VERSION)),
                    ("id", os.urandom(8).hex()),
                    ("identity", json.dumps(asdict(identity))),
                    ("chunker", chunker_version),
                    ("created_at", datetime.now(UTC).isoformat()),
                ],
            )
            return cls(database)
        except BaseException:
            database.close()
            raise

    @classmethod
    def open(
        cls,
        path: Path,
        identity: EmbedderIdentity | None = None,
        *,
        chunker_version: str | None = None,
        writable: bool = False,
        any_thread: bool = False,
    ) -> Catalog:
        """Open the catalog at ``path``.

        ``identity`` and ``chunker_version`` are compared with what the catalog was built with; None
        accepts any. ``any_thread`` lets threads take turns, never share (the daemon opens in one
        thread and serves in another).

        Raises :class:`IndexMissing` where there is no file, :class:`IndexIncompatible` where
        layout, model or chunker differ, :class:`IndexDamaged` where it is not a catalog.
        """
        database = Database(path, writable=writable, any_thread=any_thread)
        try:
            catalog = cls(database)
            catalog._require(identity, chunker_version)
        except BaseException:
            database.close()
            raise
        return catalog

    def _require(self, identity: EmbedderIdentity | None, chunker_version: str | None) -> None:
        if identity is not None and identity != self.identity:
            wanted, found = asdict(identity), asdict(self.identity)
            differences = ", ".join(
                f"{name} {found[name]!r} instead of {wanted[name]!r}"
                for name in wanted
                if wanted[name] != found[name]
            )
            raise IndexIncompatible(
                f"The index was built with another model: {differences}", REBUILD
            )
        if chunker_version is not None and chunker_version != self.chunker_version:
            raise IndexIncompatible(
                f"The index was built with chunker {self.chunker_version}"
                f" instead of {chunker_version}",
                REBUILD,
            )

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- following -----------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """The number of dimensions of every vector here."""
        return self.identity.dim

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let every read in the block see the same commit. Keep the block short; it may nest.

        Where the catalog was opened for reading, what the queries of such blocks read of passages,
        notes and words is kept until another connection commits.
        """
        with self._db.snapshot():
            if not self._db.writable and self._kept_of != (revision := self.revision()):
                self._kept.clear()
                self._kept_of = revision
            yield

    def _recall(
        self, what: str, keys: Iterable[_Key], read: Callable[[list[_Key]], dict[_Key, _Value]]
    ) -> dict[_Key, _Value]:
        """Return what ``read`` returns for ``keys``, without reading again what is kept of it."""
        if self._db.writable or not self._db.inside():
            return read(list(keys))
        kept = self._kept.setdefault(what, {})
        wanted = list(keys)
        missing = [key for key in wanted if key not in kept]
        if missing:
            kept |= read(missing)
        found = {key: kept[key] for key in wanted if key in kept}
        for key in list(itertools.islice(kept, max(0, len(kept) - MOST_KEPT))):
            del kept[key]  # the one that has been here longest
        return found

    def revision(self) -> int:
        """Return a number that changes when *another* connection has committed anything.

        A few microseconds. Comparable only between calls on this object.
        """
        return int(self._db.one("PRAGMA data_version"))

    def last_change(self) -> int:
        """Return the number of the last change to the passages, 0 for none."""
        return int(self._db.one("SELECT coalesce(max(change_no), 0) FROM changes"))

    def changes_after(self, change_no: int) -> Changes:
        """Return what happened to the passages after ``change_no`` (0: everything that lives)."""
        with self.snapshot():
            removed = self._labels(
                "SELECT label FROM changes WHERE change_no > ? AND NOT added ORDER BY label",
                (change_no,),
            )
            labels, vectors = self._vectors(
                "FROM changes c JOIN passages p ON p.label = c.label"
                " WHERE c.change_no > ? AND c.added",
                (change_no,),
            )
            return Changes(self.last_change(), labels, vectors, removed)

    def live(self) -> int:
        """Return the number of passages."""
        return int(self._db.one("SELECT count(*) FROM passages"))

    def live_labels(self) -> NDArray[np.int64]:
        """Return the labels of all passages, rising, int64."""
        return self._labels("SELECT label FROM passages ORDER BY label")

    def matrix(self, labels: Iterable[int] | None = None) -> tuple[NDArray[np.int64], Matrix]:
        """Return labels (rising, int64) and their vectors, ``(n, dim)`` float32.

        None means every passage. Labels that do not live are left out.
        """
        if labels is None:
            return self._vectors("FROM passages p")
        return self._vectors(
            "FROM passages p WHERE p.label IN (SELECT value FROM json_each(?))",
            (_numbers(labels),),
        )

    # --- what a sync compares ------------------------------------------------------------------

    def sources(self) -> list[str]:
        """Return the names of the sources that have notes here, sorted."""
        rows = self._db.rows("SELECT DISTINCT source FROM notes ORDER BY source")
        return [name for (name,) in rows]

    def fingerprints(self, source: str) -> dict[str, str]:
        """Return fingerprint by key for the notes of one source."""
        rows = self._db.rows(
            "SELECT key, fingerprint FROM notes WHERE source = ?", (storable(source),)
        )
        return {key: fingerprint for key, fingerprint in rows}  # noqa: C416  dict() loses the types

    def content_hashes(self, source: str) -> dict[str, str]:
        """Return content hash by key for the notes of one source."""
        rows = self._db.rows(
            "SELECT key, content_hash FROM notes WHERE source = ?", (storable(source),)
        )
        return {key: content_hash for key, content_hash in rows}  # noqa: C416  as above

    def vectors_by_hash(self, hashes: Iterable[str]) -> dict[str, Vector]:
        """Return the stored vectors, ``(dim,)`` float32, of those text hashes that have one."""
        rows = self._db.rows(
            "SELECT text_hash, vector FROM passages"
            " WHERE text_hash IN (SELECT value FROM json_each(?))",
            (_strings(hashes),),
        )
        return {text_hash: self._vector(blob) for text_hash, blob in rows}

    def stored(self, note_ids: Iterable[str]) -> list[IndexedNote]:
        """Return notes as :meth:`replace` took them, to hand them to another catalog.

        Their ``text`` and ``blocks`` are empty: a catalog keeps only what passages were made of.
        Ids that are not here are left out.
        """
        with self.snapshot():
            rows = self._db.rows(
                "SELECT h.*, n.created_at, n.aliases, n.fingerprint, n.content_hash"
                " FROM heads h JOIN notes n ON n.id = h.id"
                " WHERE h.id IN (SELECT value FROM json_each(?)) ORDER BY h.source, h.key",
                (_strings(note_ids),),
            )
            return [self._stored(self._head(row[:7]), row[7:]) for row in rows]

    def _stored(self, head: NoteHead, more: Row) -> IndexedNote:
        created_at, aliases, fingerprint, content_hash = more
        note = Note(
            source=head.source,
            key=head.key,
            title=head.title,
            text="",
            blocks=(),
            modified_at=head.modified_at,
            created_at=self._instant(created_at),
            tags=head.tags,
            uri=head.uri,
            aliases=self._tuple(aliases),
            fingerprint=fingerprint,
        )
        rows = self._db.rows(
            "SELECT b.*, p.vector FROM bodies b JOIN passages p ON p.label = b.label"
            " WHERE b.note_id = ? ORDER BY b.ordinal",
            (head.id,),
        )
        passages = [(self._passage(row[:-1]), self._vector(row[-1])) for row in rows]
        return IndexedNote(note, content_hash, passages)

    # --- writing -------------------------------------------------------------------------------

    def replace(self, notes: Iterable[IndexedNote]) -> None:
        """Store notes, new or changed, with their passages, in one transaction.

        A passage whose ``text_hash`` the note already has keeps its label and vector and is no
        change, wherever in the note it stands now. A forgotten note is left out.

        Raises ValueError where a vector does not fit the index or a passage belongs elsewhere.
        """
        batch = list(notes)  # before the lock: an iterable that embeds must not hold it
        with self._db.transaction():
            forgotten = self.forgotten()
            for each in batch:
                owner = note_id(storable(each.note.source), storable(each.note.key))
                if owner not in forgotten:
                    self._replace(owner, each)

    def _replace(self, owner: str, each: IndexedNote) -> None:
        self._db.run(_DROP_WORDS, (owner,))
        self._put_note(owner, each)
        rows = self._db.rows(
            "SELECT label, text_hash FROM passages WHERE note_id = ? ORDER BY ordinal DESC",
            (owner,),
        )
        spare: dict[str, list[int]] = {}
        for label, text_hash in rows:
            spare.setdefault(text_hash, []).append(label)
        for passage, vector in each.passages:
            if passage.note_id != owner:
                raise ValueError(f"passage {passage.id} does not belong to note {owner}")
            same = spare.get(storable(passage.text_hash))
            self._put_passage(passage, vector, same.pop() if same else None)
        self._drop([label for labels in spare.values() for label in labels])
        self._db.run(_ADD_WORDS, (owner,))
        terms = _terms_of(each)
        self._put_terms(owner, terms)
        self._put_facts(owner, [vector for _, vector in each.passages], terms)

    def _put_terms(self, owner: str, now: frozenset[str]) -> None:
        """Store which terms a note has and keep count of the notes of each term."""
        before = self.terms_of([owner]).get(owner, frozenset())
        self._db.run_many(
            "INSERT INTO terms VALUES (?, 1) ON CONFLICT DO UPDATE SET notes = notes + 1",
            [(term,) for term in now - before],
        )
        gone = [(term,) for term in before - now]
        self._db.run_many("UPDATE terms SET notes = notes - 1 WHERE term = ?", gone)
        self._db.run_many("DELETE FROM terms WHERE term = ? AND notes = 0", gone)
        if now:
            self._db.run(
                "INSERT INTO note_terms VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET terms = excluded.terms",
                (owner, " ".join(sorted(now))),
            )
        else:
            self._db.run("DELETE FROM note_terms WHERE note_id = ?", (owner,))

    def _put_facts(self, owner: str, vectors: Sequence[Vector], terms: frozenset[str]) -> None:
        mean = self._blob(np.mean(vectors, axis=0, dtype=np.float32)) if vectors else b""
        self._db.run(
            "INSERT OR REPLACE INTO note_facts VALUES (?, ?, ?)",
            (owner, mean, _hashes(sorted(terms)).tobytes()),
        )

    def _put_note(self, owner: str, each: IndexedNote) -> None:
        note = each.note
        self._db.run(
            _PUT_NOTE,
            {
                "id": owner,
                "source": storable(note.source),
                "key": storable(note.key),
                "title": storable(note.title),
                "uri": storable(note.uri),
                "modified_at": _instant(note.modified_at),
                "created_at": _instant(note.created_at),
                "tags": _strings(note.tags),
                "aliases": _strings(note.aliases),
                "fingerprint": storable(note.fingerprint),
                "content_hash": storable(each.content_hash),
            },
        )
        self._db.run("DELETE FROM note_tags WHERE note_id = ?", (owner,))
        self._db.run_many(
            "INSERT INTO note_tags (tag, note_id) VALUES (?, ?)",
            [(tag, owner) for tag in _rolled_up(note.tags)],
        )

    def _put_passage(self, passage: Passage, vector: Vector, label: int | None) -> None:
        """Store a passage, under the label that its text already has or under a new one."""
        columns = {
            "id": storable(passage.id),
            "ordinal": passage.ordinal,
            "kind": passage.kind,
            "body_hash": body_hash(passage.text),
            "heading_path": _strings(passage.heading_path),
            "text": storable(passage.text),
        }
        if label is not None:
            self._db.run(_UPDATE_PASSAGE, {**columns, "label": label})
            return
        columns |= {
            "note_id": passage.note_id,
            "text_hash": storable(passage.text_hash),
            "vector": self._blob(vector),
        }
        label = self._db.run(_INSERT_PASSAGE, columns).lastrowid
        self._db.run("INSERT INTO changes (label, added) VALUES (?, 1)", (label,))

    def _drop(self, labels: Iterable[int]) -> None:
        for label in sorted(labels):
            self._db.run("DELETE FROM passages WHERE label = ?", (label,))
            self._db.run("INSERT INTO changes (label, added) VALUES (?, 0)", (label,))

    def touch(self, notes: Iterable[Note]) -> None:
        """Take over fingerprint, dates and uri of notes whose content is as it was."""
        rows = [
            (
                storable(note.fingerprint),
                _instant(note.modified_at),
                _instant(note.created_at),
                storable(note.uri),
                storable(note.source),
                storable(note.key),
            )
            for note in notes
        ]
        with self._db.transaction():
            self._db.run_many(
                "UPDATE notes SET fingerprint = ?, modified_at = ?, created_at = ?, uri = ?"
                " WHERE source = ? AND key = ?",
                rows,
            )

    def remove(self, note_ids: Iterable[str]) -> int:
        """Remove notes and all that belongs to them; return how many there were."""
        batch = [storable(each) for each in note_ids]
        with self._db.transaction():
            return sum(self._remove(each) for each in batch)

    def _remove(self, owner: str) -> int:
        self._db.run(_DROP_WORDS, (owner,))
        self._put_terms(owner, frozenset())
        rows = self._db.rows("SELECT label FROM passages WHERE note_id = ?", (owner,))
        self._drop(label for (label,) in rows)
        return self._db.run("DELETE FROM notes WHERE id = ?", (owner,)).rowcount

    def forget(self, note_ids: Iterable[str]) -> None:
        """Remove notes, keep their ids out of every later :meth:`replace`, and wipe their text.

        Ids that are not here are kept out as well (a rebuild hands on the old catalog's list).
        Deleted rows are overwritten; the full-text index is merged, which drops their words; the
        log is emptied unless a reader is in the middle of a query.
        """
        batch = [storable(each) for each in note_ids]
        now = datetime.now(UTC).isoformat()
        with self._db.transaction():
            for each in batch:
                self._remove(each)
            self._db.run_many(
                "INSERT INTO forgotten VALUES (?, ?) ON CONFLICT DO NOTHING",
                [(each, now) for each in batch],
            )
            self._db.run("INSERT INTO words (words) VALUES ('optimize')")
        self._db.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def forgotten(self) -> frozenset[str]:
        """Return the ids of notes that are kept out."""
        return frozenset(each for (each,) in self._db.rows("SELECT note_id FROM forgotten"))

    # --- what search and inspect read ----------------------------------------------------------

    def passages(self, labels: Iterable[int]) -> dict[int, tuple[Passage, NoteHead]]:
        """Return passage and note by label, for the labels that live."""
        return self._recall("passages", labels, self._read_passages)

    def _read_passages(self, labels: list[int]) -> dict[int, tuple[Passage, NoteHead]]:
        rows = self._db.rows(
            "SELECT b.*, h.* FROM bodies b JOIN heads h ON h.id = b.note_id"
            " WHERE b.label IN (SELECT value FROM json_each(?))",
            (_numbers(labels),),
        )
        return {row[0]: (self._passage(row[:8]), self._head(row[8:])) for row in rows}

    def vectors_of(self, labels: Iterable[int]) -> dict[int, Vector]:
        """Return the vectors, ``(dim,)`` float32, of the labels that live."""
        return self._recall("vectors", labels, self._read_vectors)

    def _read_vectors(self, labels: list[int]) -> dict[int, Vector]:
        rows = self._db.rows(
            "SELECT label, vector FROM passages WHERE label IN (SELECT value FROM json_each(?))",
            (_numbers(labels),),
        )
        return {label: self._vector(blob) for label, blob in rows}

    def passages_of(self, owner: str) -> list[Passage]:
        """Return the passages of the note with this id, in its order; none where it is not here."""
        rows = self._db.rows(
            "SELECT * FROM bodies WHERE note_id = ? ORDER BY ordinal", (storable(owner),)
        )
        return [self._passage(row) for row in rows]

    def note_vectors(self, note_ids: Iterable[str]) -> dict[str, Vector]:
        """Return, by note id, the mean of its passages' vectors, ``(dim,)`` float32.

        Not of length one. Notes without passages are left out.
        """
        found = self._recall("facts", note_ids, self._read_facts)
        return {owner: mean for owner, (mean, _) in found.items() if len(mean)}

    def _read_facts(self, note_ids: list[str]) -> dict[str, tuple[Vector, NDArray[np.uint32]]]:
        """Return the mean vector (empty without passages) and the hashes of the terms."""
        rows = self._db.rows(
            "SELECT note_id, mean, term_hashes FROM note_facts"
            " WHERE note_id IN (SELECT value FROM json_each(?))",
            (_strings(note_ids),),
        )
        try:
            return {
                str(owner): (
                    self._vector(mean) if mean else np.empty(0, dtype=np.float32),
                    np.frombuffer(hashes, dtype=_HASH),
                )
                for owner, mean, hashes in rows
            }
        except (TypeError, ValueError) as exc:
            raise self._db.damaged("the terms of a note make no sense") from exc

    def origins(self, labels: Iterable[int]) -> dict[int, tuple[NoteHead, ...]]:
        """Return, by label, the *other* notes with a passage of the same :func:`body_hash`.

        Sorted by source and key. Labels whose text stands in one note only are left out.
        """
        found = self._recall("origins", labels, self._read_origins)
        return {label: others for label, others in found.items() if others}

    def _read_origins(self, labels: list[int]) -> dict[int, tuple[NoteHead, ...]]:
        rows = self._db.rows(
            "SELECT DISTINCT a.label, h.* FROM passages a"
            " JOIN passages b ON b.body_hash = a.body_hash AND b.note_id <> a.note_id"
            " JOIN heads h ON h.id = b.note_id"
            " WHERE a.label IN (SELECT value FROM json_each(?)) ORDER BY a.label, h.source, h.key",
            (_numbers(labels),),
        )
        found: dict[int, tuple[NoteHead, ...]] = dict.fromkeys(labels, ())
        for row in rows:
            found[row[0]] = (*found[row[0]], self._head(row[1:]))
        return found

    def full_text(self, query: str, limit: int) -> list[tuple[int, float]]:
        """Return ``(label, bm25)`` of passages that share a word with any text, best first.

        Words are stemmed and freed of accents; title, aliases, headings, body and tags count
        alike. bm25 is SQLite's: negative, smaller is better. At most :data:`MAX_TERMS` different
        words of the query are looked for.
        """
        words = re.findall(r"\w+", unicodedata.normalize("NFC", storable(query)))
        terms = list(dict.fromkeys(word.casefold() for word in words))[:MAX_TERMS]
        if not terms:
            return []
        # In quotes a word is only a word, never an operator of the query language.
        match = " OR ".join(f'"{term}"' for term in terms)
        rows = self._db.rows(
            "SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank, rowid LIMIT ?",
            (match, max(limit, 0)),
        )
        return [(label, bm25) for label, bm25 in rows]

    def notes_with(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many notes each term (see :mod:`prompt_rag.lexical`) stands; not the 0s."""
        found = self._recall("terms", terms, self._read_notes_with)
        return {term: notes for term, notes in found.items() if notes}

    def _read_notes_with(self, terms: list[str]) -> dict[str, int]:
        rows = self._db.rows(
            "SELECT term, notes FROM terms WHERE term IN (SELECT value FROM json_each(?))",
            (_strings(terms),),
        )
        return dict.fromkeys(terms, 0) | {str(term): int(notes) for term, notes in rows}

    def terms_of(self, note_ids: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the different terms of notes, title and aliases included, by note id."""
        rows = self._db.rows(
            "SELECT note_id, terms FROM note_terms"
            " WHERE note_id IN (SELECT value FROM json_each(?))",
            (_strings(note_ids),),
        )
        return {owner: frozenset(text.split(" ")) for owner, text in rows}

    def terms_shared(
        self, note_ids: Iterable[str], terms: Collection[str]
    ) -> dict[str, frozenset[str]]:
        """Return which of ``terms`` notes have, title and aliases included; not notes without any.

        Terms are compared by 32 bits of hash: for a note of 300 terms one answer in ten million is
        wrong, and all notes of a query are looked through at once.
        """
        found = self._recall("facts", note_ids, self._read_facts)
        if not found:
            return {}
        owners = list(found)
        shared: dict[str, list[str]] = {}
        everything = np.concatenate([hashes for _, hashes in found.values()])
        ends = np.cumsum([len(hashes) for _, hashes in found.values()])
        wanted = list(terms)
        for term, one in zip(wanted, _hashes(wanted), strict=True):
            places = np.flatnonzero(everything == one)
            for at in np.searchsorted(ends, places, side="right").tolist():
                shared.setdefault(owners[at], []).append(term)
        return {owner: frozenset(each) for owner, each in shared.items()}

    def notes(self) -> int:
        """Return the number of notes."""
        return self._recall("notes", [""], self._read_notes)[""]

    def _read_notes(self, keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, int(self._db.one("SELECT count(*) FROM notes")))

    def labels_where(
        self, tags: Iterable[str] = (), source: str | None = None
    ) -> NDArray[np.int64]:
        """Return the labels (rising, int64) of passages with any of the tags, of one source.

        Both together narrow; without either every passage. A tag also finds the tags below it;
        case, a leading ``#`` and slashes at the ends do not matter.
        """
        wanted = [_folded(tag) for tag in tags]
        return self._labels(
            "SELECT p.label FROM passages p JOIN notes n ON n.id = p.note_id"
            " WHERE (:source IS NULL OR n.source = :source) AND (:tags IS NULL OR n.id IN ("
            " SELECT note_id FROM note_tags WHERE tag IN (SELECT value FROM json_each(:tags))))"
            " ORDER BY p.label",
            {
                "source": None if source is None else storable(source),
                "tags": _strings(wanted) if wanted else None,
            },
        )

    def notes_where(
        self,
        tags: Iterable[str] = (),
        *,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> list[NoteHead]:
        """Return the notes with any of the tags, as :meth:`labels_where` takes them, newest first.

        Changed at or after ``since`` and before ``before``, which leave out notes without a date;
        otherwise these come last.
        """
        wanted = [_folded(tag) for tag in tags]
        rows = self._db.rows(
            "SELECT * FROM heads WHERE (:since IS NULL OR modified_at >= :since)"
            " AND (:before IS NULL OR modified_at < :before) AND (:tags IS NULL OR id IN ("
            " SELECT note_id FROM note_tags WHERE tag IN (SELECT value FROM json_each(:tags))))"
            " ORDER BY modified_at DESC NULLS LAST, source, key",
            {
                # All instants are stored in UTC and one form, so that they compare as texts.
                "since": _instant(since),
                "before": _instant(before),
                "tags": _strings(wanted) if wanted else None,
            },
        )
        return [self._head(row) for row in rows]

    def tag_counts(self) -> list[tuple[str, int]]:
        """Return each tag, folded, with the number of notes that have it or a tag below it.

        The most used first.
        """
        rows = self._db.rows(
            "SELECT tag, count(*) AS notes FROM note_tags GROUP BY tag ORDER BY notes DESC, tag"
        )
        return [(tag, notes) for tag, notes in rows]

    def find_notes(self, text: str) -> list[NoteHead]:
        """Return the notes that answer to a name, sorted by source and key.

        The first of these that any note fulfils: its id, key, uri or path is the text; its title or
        an alias is (case does not matter); its key ends with the text, with or without the suffix
        of a file; the text is a longer path that ends with its key.
        """
        wanted = unicodedata.normalize("NFC", storable(text)).strip().removeprefix("./")
        if not wanted:
            return []
        rows = self._db.rows(
            "SELECT h.*, n.aliases FROM heads h JOIN notes n ON n.id = h.id"
            " ORDER BY h.source, h.key"
        )
        notes = [(self._head(row[:-1]), self._tuple(row[-1])) for row in rows]
        for answers in (_is_named, _is_titled, _ends_with, _leads_to):
            if found := [head for head, aliases in notes if answers(wanted, head, aliases)]:
                return found
        return []

    def counts(self) -> list[SourceCounts]:
        """Return what there is of each source, sorted by source."""
        rows = self._db.rows(
            "SELECT source, count(*), sum(passages), sum(tldrs), sum(tldrs = 0) FROM ("
            " SELECT n.source AS source, count(p.label) AS passages,"
            " count(CASE p.kind WHEN 'tldr' THEN 1 END) AS tldrs"
            " FROM notes n LEFT JOIN passages p ON p.note_id = n.id GROUP BY n.id"
            ") GROUP BY source ORDER BY source"
        )
        return [SourceCounts(*row) for row in rows]

    def check(self) -> list[str]:
        """Return what is wrong with the catalog, in plain words; empty where nothing is.

        Reads every page. Opened for writing, it also compares the full-text index word by word.
        """
        problems = []
        try:
            rows = self._db.rows("PRAGMA quick_check")
            problems += [text for (text,) in rows if text != "ok"]
            for text, query in _CHECKS:
                if times := self._db.one(query, {"bytes": self.dim * _FLOAT.itemsize}):
                    problems.append(f"{text} ({times} times)")
            if self._db.writable:
                # A command in the form of an insert; rank 1 compares with the text itself.
                self._db.run("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        except IndexDamaged as exc:
            problems.append(exc.message)
        return problems

    # --- rows to records -----------------------------------------------------------------------

    def _labels(self, query: str, values: Values = ()) -> NDArray[np.int64]:
        return np.array([label for (label,) in self._db.rows(query, values)], dtype=np.int64)

    def _vectors(self, of_passages: str, values: Values = ()) -> tuple[NDArray[np.int64], Matrix]:
        """Read labels and vectors of the passages ``p``, row by row into the one copy there is."""
        with self.snapshot():
            most = self._db.one(f"SELECT count(*) {of_passages}", values)
            labels = np.empty(most, dtype=np.int64)
            matrix = np.empty((most, self.dim), dtype=np.float32)
            rows = self._db.each(f"SELECT p.label, p.vector {of_passages} ORDER BY 1", values)
            for position, (label, blob) in enumerate(rows):
                labels[position] = label
                matrix[position] = self._vector(blob)
        return labels, matrix

    def _vector(self, blob: Any) -> Vector:
        if not isinstance(blob, bytes) or len(blob) != self.dim * _FLOAT.itemsize:
            raise self._db.damaged("a vector has the wrong length")
        return np.frombuffer(blob, _FLOAT).astype(np.float32, copy=False)

    def _blob(self, vector: Vector) -> bytes:
        array = np.asarray(vector, _FLOAT)
        if array.shape != (self.dim,) or not np.isfinite(array).all():
            raise ValueError(f"not a finite vector of {self.dim} numbers")
        return array.tobytes()

    def _passage(self, row: Row) -> Passage:
        _label, key, owner, ordinal, kind, heading_path, text, text_hash = row
        return Passage(key, owner, ordinal, kind, self._tuple(heading_path), text, text_hash)

    def _head(self, row: Row) -> NoteHead:
        key, source, note_key, title, uri, modified_at, tags = row
        when = self._instant(modified_at)
        return NoteHead(key, source, note_key, title, uri, when, self._tuple(tags))

    def _instant(self, text: Any) -> datetime | None:
        try:
            return None if text is None else datetime.fromisoformat(text)
        except (TypeError, ValueError) as exc:
            raise self._db.damaged(f"{text!r} is no date") from exc

    def _tuple(self, text: Any) -> tuple[str, ...]:
        if text == "[]":  # most notes have no tags and no aliases
            return ()
        try:
            return tuple(json.loads(text))
        except (TypeError, ValueError) as exc:
            raise self._db.damaged(f"{text!r} is no list") from exc


# --- values to columns -------------------------------------------------------------------------


def _numbers(labels: Iterable[int]) -> str:
    return json.dumps([int(label) for label in labels])


def _strings(texts: Iterable[str]) -> str:
    # Not escaped: the full-text index reads these lists as they stand.
    return json.dumps([storable(text) for text in texts], ensure_ascii=False)


def _instant(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat()


def _hashes(terms: Iterable[str]) -> NDArray[np.uint32]:
    return np.array([crc32(term.encode("utf-8", "surrogatepass")) for term in terms], dtype=_HASH)


def _terms_of(each: IndexedNote) -> frozenset[str]:
    """Return the terms of all that is stored of a note."""
    texts = [each.note.title, *each.note.aliases]
    for passage, _ in each.passages:
        texts += [*passage.heading_path, passage.text]
    return lexical.terms(storable("\n".join(texts)))


def _folded(tag: str) -> str:
    return unicodedata.normalize("NFC", storable(tag)).strip().lstrip("#").strip("/").casefold()


def _rolled_up(tags: Iterable[str]) -> list[str]:
    """Return the tags and their ancestors, folded: a/b/c gives a, a/b and a/b/c."""
    found: set[str] = set()
    for tag in tags:
        parts = _folded(tag).split("/")
        found.update("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return sorted(found - {""})


# --- names of notes: what find_notes tries, in order --------------------------------------------


def _is_named(wanted: str, head: NoteHead, _aliases: tuple[str, ...]) -> bool:
    return wanted in (head.id, head.key, head.uri, unquote(head.uri).removeprefix("file://"))


def _is_titled(wanted: str, head: NoteHead, aliases: tuple[str, ...]) -> bool:
    names = (unicodedata.normalize("NFC", name).casefold() for name in (head.title, *aliases))
    return wanted.casefold() in names


def _ends_with(wanted: str, head: NoteHead, _aliases: tuple[str, ...]) -> bool:
    stem, dot, suffix = head.key.rpartition(".")
    names = (head.key, stem) if dot and "/" not in suffix else (head.key,)
    return any(f"/{name}".endswith(f"/{wanted}") for name in names)


def _leads_to(wanted: str, head: NoteHead, _aliases: tuple[str, ...]) -> bool:
    return wanted.endswith(f"/{head.key}")
