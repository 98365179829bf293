"""The pause: until when the hook stays silent on request.

``<home>/paused`` holds one number, seconds since the epoch in UTC, or ``inf``. A file that does not
hold one pauses nothing.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from prompt_rag import fsio

FILE = "paused"


def paused_until(home: Path) -> float | None:
    """Return the instant at which the pause ends (``inf``: when it is ended), None without one."""
    try:
        until = float((home / FILE).read_text("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    return until if until > time.time() else None  # what is not a number is not later either


def pause(home: Path, until: float) -> None:
    """Stay silent until the instant ``until``. Raises OSError."""
    fsio.private_folder(str(home))
    fsio.write_atomic(str(home / FILE), str(until).encode())


def resume(home: Path) -> None:
    """End the pause. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        (home / FILE).unlink()
