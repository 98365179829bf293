"""The notes of the Bear app as a source.

The database is read and closed before the first note is yielded, so that neither a slow consumer
nor an embedding run keeps Bear from writing.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from prompt_rag import segments
from prompt_rag.domain import Gone, Note, Skipped, SourceError, Unchanged
from prompt_rag.sources import bear_database, files, frontmatter, structure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from prompt_rag.domain import Block, Scanned
    from prompt_rag.sources.bear_database import Row

# How long to wait for a lock, in seconds. Bear writes in short transactions: readers of its
# database that gave up at once were reported to fail, and to work once they waited 3 s.
WAIT_SECONDS = 3.0

# Below the home folder; the place of today's Bear first, then those of older versions.
_LOCATIONS = (
    "Library/Group Containers/9K33E3U3T4.net.shinyfrog.bear/Application Data/database.sqlite",
    "Library/Containers/net.shinyfrog.bear/Data/Documents/Application Data/database.sqlite",
    (
        "Library/Containers/net.shinyfrog.bear/Data/Library/Application Support"
        "/net.shinyfrog.bear/database.sqlite"
    ),
)

# Raise it when the same row would make another note than before, so that all are read again.
_READING_VERSION = 1
# Bear makes a whole first paragraph the title; some five lines of it are enough.
_MAX_TITLE_CHARS = 300
# Words that stand in for a title, in characters: one line of a list.
_FIRST_WORDS_CHARS = 60

_OTHER_DATABASE = "prompt-rag source add bear DB"
_FULL_DISK_ACCESS = (
    "allow this terminal under System Settings > Privacy & Security > Full Disk Access,"
    " then: prompt-rag sync"
)


def candidates(home: Path | None = None) -> list[Path]:
    """Return every place where Bear is known to keep its database below ``home``.

    Those that exist come first, the most recently written (log included) foremost; what Bear left
    behind when it moved is thus never taken for its database.
    """
    home = Path.home() if home is None else home
    # The sort is stable: of places without a database, today's stays first.
    return sorted((home / place for place in _LOCATIONS), key=_written_at, reverse=True)


class BearSource:
    """The notes of one Bear database; a :class:`prompt_rag.domain.Source`.

    ``database`` None means the newest of :func:`candidates`, looked up on each scan. A note that
    has one of ``exclude_tags`` is skipped; ``work`` also stands for ``work/project``, and neither
    case nor ``#`` matters. ``wait_seconds`` bounds the wait for Bear to finish writing.
    """

    def __init__(
        self,
        name: str,
        database: Path | None = None,
        exclude_tags: Iterable[str] = (),
        *,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._name = name
        self._database = database
        self._excluded = frozenset(_folded(tag) for tag in exclude_tags)
        self._wait_seconds = wait_seconds
        self._warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which the configuration and the catalog know this source."""
        return self._name

    @property
    def database(self) -> Path:
        """The database that a scan would read now, whether or not it exists."""
        return self._database or candidates()[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the last scan could not read, though it read the notes; empty before a scan."""
        return self._warnings

    def revision(self) -> str:
        """Return a token that differs from an earlier one whenever a note may have changed.

        It is made of inode, size and time of change of the database and of its log, so it takes
        neither lock nor query. Writes that touch no note change it too.

        Raises :class:`SourceError` where the database is missing or denied.
        """
        path = self.database
        try:
            stamp = bear_database.file_stamp(path)
        except OSError as error:
            raise self._unreadable(path, error) from error
        return sha256(repr(stamp).encode()).hexdigest()[:16]

    def scan(
        self, known: Mapping[str, str], paths: Collection[Path] | None = None
    ) -> Iterator[Scanned]:
        """Yield every note, changed or not; see :meth:`prompt_rag.domain.Source.scan`.

        Where ``paths`` holds neither the database, nor its log, nor a folder above them, there is
        nothing to yield. The texts of all changed notes are in memory at once.

        Raises :class:`SourceError` where the database is missing, denied, locked or not Bear's.
        """
        path = self.database
        if paths is not None and not _concerns(path, paths):
            return
        seen: set[str] = set()
        for item in self._read(path, known):
            scanned = self._note(item) if isinstance(item, _Draft) else item
            seen.add(scanned.key)
            yield scanned
        if paths is not None:
            yield from (Gone(key) for key in known if key not in seen)

    def _read(self, path: Path, known: Mapping[str, str]) -> list[_Draft | Unchanged | Skipped]:
        try:
            with bear_database.reading(path, self._wait_seconds) as connection:
                tags, warning = bear_database.read_tags(connection)
                rows = bear_database.read_rows(connection, tags)
                self._warnings = (warning,) if warning else ()
                # A sync conflict can leave two rows with one identifier: the last of them counts.
                last = {_key(row): row for row in sorted(rows, key=_precedence)}
                return [self._draft(connection, row, known) for row in last.values()]
        except bear_database.NotBearError as error:
            message = f"{path} is not a Bear database: it has no table of notes"
            raise SourceError(message, _OTHER_DATABASE) from error
        except sqlite3.Error as error:
            raise self._failed(path, error) from error
        except OSError as error:
            raise self._unreadable(path, error) from error

    def _draft(
        self, connection: sqlite3.Connection, row: Row, known: Mapping[str, str]
    ) -> _Draft | Unchanged | Skipped:
        key = _key(row)
        if row.why:
            return Skipped(key, row.why, keep=False)
        if row.size > files.MAX_BYTES:
            return Skipped(key, f"larger than {files.MAX_BYTES >> 20} MB", keep=False)
        tags = None if row.tags is None else _rolled_up(row.tags)
        if self._excluded.intersection(map(_folded, tags or ())):
            return Skipped(key, "excluded by a tag", keep=False)
        fingerprint = ""
        if row.stamp is not None:
            # What is excluded belongs to it: a note is read again when that changes.
            told = (*row.stamp, row.title, row.created_at, tags, sorted(self._excluded))
            fingerprint = sha256(repr((_READING_VERSION, told)).encode()).hexdigest()[:32]
            if known.get(key) == fingerprint:
                return Unchanged(key)
        return _Draft(key, row, tags, bear_database.read_text(connection, row), fingerprint)

    def _note(self, draft: _Draft) -> Note | Skipped:
        parsed, told = _parsed(draft.text)
        if not told.indexed:
            return Skipped(draft.key, "prompt-rag: false in its frontmatter", keep=False)
        inline = _rolled_up((*told.tags, *parsed.tags))
        # The text has its say on what is private, should the tables not tell or lag behind it.
        if self._is_excluded_by(inline, alone=draft.tags is None):
            return Skipped(draft.key, "excluded by a tag", keep=False)
        # Where the first line is a rule or opens frontmatter, it is no title.
        title = draft.row.title.strip("-") and draft.row.title
        title = title or told.title or _title_of(parsed.blocks)
        return Note(
            source=self._name,
            key=draft.key,
            title=next(iter(segments.cut(title, _MAX_TITLE_CHARS)), ""),
            text=parsed.body,
            blocks=_without_title(parsed.blocks, title),
            modified_at=draft.row.modified_at,
            created_at=draft.row.created_at,
            tags=inline if draft.tags is None else draft.tags,
            uri=f"bear://x-callback-url/open-note?id={quote(draft.row.uid, safe='')}",
            aliases=told.aliases,
            fingerprint=draft.fingerprint,
        )

    def _is_excluded_by(self, inline: Iterable[str], *, alone: bool) -> bool:
        """Whether tags read off the text exclude a note; ``alone`` where the tables tell none."""
        for tag in map(_folded, inline):
            # "#private about C#" may be the tag "private" or one of three words. The tables know
            # which; without them the safe reading counts.
            if tag in self._excluded or (
                alone and any(tag.startswith(f"{excluded} ") for excluded in self._excluded)
            ):
                return True
        return False

    def _failed(self, path: Path, error: sqlite3.Error) -> SourceError:
        code = bear_database.result_code(error)
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return SourceError(
                f"Bear is writing {path}: still locked after {self._wait_seconds:g} s",
                "prompt-rag sync",
            )
        if code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM}:
            return self._unreadable(path, PermissionError(str(error)))
        if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            return SourceError(f"{path} is not a database, or is damaged: {error}", _OTHER_DATABASE)
        return SourceError(f"cannot read Bear's database {path}: {error}", "prompt-rag doctor")

    def _unreadable(self, path: Path, error: OSError) -> SourceError:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            where = f"at {path}" if self._database else "where Bear keeps one"
            return SourceError(f"there is no Bear database {where}", _OTHER_DATABASE)
        if isinstance(error, PermissionError):
            return SourceError(f"not allowed to read Bear's database {path}", _FULL_DISK_ACCESS)
        why = error.strerror or error
        return SourceError(f"cannot read Bear's database {path}: {why}", "prompt-rag doctor")


@dataclass(frozen=True, slots=True)
class _Draft:
    """A note whose text has been read but not yet parsed."""

    key: str
    row: Row
    tags: tuple[str, ...] | None
    text: str
    fingerprint: str


def _key(row: Row) -> str:
    return f"bear:{row.uid}" if row.uid else f"bear:pk:{row.pk}"


def _precedence(row: Row) -> tuple[bool, datetime, int]:
    """Sort what is left out before what lives, and the older before the newer."""
    return not row.why, row.modified_at or bear_database.EARLIEST, row.pk


def _parsed(text: str) -> tuple[structure.Structure, frontmatter.Frontmatter]:
    """Take a note's text apart; a ``---`` block that is no YAML mapping is part of its body."""
    parsed = structure.parse(text)
    told = frontmatter.Frontmatter()
    if parsed.frontmatter is not None:
        mapping = frontmatter.parse(parsed.frontmatter)
        if mapping is None:
            return structure.parse(text, frontmatter=False), told
        told = mapping
    return parsed, told


def _title_of(blocks: tuple[Block, ...]) -> str:
    """Return the first heading, else the first words, of a note to which Bear gave no title."""
    heading = next((block.text for block in blocks if block.kind == "heading" and block.text), "")
    words = " ".join(blocks[0].text.split()) if blocks else ""
    return heading or next(iter(segments.cut(words, _FIRST_WORDS_CHARS)), "untitled")


def _without_title(blocks: tuple[Block, ...], title: str) -> tuple[Block, ...]:
    """Return ``blocks`` without the heading that is the title: heading paths start below it."""
    # Bear makes the first line the title, of whatever level, and may spell it without its marks.
    if blocks and blocks[0].kind == "heading" and blocks[0].line == 0:
        return blocks[1:]
    return structure.without_title(blocks, title)


def _rolled_up(tags: Iterable[str]) -> tuple[str, ...]:
    """Return ``tags`` and, for ``work/project``, also ``work``; sorted, each once."""
    found: set[str] = set()
    for tag in tags:
        parts = [part for part in tag.strip("#").split("/") if part.strip()]
        found.update("/".join(parts[: end + 1]) for end in range(len(parts)))
    return tuple(sorted(found))


def _folded(tag: str) -> str:
    """Return ``tag`` as it is compared: without ``#`` and outer ``/``, NFC, case folded."""
    return unicodedata.normalize("NFC", tag.strip().strip("#/")).casefold()


def _written_at(path: Path) -> int:
    """Return when the database or its log was last written, in ns; -1 where there is none."""
    try:
        return max(written for _, _, written in bear_database.file_stamp(path))
    except (FileNotFoundError, NotADirectoryError):
        return -1
    except OSError:
        return 0  # there may be one; what can be read comes first


def _concerns(path: Path, paths: Collection[Path]) -> bool:
    """Return whether one of ``paths`` is the database, its log, or a folder above them."""
    target = path.resolve()
    family = {target, bear_database.beside(target, "-wal"), *target.parents}
    return any(item.resolve() in family for item in paths)
