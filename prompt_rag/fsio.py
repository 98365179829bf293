"""Folders, atomic writes, locks and appended lines: the only place that creates files for us.

The hook imports this module on every prompt, so it uses ``os`` and what the interpreter has
loaded anyway; ``fcntl``, ``hashlib`` and ``time`` are imported where they are used.

Folders are made 0700 and files 0600. A lock is a ``flock`` on a file that is never unlinked:
the kernel drops it when its holder dies, and no second file of the same name can be locked beside
it.
"""

from __future__ import annotations

import os

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def private_folder(path: str) -> str:
    """Create ``path`` and its missing parents with mode 0700 and return it.

    Raises OSError where it cannot be made, PermissionError where it belongs to another user.
    """
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent not in ("", path) and not os.path.isdir(parent):
            private_folder(parent)
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
    if hasattr(os, "getuid") and os.stat(path).st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    return path


def fsync_folder(path: str) -> None:
    """Make a rename inside ``path`` durable; a platform that cannot is left alone."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)


def write_atomic(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Replace ``path`` by ``data`` so that a reader sees the old bytes or the new, never a part.

    The bytes go to a temporary file in the same folder, are synced, and renamed over ``path``.
    On any exception, interrupts included, the temporary file is removed and ``path`` is as before.
    """
    folder, name = os.path.split(os.path.abspath(path))
    # The process id only keeps two writers' temporary names apart; it identifies nobody.
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    fsync_folder(folder)


def append_line(path: str, line: bytes, *, rotate_above: int = 0) -> None:
    """Append ``line`` and a newline to ``path`` in one write, so that lines never interleave.

    A file that has grown past ``rotate_above`` bytes (0: never) becomes ``<path>.1`` first.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    fd = os.open(path, flags, FILE_MODE)
    try:
        if rotate_above and os.fstat(fd).st_size > rotate_above:
            os.close(fd)
            fd = -1
            os.replace(path, path + ".1")
            fd = os.open(path, flags, FILE_MODE)
        os.write(fd, line.rstrip(b"\n") + b"\n")
    finally:
        if fd >= 0:
            os.close(fd)


class Lock:
    """An exclusive ``flock`` on ``path``; a context manager that holds it for its block.

    ``note`` is written into the file for a person who looks; nothing reads it to decide.
    """

    def __init__(self, path: str, note: str = "") -> None:
        self.path = path
        self.note = note
        self._fd = -1

    def acquire(self, wait_seconds: float = 0.0) -> bool:
        """Take the lock within ``wait_seconds``; return whether it is held now."""
        import fcntl  # not on the hook's path, and absent on Windows
        import time

        if self._fd >= 0:
            return True
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        give_up = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    os.close(fd)
                    return False
                time.sleep(0.05)
            except BaseException:
                os.close(fd)
                raise
            else:
                break
        self._fd = fd
        os.ftruncate(fd, 0)
        os.pwrite(fd, self.note.encode(), 0)
        return True

    def release(self) -> None:
        """Give the lock back; the file stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd >= 0

    def __enter__(self) -> Lock:
        if not self.held and not self.acquire():
            raise BlockingIOError(f"{self.path} is locked by another process")
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def sha256_file(path: str) -> str:
    """Return the sha256 of the file's bytes as lower-case hex. Raises OSError."""
    import hashlib  # loads OpenSSL; no business of the hook

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
