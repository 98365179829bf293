"""Path patterns as people know them from ``.gitignore``.

``*`` and ``?`` stop at a slash, ``**`` does not, ``[a-z]`` is one character. A pattern without a
slash names a file or folder anywhere, one with a slash starts at the top, and naming a folder
takes in all that is below it. Matching is by exact case on paths in NFC.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_PART = re.compile(r"(?:/\*\*)+(?=/|$)|\*+|\?|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)


class Globs:
    """A set of patterns. Raises ValueError naming the pattern that cannot be read."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def match(self, path: str) -> bool:
        """Whether a pattern names ``path`` (below the top, with ``/``) or a folder above it."""
        return any(pattern.match(f"/{path}") for pattern in self._patterns)


def _compiled(glob: str) -> re.Pattern[str]:
    text = unicodedata.normalize("NFC", glob.strip())
    # "Archive/" and "Archive/**" name the folder as "Archive" does; only its slash is a difference.
    below = text.rstrip("/")
    while below.endswith("/**"):
        below = below.removesuffix("/**").rstrip("/")
    anchored = "/" in text.rstrip("/")
    below = below.lstrip("/")
    if not below:
        raise ValueError(f"{glob!r} is not a pattern")
    # As if every pattern stood below a folder: "/**" then always means "or any folder deeper".
    expression = "".join(_translated(part[0]) for part in _PART.finditer("/" + below))
    top = "" if anchored else "(?:/[^/]+)*?"
    try:
        return re.compile(f"{top}{expression}(?:/|$)", re.DOTALL)
    except re.error as error:
        raise ValueError(f"{glob!r} is not a pattern: {error}") from error


def _translated(part: str) -> str:
    if part.startswith("/**"):
        return "(?:/[^/]+)*"
    if part[0] == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part[0] == "[" and len(part) > 1:
        inner = part[1:-1]
        negated = inner[0] in "!^"
        inner = (inner[1:] if negated else inner).replace("\\", r"\\").replace("[", r"\[")
        inner = inner.replace("]", r"\]")
        return f"(?!/)[{'^' if negated else ''}{inner}]"
    return re.escape(part[-1])
