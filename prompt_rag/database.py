"""One SQLite file that belongs to us: its connection, its transactions, its errors as ours.

A connection is used by one thread at a time. Between two calls it holds no transaction, unless the
caller is inside :meth:`Database.snapshot`, so that a reader who stays for days does not keep the
write-ahead log from starting anew.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from prompt_rag import fsio
from prompt_rag.domain import IndexDamaged, IndexMissing, PromptRagError, WriterBusy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Row = tuple[Any, ...]
    Values = Sequence[Any] | Mapping[str, Any]

REBUILD = "prompt-rag rebuild"
"""The command that mends a file that cannot be read."""

# How long a writer waits for another connection's commit. Only one process writes, so this is for
# a backup tool that looks in; 5 s is also what Python's sqlite3 waits by default.
_BUSY_SECONDS = 5.0
# The log is cut back to this when it starts anew: four times the 4 MiB at which SQLite starts it
# anew by itself (1,000 pages of 4 KiB), so that a rebuild's log does not stay on the disk.
_LOG_BYTES = 16 << 20
# The disk or its permissions: a rebuild would not mend what they mean.
_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Database:
    """A connection to the file at ``path``, in WAL mode where it writes.

    ``any_thread`` lets threads take turns on it, never share it.

    Whatever SQLite raises leaves as one of our errors: :class:`IndexDamaged` (not a database, torn,
    or not ours), :class:`WriterBusy` (locked by another connection), :class:`PromptRagError` (disk
    full, failing or not permitted). Misuse, as of a closed connection, stays a programming error.
    """

    def __init__(self, path: Path, *, writable: bool = False, any_thread: bool = False) -> None:
        if not path.is_file():
            raise IndexMissing(f"There is no {path}", REBUILD)
        self.path = path
        self.writable = writable
        with self._boundary():
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,  # transactions are begun by hand, in this module only
                check_same_thread=not any_thread,
            )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path, schema: str) -> Database:
        """Make a file that nobody else may read, run ``schema`` in it, and open it for writing.

        Raises FileExistsError where there is a file, OSError where none can be made.
        """
        # SQLite gives its log files the mode of the database, so this one call covers all three.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, fsio.FILE_MODE))
        database = cls(path, writable=True)
        try:
            with database._boundary():
                database._connection.executescript(f"BEGIN; {schema} COMMIT;")
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self) -> None:
        if not self.writable:
            return
        self.rows("PRAGMA journal_mode = WAL")
        # FULL: a commit is on the disk before it returns. Files beside the database name the change
        # they cover, and after a power cut the database must not be behind them.
        self.rows("PRAGMA synchronous = FULL")
        self.rows("PRAGMA foreign_keys = ON")
        self.rows("PRAGMA secure_delete = ON")  # what leaves the index leaves the file
        self.rows(f"PRAGMA journal_size_limit = {_LOG_BYTES}")

    def close(self) -> None:
        """Close the connection; the last one to close folds the log into the file."""
        self._connection.close()

    # --- statements ----------------------------------------------------------------------------

    def rows(self, query: str, values: Values = ()) -> list[Row]:
        """Run one statement and return all of its rows."""
        with self._boundary():
            return self._connection.execute(query, values).fetchall()

    def each(self, query: str, values: Values = ()) -> Iterator[Row]:
        """Yield the rows one by one, for results too large to hold twice; read it to the end."""
        with self._boundary():
            cursor = self._connection.execute(query, values)
            try:
                yield from cursor
            finally:
                cursor.close()

    def one(self, query: str, values: Values = ()) -> Any:
        """Return the only value of a statement that yields one row of one column."""
        return self.rows(query, values)[0][0]

    def run(self, query: str, values: Values = ()) -> sqlite3.Cursor:
        """Run a statement that changes something; for ``lastrowid`` and ``rowcount``."""
        with self._boundary():
            return self._connection.execute(query, values)

    def run_many(self, query: str, values: Iterable[Values]) -> None:
        """Run a statement once for each of ``values``."""
        with self._boundary():
            self._connection.executemany(query, values)

    # --- transactions --------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let every read of the block see the same commit; may nest, and stand in a transaction."""
        if self.inside():
            yield
            return
        self.rows("BEGIN")
        try:
            yield
        finally:
            if self.inside():
                self.rows("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block writes as one, or, on any exception, nothing of it."""
        self.rows("BEGIN IMMEDIATE")
        try:
            yield
            self.rows("COMMIT")
        except BaseException:
            # SQLite has rolled back by itself where the disk is full or failing.
            if self.inside():
                self.rows("ROLLBACK")
            raise

    def inside(self) -> bool:
        """Return whether a snapshot or a transaction is under way."""
        return self._connection.in_transaction

    # --- errors --------------------------------------------------------------------------------

    def damaged(self, why: str) -> IndexDamaged:
        """Return the error that says that the file's content makes no sense."""
        return IndexDamaged(f"{self.path} cannot be read: {why}", REBUILD)

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as exc:
            # The low byte is the primary code, the rest says more of the same; an error that
            # Python itself found has none.
            code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in _BUSY:
                raise WriterBusy(f"{self.path} is being written by another process") from exc
            if code in _ENVIRONMENT:
                raise PromptRagError(f"{self.path}: {exc}", "prompt-rag doctor") from exc
            raise self.damaged(str(exc)) from exc


def storable(text: str) -> str:
    """Return text that SQLite and UTF-8 can hold: U+FFFD for lone surrogates and NUL."""
    with suppress(UnicodeEncodeError):
        text.encode()
        return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")
