"""Bear's database: where its notes and tags stand, and how to read them without changing a byte.

Bear keeps a Core Data store in SQLite. Two things about it are not fixed: which columns it has
(older versions lack some), and the numbers in the name and the columns of the table that joins
notes to tags. Both are looked up each time.

The database is opened read-only and read inside one transaction. Both journal modes work.
``immutable=1`` is never used, since it would hide what Bear has committed to the log but not yet
moved into the database. Like any reader of a database in WAL mode, SQLite may put an empty
``-wal`` and a ``-shm`` beside it where Bear has left none; where it may not, a private copy is
read instead.

Functions raise ``sqlite3.Error`` and ``OSError`` as they come; :mod:`prompt_rag.sources.bear`
makes them errors a person can act on.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Core Data counts seconds from here.
EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
# Dates outside are a clock that was never set, or milliseconds taken for seconds.
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)

# Flags of a row that keep its note out, and what to call each, in the order of their weight.
_STATES = (
    ("ZPERMANENTLYDELETED", "deleted"),
    ("ZTRASHED", "in the trash"),
    ("ZARCHIVED", "archived"),
    ("ZENCRYPTED", "encrypted"),
    ("ZLOCKED", "locked"),
)
_REQUIRED = {"Z_PK", "ZTEXT", "ZUNIQUEIDENTIFIER"}
_OPTIONAL = ("ZTITLE", "ZCREATIONDATE", "ZMODIFICATIONDATE", "Z_OPT")
_BLANK = " \t\n\r\v\f\u00a0"

# A copy is taken again when Bear wrote meanwhile; its writes come in bursts shorter than a copy.
_COPY_ATTEMPTS = 3
# What SQLite answers where it may not create the side files of a database, or may not read it.
_NO_ACCESS = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR}


class NotBearError(Exception):
    """The file is a database, but not one of Bear's."""


@dataclass(frozen=True, slots=True)
class Row:
    """A note's row without its text. ``why`` says why the note stays out, "" where it does not.

    ``stamp`` is what Bear changes when it saves a note: time of change, Core Data's save counter
    and size; None where there is no counter. ``size`` is that of the text in bytes. ``tags`` is
    None where the database does not tell them.
    """

    pk: int
    uid: str
    title: str
    why: str
    size: int
    created_at: datetime | None
    modified_at: datetime | None
    stamp: tuple[object, ...] | None
    tags: frozenset[str] | None


@contextmanager
def reading(path: Path, wait_seconds: float) -> Iterator[sqlite3.Connection]:
    """Open ``path``, or a private copy where SQLite may not open it where it lies.

    The connection is inside a read transaction and can write nothing. A lock is waited for up to
    ``wait_seconds``.
    """
    try:
        connection = connect(path, wait_seconds)
    except sqlite3.Error as error:
        if result_code(error) not in _NO_ACCESS:
            raise
        # A database that is missing or forbidden cannot be copied either, and the error says why.
        # Only now is the file opened by hand: closing it gives up this process's locks on it.
        with _private_copy(path) as copy, closing(connect(copy, wait_seconds, "rw")) as connection:
            yield connection
    else:
        with closing(connection):
            yield connection


def connect(path: Path, wait_seconds: float, mode: str = "ro") -> sqlite3.Connection:
    """Open ``path`` and begin a read transaction in which nothing can be written.

    ``mode`` "rw" is for a copy of our own, where SQLite may have to roll back what a crashed
    writer left behind; the notes cannot be changed through it either.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"  # as_uri quotes spaces, #, ? and %
    connection = sqlite3.connect(uri, uri=True, timeout=wait_seconds, isolation_level=None)
    try:
        # Text that is not UTF-8 costs a note some characters, not the source all its notes.
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the snapshot
    except BaseException:
        connection.close()
        raise
    return connection


def read_rows(connection: sqlite3.Connection, tags: Mapping[int, set[str]] | None) -> list[Row]:
    """Return every note's row, whatever its state, by primary key. Raises NotBearError."""
    present = _columns(connection, "ZSFNOTE")
    if not present >= _REQUIRED:
        raise NotBearError
    wanted = [column for column, _ in _STATES] + list(_OPTIONAL)
    columns = ", ".join(name if name in present else f"NULL AS {name}" for name in wanted)
    query = (
        f"SELECT Z_PK, ZUNIQUEIDENTIFIER, {columns},"  # noqa: S608 - names from this module
        " length(CAST(ZTEXT AS BLOB)) AS size,"
        " typeof(ZTEXT) = 'text' AND trim(ZTEXT, ?) <> '' AS has_text"
        " FROM ZSFNOTE ORDER BY Z_PK"
    )
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    return [_row(found, tags) for found in cursor.execute(query, (_BLANK,))]


def _row(found: sqlite3.Row, tags: Mapping[int, set[str]] | None) -> Row:
    pk, uid = found["Z_PK"], _text(found["ZUNIQUEIDENTIFIER"])
    why = next((why for column, why in _STATES if found[column]), "")
    if not why and not found["has_text"]:
        why = "no text"
    if not why and not uid:
        why = "no identifier"
    stamp = (found["ZMODIFICATIONDATE"], found["Z_OPT"], found["size"])
    return Row(
        pk=pk,
        uid=uid,
        title=" ".join(_text(found["ZTITLE"]).split()),
        why=why,
        size=found["size"] or 0,
        created_at=_instant(found["ZCREATIONDATE"]),
        modified_at=_instant(found["ZMODIFICATIONDATE"]),
        stamp=None if found["Z_OPT"] is None else stamp,
        tags=None if tags is None else frozenset(tags.get(pk, ())),
    )


def read_text(connection: sqlite3.Connection, row: Row) -> str:
    """Return the text of ``row``, which has one."""
    query = "SELECT ZTEXT FROM ZSFNOTE WHERE Z_PK = ?"
    return _text(connection.execute(query, (row.pk,)).fetchone()[0])


def read_tags(connection: sqlite3.Connection) -> tuple[dict[int, set[str]] | None, str]:
    """Return the tags' titles by the primary key of the note, or None and what is amiss."""
    join = _join_table(connection)
    if join is None:
        return None, "no table joins notes to tags in Bear's database; tags come from the text"
    if not _columns(connection, "ZSFNOTETAG").issuperset({"Z_PK", "ZTITLE"}):
        return None, "Bear's database has no table of tags; tags come from the text"
    table, note, tag = join
    query = (
        f"SELECT j.{note}, t.ZTITLE"  # noqa: S608 - names that matched a pattern without quotes
        f" FROM {table} AS j JOIN ZSFNOTETAG AS t ON t.Z_PK = j.{tag}"
    )
    tags: dict[int, set[str]] = {}
    for pk, title in connection.execute(query):
        if isinstance(title, str):
            tags.setdefault(pk, set()).add(title)
    return tags, ""


def _join_table(connection: sqlite3.Connection) -> tuple[str, str, str] | None:
    """Return the name of the table that joins notes to tags, its note and its tag column.

    The entity numbers say which it should be. Where they are missing, or wrong, the one table of
    that make is taken; two such tables are no answer.
    """
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    joins: dict[str, tuple[str, str]] = {}
    for (table,) in connection.execute(query).fetchall():
        # Core Data names the table after either side.
        if re.fullmatch(r"Z_\d+(TAGS|NOTES)", table):
            columns = _columns(connection, table)
            note = [name for name in columns if re.fullmatch(r"Z_\d+NOTES", name)]
            tag = [name for name in columns if re.fullmatch(r"Z_\d+TAGS", name)]
            if len(note) == len(tag) == 1:
                joins[table] = note[0], tag[0]
    if {"Z_ENT", "Z_NAME"} <= _columns(connection, "Z_PRIMARYKEY"):
        entities = dict(connection.execute("SELECT Z_NAME, Z_ENT FROM Z_PRIMARYKEY"))
        expected = f"Z_{entities.get('SFNote')}NOTES", f"Z_{entities.get('SFNoteTag')}TAGS"
        named = {table: columns for table, columns in joins.items() if columns == expected}
        joins = named or joins
    if len(joins) != 1:
        return None
    ((table, (note_column, tag_column)),) = joins.items()
    return table, note_column, tag_column


def result_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code (the low byte), 0 where the driver itself objected."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def file_stamp(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Return inode, size and time of change in ns of the database and of its log.

    An empty log counts as none: a reader may have made it. Raises OSError.
    """
    stats = [path.stat()]
    with suppress(FileNotFoundError):
        log = beside(path, "-wal").stat()
        if log.st_size:
            stats.append(log)
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def beside(path: Path, suffix: str) -> Path:
    """Return the side file of the database ``path`` that SQLite names with ``suffix``."""
    return path.with_name(path.name + suffix)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    query = "SELECT name FROM pragma_table_info(?)"
    return {name for (name,) in connection.execute(query, (table,))}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _instant(value: object) -> datetime | None:
    """Return the instant that Core Data stored as ``value``, or None where it makes no sense."""
    if not isinstance(value, (int, float)):
        return None
    try:
        instant = EPOCH + timedelta(seconds=value)
    except (OverflowError, ValueError):  # infinite or beyond the calendar; not a number
        return None
    return instant if EARLIEST <= instant < LATEST else None


@contextmanager
def _private_copy(path: Path) -> Iterator[Path]:
    """Copy the database with its log or journal into a folder of our own, and remove it after.

    Raises OSError where it cannot be copied or keeps changing meanwhile.
    """
    with TemporaryDirectory(prefix="prompt-rag-bear-") as folder:
        copy = Path(folder, path.name)
        for _ in range(_COPY_ATTEMPTS):
            before = file_stamp(path)
            for suffix in ("", "-wal", "-journal"):
                beside(copy, suffix).unlink(missing_ok=True)
                if beside(path, suffix).exists():
                    copyfile(beside(path, suffix), beside(copy, suffix))
            if file_stamp(path) == before:
                break
        else:
            raise OSError(f"it changed while it was copied, {_COPY_ATTEMPTS} times over")
        yield copy
