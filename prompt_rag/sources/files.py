"""Reading one file of a stranger's folder: never a pipe, never without end, never for ever."""

from __future__ import annotations

import codecs
import errno
import os
import queue
import stat
import threading
from pathlib import Path

# A note of two megabytes is a book; what is larger under a note's name is an export or a log.
MAX_BYTES = 2 * 1024 * 1024
# From a slow network drive the largest note takes about a second. A placeholder whose download
# does not come makes the read hang instead of fail.
READ_SECONDS = 10.0
# After so many reads that never came back the folder is taken for unreachable, and the scan ends
# in half a minute instead of hours.
MAX_STUCK = 3

NOT_DOWNLOADED = "not downloaded from iCloud"
_DATALESS = 0x40000000  # SF_DATALESS of macOS: the contents are elsewhere
# What macOS answers to a read it will not download for: EDEADLK, which is 11 there.
_WILL_NOT_DOWNLOAD = frozenset({11, errno.EDEADLK})


class LeftOut(Exception):
    """A file is no note, or cannot be one now; ``why`` and ``keep`` as in ``domain.Skipped``."""

    def __init__(self, why: str, *, keep: bool) -> None:
        super().__init__(why)
        self.why = why
        self.keep = keep


def why_unread(error: OSError) -> str:
    """Say in a few words why a file or folder could not be read."""
    if isinstance(error, TimeoutError):
        return "reading it took too long"
    if error.errno in _WILL_NOT_DOWNLOAD:
        return NOT_DOWNLOADED
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def is_placeholder(status: os.stat_result) -> bool:
    """Whether a cloud keeps the contents, so that reading would wait for a download."""
    return bool(getattr(status, "st_flags", 0) & _DATALESS)


def status_of(path: str) -> os.stat_result:
    """Return the status of a file worth reading. Raises :class:`LeftOut` and OSError."""
    status = Path(path).stat()
    if is_placeholder(status):
        raise LeftOut(NOT_DOWNLOADED, keep=True)
    if not stat.S_ISREG(status.st_mode):
        raise LeftOut("not a regular file", keep=False)
    if status.st_size > MAX_BYTES:
        raise LeftOut(f"larger than {MAX_BYTES >> 20} MB", keep=False)
    return status


def read_bytes(path: str) -> bytes:
    """Return the bytes of a regular file, whatever happened to it since it was looked at.

    Raises :class:`LeftOut` and OSError.
    """
    # Should a pipe have taken the file's place, opening must not wait for its other end.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise LeftOut("not a regular file", keep=False)
        data = bytearray()
        while part := file.read(MAX_BYTES + 1 - len(data)):
            data += part
    if len(data) > MAX_BYTES:
        raise LeftOut(f"larger than {MAX_BYTES >> 20} MB", keep=False)
    return bytes(data)


class Reader:
    """Reads files one after the other on a thread that can be left behind.

    A read that hangs in the kernel cannot be interrupted; its thread is abandoned (it is a daemon
    and holds nothing) and the next file gets a new one.
    """

    def __init__(self, seconds: float = READ_SECONDS) -> None:
        self._seconds = seconds
        self._stuck = 0
        self._requests: queue.SimpleQueue[str | None] | None = None
        self._replies: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def read(self, path: str) -> bytes:
        """Return the bytes of ``path``. Raises :class:`LeftOut` and OSError.

        The OSError is a TimeoutError where the read does not come back within the seconds given,
        and at once after ``MAX_STUCK`` of them.
        """
        if self._stuck >= MAX_STUCK:
            raise TimeoutError
        if self._requests is None:
            self._requests, self._replies = queue.SimpleQueue(), queue.SimpleQueue()
            threading.Thread(
                target=_serve, args=(self._requests, self._replies), daemon=True
            ).start()
        self._requests.put(path)
        try:
            reply = self._replies.get(timeout=self._seconds)
        except queue.Empty:
            self._stuck += 1
            self.close()
            raise TimeoutError from None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        """Let the thread end, now or when its read comes back."""
        if self._requests is not None:
            self._requests.put(None)
            self._requests = None


def _serve(
    requests: queue.SimpleQueue[str | None], replies: queue.SimpleQueue[bytes | Exception]
) -> None:
    while (path := requests.get()) is not None:
        try:
            replies.put(read_bytes(path))
        except Exception as error:  # noqa: BLE001 - the caller raises it again
            replies.put(error)


def decoded(data: bytes) -> str:
    """Return the text of a note: UTF-8, or UTF-16 that says so. Raises :class:`LeftOut`."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        # Most binary files are no UTF-8 either; a NUL tells them from a text in another code.
        why = "binary" if b"\0" in data and not wide else "not UTF-8"
        raise LeftOut(why, keep=False) from None
    if "\0" in text:
        raise LeftOut("binary", keep=False)
    return text
