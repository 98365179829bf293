"""Standard output kept for one protocol alone.

What a library prints, or native code writes, would break the stream that a client parses. So
descriptor 1 leads to stderr, and whoever speaks the protocol gets the real output.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator


class Output:
    """Takes standard output away from everybody; stderr gets what is meant for it from now on."""

    def __init__(self) -> None:
        _flush()
        # Above stderr: where that is closed, its number would be the next one given out.
        self._real = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        _divert()

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        """Let descriptor 1 be the real output inside the block, for one that guards it itself."""
        _flush()
        os.dup2(self._real, 1)
        try:
            yield
        finally:
            _divert()
            # What was printed inside and is still in a buffer must not come out at exit.
            _flush()


def _divert() -> None:
    try:
        os.dup2(2, 1)
    except OSError:  # the client has closed it; null takes its place
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        if null != 2:
            os.close(null)


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
        sys.stdout.flush()
