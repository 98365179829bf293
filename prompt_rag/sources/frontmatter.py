"""What a note's frontmatter says: title, tags, aliases, dates, and whether to leave it alone.

YAML is read with every scalar as a string: ``title: No`` stays "No", ``tags: [2024]`` stays
"2024", an impossible date spoils only itself, and no tag, merge key or number can run code or grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import yaml

# The C loader is about ten times as fast; a PyYAML built without libyaml lacks it.
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
# Frontmatter people write by hand has a few hundred characters, some flat levels and no aliases.
# The bounds keep expansion and the parser's recursion out of reach.
_MAX_CHARS = 64 * 1024
_MAX_DEPTH = 20
_MAX_ALIASES = 8

_NO = frozenset({"false", "no", "off", "0"})
_DATE = re.compile(
    r"""(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})
        (?: [Tt\s]\s* (\d{1,2}):(\d{2}) (?: :(\d{2}) (?:[.,]\d+)? )?
            \s* (?: (?P<utc>Z|z|UTC|GMT) | (?P<sign>[+-])(\d{2}):?(\d{2})? )? )?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The keys of a note's frontmatter that matter here; empty where it has none.

    ``indexed`` is false where the note says ``prompt-rag: false``. Tags come without ``#``.
    """

    title: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    created_at: datetime | None = None
    modified_at: datetime | None = None
    indexed: bool = True


def parse(raw: str) -> Frontmatter | None:
    """Read frontmatter; None where ``raw`` is not a YAML mapping and thus part of the body."""
    mapping = _mapping(raw)
    if mapping is None:
        return None
    return Frontmatter(
        title=_line(mapping.get("title")),
        tags=unique(
            tag
            for key in ("tags", "tag")
            for part in _list(mapping.get(key))
            if (tag := _tag(part))
        ),
        aliases=unique(
            alias
            for key in ("aliases", "alias")
            for part in _list(mapping.get(key), spaces=False)
            if (alias := _line(part))
        ),
        created_at=_first_instant(mapping, "created", "date"),
        modified_at=_first_instant(mapping, "updated", "modified"),
        indexed=all(
            _line(mapping.get(key)).casefold() not in _NO for key in ("prompt-rag", "prompt_rag")
        ),
    )


def unique(words: Iterable[str]) -> tuple[str, ...]:
    """Return each word once, whatever its case, as it was first spelled."""
    first: dict[str, str] = {}
    for word in words:
        first.setdefault(word.casefold(), word)
    return tuple(first.values())


def instant(text: str) -> datetime | None:
    """Read a date with or without a time; without an offset it counts as UTC.

    Knows ``2024-05-01``, ``2024/5/1 9:30`` and ISO 8601 with an offset. None where it is no date.
    """
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    offset = timedelta()
    if found["sign"]:
        hours, minutes = (int(part or 0) for part in found.groups()[8:10])
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if found["sign"] == "-" else 1)
    try:
        local = datetime(year, month, day, hour, minute, second, tzinfo=timezone(offset))
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _mapping(raw: str) -> dict[str, Any] | None:
    """Return the YAML mapping with its keys in lower case, None where it is none."""
    if len(raw) > _MAX_CHARS:
        return None
    try:
        if not _is_modest(raw):
            return None
        loaded = yaml.load(raw, Loader=_LOADER)  # noqa: S506 - it makes strings, lists and dicts only
    except yaml.YAMLError:
        return None
    if not isinstance(loaded, dict):
        return None
    return {str(key).casefold(): value for key, value in loaded.items()}


def _is_modest(raw: str) -> bool:
    """Whether nesting and aliases stay within what a person writes; the parser never recurses."""
    depth = aliases = 0
    for event in yaml.parse(raw, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        if depth > _MAX_DEPTH or aliases > _MAX_ALIASES:
            return False
    return True


def _line(value: object) -> str:
    """Return a string on one line, "" for anything else."""
    return " ".join(value.split()) if isinstance(value, str) else ""


def _list(value: object, *, spaces: bool = True) -> list[object]:
    """Return a list as it is, and a string split at commas or, with ``spaces``, else at spaces."""
    if isinstance(value, str):
        if "," in value:
            return list(value.split(","))
        return list(value.split()) if spaces else [value]
    return value if isinstance(value, list) else []


def _tag(value: object) -> str:
    return _line(value).strip("#").strip("/ ")


def _first_instant(mapping: dict[str, Any], *keys: str) -> datetime | None:
    found = (instant(_line(mapping.get(key))) for key in keys)
    return next((each for each in found if each is not None), None)
