"""What each session has been shown, across processes: nobody pays twice for one excerpt.

A session has one file, ``sessions/<digest of its id>``, of appended lines: texts that were shown
and prompts that were asked. A line is appended in one write, so a process killed at any moment
leaves at most a broken last line, which is skipped like everything else that does not parse.
Files are small, bounded in number, and go two weeks after their session last asked.

This is a courtesy to the reader: where nothing can be written, a prompt is answered all the same.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import orjson

from prompt_rag import fsio, wire

KEPT_SECONDS = 14 * 86400.0  # a session older than two weeks is not resumed with its context
MOST_SESSIONS = 1000  # a person with twenty agents reaches it in weeks
CLEANED_FOR_EACH = 20  # files looked at for each new session, on average: 0.1 ms
MOST_BYTES = 256 * 1024  # of one session: about 8,000 texts, more than fit into any context
TWICE_SECONDS = 2.0  # two registrations of the hook fire at the same moment
LOCK_SECONDS = 0.2  # then go on without: two calls at once are rarer than a stuck process
MOST_UNSAVED = 200  # sessions remembered in memory where the folder cannot be written


def text_key(text: str) -> str:
    """Return what stands for ``text`` however it is set: 16 hex digits of its normalised form.

    NFKC, case folded, white space collapsed: the same paragraph out of two sources has one key.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Sessions:
    """The sessions below ``folder``, which is made when first needed.

    A session without an id ("") has no memory. ``now`` is always seconds since the epoch.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = fsio.Lock(str(folder / ".lock"))
        self._unsaved: dict[str, set[str]] = {}
        self._rest = 0  # new sessions until the next cleaning

    def shown(self, session: str) -> set[str]:
        """Return the keys (see :func:`text_key`) of all that ``session`` has been shown."""
        if not session:
            return set()
        shown = set(self._unsaved.get(session, ()))
        for record in self._records(session):
            keys = record.get("shown")
            if isinstance(keys, list):
                shown.update(key for key in keys if isinstance(key, str))
        return shown

    def add(self, session: str, keys: Collection[str], now: float | None = None) -> None:
        """Remember that ``session`` has been shown the texts of ``keys``."""
        if not session or not keys:
            return
        record = {"at": _instant(now), "shown": sorted(keys)}
        try:
            with self._locked():
                self._append(session, record)
        except OSError:
            # Better to forget at the end of this process than to inject on every prompt.
            if len(self._unsaved) >= MOST_UNSAVED:
                del self._unsaved[next(iter(self._unsaved))]
            self._unsaved.setdefault(session, set()).update(keys)

    def forget(self, session: str) -> None:
        """Forget what ``session`` has been shown: its context no longer holds it."""
        if not session:
            return
        self._unsaved.pop(session, None)
        with suppress(OSError), self._locked():
            self._path(session).unlink(missing_ok=True)

    def first_call(self, session: str, prompt_hash: str, now: float | None = None) -> bool:
        """Return whether this is not the second call for one prompt, and remember the call.

        Hosts run the hook twice where it is registered twice, within moments. The same prompt of
        the same session is a second call for ``TWICE_SECONDS`` after the first.
        """
        if not session:
            return True
        instant = _instant(now)
        try:
            with self._locked():
                for record in self._records(session):
                    at = record.get("at")
                    if (
                        record.get("call") == prompt_hash
                        and isinstance(at, int | float)
                        and abs(instant - at) < TWICE_SECONDS
                    ):
                        return False
                self._append(session, {"at": instant, "call": prompt_hash})
        except OSError:
            return True
        return True

    def clean(self, now: float | None = None) -> None:
        """Remove what is older than ``KEPT_SECONDS``, and the oldest beyond ``MOST_SESSIONS``."""
        oldest = _instant(now) - KEPT_SECONDS
        found = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                with suppress(OSError):
                    if not path.name.startswith("."):
                        found.append((path.stat().st_mtime, path))
        self._rest = len(found) // CLEANED_FOR_EACH
        found.sort(reverse=True)
        for position, (changed, path) in enumerate(found):
            if changed < oldest or position >= MOST_SESSIONS:
                with suppress(OSError):
                    path.unlink()

    def _path(self, session: str) -> Path:
        return self.folder / wire.digest(session)  # an id may hold anything

    def _records(self, session: str) -> Iterator[dict[str, object]]:
        try:
            data = self._path(session).read_bytes()
        except OSError:
            return
        for line in data.splitlines():
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(record, dict):
                yield record

    def _append(self, session: str, record: dict[str, object]) -> None:
        path = self._path(session)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
            self._rest -= 1
            if self._rest <= 0:
                self.clean()
        if size > MOST_BYTES:
            lines = path.read_bytes().splitlines(keepends=True)
            fsio.write_atomic(str(path), b"".join(lines[len(lines) // 2 :]))
        fsio.append_line(str(path), _after_broken_line(path) + orjson.dumps(record))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock if it can be had soon. Raises OSError where it cannot be made."""
        fsio.private_folder(str(self.folder))
        self._lock.acquire(LOCK_SECONDS)
        try:
            yield
        finally:
            self._lock.release()


def _after_broken_line(path: Path) -> bytes:
    """Return the newline that the last line of ``path`` lacks if its writer was cut off."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            return b"\n"
    return b""


def _instant(now: float | None) -> float:
    return time.time() if now is None else now
