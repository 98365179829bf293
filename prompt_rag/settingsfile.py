"""Other programs' settings files: read, changed as a whole, and given back as they were.

A file is replaced atomically and keeps its mode; a link stays a link and its target is replaced.
Before the first change a copy is put beside it, and only that copy can say what a file was like
before us. Nothing is written over what somebody else wrote in the meantime.
"""

from __future__ import annotations

import codecs
import difflib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from prompt_rag import fsio
from prompt_rag.domain import ConfigError

BACKUP_SUFFIX = ".prompt-rag.bak"
BOM = codecs.BOM_UTF8


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One file as it was read. ``data`` is None where there is none, ``backup`` likewise.

    ``target`` is where ``path`` leads in the end, ``mode`` the file's permissions.
    """

    path: Path
    target: Path
    data: bytes | None
    mode: int
    backup: bytes | None

    @property
    def backup_path(self) -> Path:
        """Where the copy from before our first change lies."""
        return self.path.with_name(self.path.name + BACKUP_SUFFIX)


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a file: ``after`` are its new bytes, or None where it goes."""

    file: SettingsFile
    after: bytes | None

    @property
    def is_needed(self) -> bool:
        """Whether anything would be different."""
        return self.after != self.file.data

    def diff(self) -> str:
        """Return the change as a unified diff, "" where there is none."""
        sides = (self.file.data, self.after)
        name, other = (os.devnull if side is None else str(self.file.path) for side in sides)
        before, after = map(_lines, sides)
        lines = difflib.unified_diff(before, after, name, other)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def read(path: Path) -> SettingsFile:
    """Read a settings file that may not exist.

    Raises :class:`ConfigError` where it cannot be read.
    """
    try:
        target = path.resolve()
        data = _bytes(target)
        mode = stat.S_IMODE(target.stat().st_mode) if data is not None else fsio.FILE_MODE
        backup = _bytes(path.with_name(path.name + BACKUP_SUFFIX))
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise ConfigError(f"{path} cannot be read: {_why(error)}") from error
    return SettingsFile(path, target, data, mode, backup)


def text_of(path: Path, data: bytes) -> str:
    """Return the text of a file, without its byte order mark, line breaks as they are.

    Raises :class:`ConfigError` where it is not UTF-8.
    """
    try:
        return data.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start})", f"edit {path}") from error


def apply(change: Change, *, keep_backup: bool) -> None:
    """Bring about ``change``.

    With ``keep_backup`` the first change of a file leaves a copy beside it, without it the copy
    goes once the change is made.

    Raises :class:`ConfigError` where the file cannot be written or is no longer what was read; it
    is then as it was.
    """
    file = change.file
    try:
        if change.is_needed:
            _write(change, keep_backup=keep_backup)
        if not keep_backup:
            file.backup_path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{file.path} cannot be written: {_why(error)}") from error


def _write(change: Change, *, keep_backup: bool) -> None:
    file = change.file
    if file.data is not None and not (file.mode & 0o222 and os.access(file.target, os.W_OK)):
        raise ConfigError(f"{file.path} is read-only", f"chmod u+w {file.target}")
    if _bytes(file.target) != file.data:
        raise ConfigError(f"{file.path} was changed a moment ago by another program; try again")
    if change.after is None:
        file.target.unlink()
        return
    if keep_backup and file.data is not None and file.backup is None:
        fsio.write_atomic(str(file.backup_path), file.data, file.mode)
    file.target.parent.mkdir(parents=True, exist_ok=True)
    fsio.write_atomic(str(file.target), change.after, file.mode)
    file.target.chmod(file.mode)  # the process's mask has a say in what is made anew


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _lines(data: bytes | None) -> list[str]:
    # Not splitlines: a form feed or U+2028 inside a string ends no line.
    text = (data or b"").decode("utf-8", "replace")
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
