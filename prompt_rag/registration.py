"""How hooks are written into a host's settings, as text to text: added, found, taken out.

Four forms are in use. *Groups* are Claude Code's: below ``hooks`` and the event stand groups with
an optional matcher, each with a list of hooks. *Flat* lists have the hooks right below the event.
A TOML file has one ``[[hooks]]`` table for each. A *plugin* is a file of its own.

An entry is ours when it runs our program for a host, wherever it stands and whatever else it says:
so entries of an older version are found, and what a person moved or edited is still recognised.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Protocol

from prompt_rag import jsonc

PROGRAMS = ("prompt-rag-hook", "prompt-rag")
"""The launcher, and the program itself, which people registered by hand before it existed."""

HOST_OPTION = "--host"
COMMAND_KEYS = ("command", "bash")
_HOOKS = "hooks"

Command = tuple[str, ...]
"""A program and its arguments."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One hook to write: below ``event``, for the tools of ``matcher`` where that is not ""."""

    event: str
    matcher: str
    fields: dict[str, Any]


class NotEditable(ValueError):
    """The text could be read, but is not one that we may or can edit."""


UNFIT = (jsonc.Malformed, tomllib.TOMLDecodeError, NotEditable)
"""What says that a text is not in a form."""


class Form(Protocol):
    """One way of writing hooks; every method raises one of ``UNFIT`` for a text not in it."""

    def add(self, text: str, entries: Sequence[Entry]) -> str:
        """Return ``text``, which holds nothing of ours, with all ``entries``."""

    def remove(self, text: str) -> str:
        """Return ``text`` without any entry of ours, and without what is empty for want of them."""

    def found(self, text: str) -> list[Entry]:
        """Return our entries, in the order of the file."""

    def is_current(self, text: str, entries: Sequence[Entry]) -> bool:
        """Whether exactly ``entries`` are what ``text`` holds of ours."""

    def is_husk(self, text: str) -> bool:
        """Whether ``text`` is what removing leaves of a file that was made for our entries."""


def command_of(entry: object) -> Command:
    """Return the command that a hook's table runs, () where it runs none that we could read."""
    if not isinstance(entry, dict):
        return ()
    line = next((entry[key] for key in COMMAND_KEYS if isinstance(entry.get(key), str)), "")
    arguments = entry.get("args")
    if isinstance(arguments, list) and all(isinstance(each, str) for each in arguments):
        return (line, *arguments)
    try:
        return tuple(shlex.split(line))
    except ValueError:  # a quotation without an end
        return ()


def is_ours(entry: object) -> bool:
    """Whether a hook's table runs prompt-rag for a host."""
    command = command_of(entry)
    if not command or not any(each.startswith(HOST_OPTION) for each in command):
        return False
    name = PurePath(command[0]).name
    return name in PROGRAMS or command[1:3] == ("-m", "prompt_rag")


# --- JSON ---------------------------------------------------------------------------------------

_EMPTY = "{}\n"
# What may be left empty around an entry that is cut out, from the inside: how much of its path
# leads to the list or object, and how much of it is cut with that.
_AROUND_GROUPED = ((4, 3), (2, 2), (1, 1))
_AROUND_FLAT = ((2, 2), (1, 1))


@dataclass(frozen=True, slots=True)
class JsonForm:
    """Hooks in JSON, in groups or flat; ``version`` is a member that the host asks for."""

    grouped: bool
    version: int | None = None

    def add(self, text: str, entries: Sequence[Entry]) -> str:
        """Append each entry to the list of its event."""
        text = self._versioned(text if text.strip() else _EMPTY)
        for entry in entries:
            item: dict[str, Any] = {"matcher": entry.matcher} if entry.matcher else {}
            item |= {"hooks": [entry.fields]} if self.grouped else entry.fields
            text = jsonc.append(text, (_HOOKS, entry.event), item)
        return text

    def remove(self, text: str) -> str:
        """Cut our entries out, one after the other; what a person commented on stays."""
        while (path := next((path for path, _ in self._entries(text)), None)) is not None:
            text = jsonc.remove(text, path)
            for inner, cut in _AROUND_GROUPED if self.grouped else _AROUND_FLAT:
                if _at(text, path[:inner]) or not jsonc.is_bare(text, path[:cut]):
                    break
                text = jsonc.remove(text, path[:cut])
        return text

    def found(self, text: str) -> list[Entry]:
        """List our entries."""
        return [entry for _, entry in self._entries(text)]

    def is_current(self, text: str, entries: Sequence[Entry]) -> bool:
        """Whether nothing of ours is missing, too much, or different."""
        return _by_event(self.found(text)) == _by_event(entries)

    def is_husk(self, text: str) -> bool:
        """Whether that is what removing leaves of a file that was made for our entries."""
        return text in ("", self._versioned(_EMPTY))

    def _versioned(self, text: str) -> str:
        if self.version is None:
            return text
        return jsonc.set_missing(text, "version", self.version)

    def _entries(self, text: str) -> Iterator[tuple[tuple[jsonc.Step, ...], Entry]]:
        document = jsonc.parse(text).value if text.strip() else {}
        for event, place, item in _items(document):
            matcher = item.get("matcher", "")
            if not self.grouped:
                if is_ours(item):
                    fields = {key: value for key, value in item.items() if key != "matcher"}
                    yield (_HOOKS, event, place), Entry(event, matcher, fields)
                continue
            inside = item.get(_HOOKS)
            for inner, hook in enumerate(inside if isinstance(inside, list) else ()):
                if is_ours(hook):
                    yield (_HOOKS, event, place, _HOOKS, inner), Entry(event, matcher, hook)


def _items(document: object) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield event, position and value of each object below ``hooks``, whatever else is there."""
    events = document.get(_HOOKS) if isinstance(document, dict) else None
    for event, listed in events.items() if isinstance(events, dict) else ():
        for place, item in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(item, dict):
                yield event, place, item


def _by_event(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=attrgetter("event"))


def _at(text: str, path: Sequence[jsonc.Step]) -> Any:
    value = jsonc.parse(text).value
    for step in path:
        value = value[step]
    return value


# --- TOML ---------------------------------------------------------------------------------------

_BY_HAND = "its hooks are written in a way that only you can edit"
_HEADER = re.compile(r"^[ \t]*\[[^\r\n]*", re.MULTILINE)
_OWN_HEADER = re.compile(r"[ \t]*\[\[[ \t]*hooks[ \t]*\]\]")
_SAYS_NOTHING = re.compile(r"[ \t]*(?:#.*)?\r?\n?")


@dataclass(frozen=True, slots=True)
class TomlForm:
    """Hooks as ``[[hooks]]`` tables of a TOML file, ours at its end.

    Its host refuses the whole file for a key that it does not know, so a table says nothing but
    what the entry says. What is found by its looks is checked against what a parser reads.
    """

    def add(self, text: str, entries: Sequence[Entry]) -> str:
        """Append a table for each entry."""
        newline = "\r\n" if "\r\n" in text else "\n"
        new = text if not text or text.endswith("\n") else text + newline
        for entry in entries:
            table = {"event": entry.event, "matcher": entry.matcher, **entry.fields}
            lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value != ""]
            new += newline.join([*([""] if new else []), f"[[{_HOOKS}]]", *lines, ""])
        self._check(text, new)
        return new

    def remove(self, text: str) -> str:
        """Cut our tables out, each with the empty line before it."""
        tomllib.loads(text)
        heads = list(_HEADER.finditer(text))
        new = text
        for head, following in reversed([*zip_longest(heads, heads[1:])]):
            block = text[head.start() : following.start() if following else len(text)]
            if not _OWN_HEADER.fullmatch(head[0].rstrip()) or not is_ours(_table(block)):
                continue
            lines = block.splitlines(keepends=True)
            while _SAYS_NOTHING.fullmatch(lines[-1]):
                lines.pop()  # what stands above the next table is about that
            start, end = head.start(), head.start() + len("".join(lines))
            if new[:start].endswith(("\n\n", "\n\r\n")):
                start -= 2 if new[:start].endswith("\r\n") else 1
            new = new[:start] + new[end:]
        self._check(text, new)
        if self.found(new):
            raise NotEditable(_BY_HAND)
        return new

    def found(self, text: str) -> list[Entry]:
        """List our tables."""
        tables = tomllib.loads(text).get(_HOOKS)
        ours = [each for each in tables if is_ours(each)] if isinstance(tables, list) else []
        return [Entry(each.pop("event", ""), each.pop("matcher", ""), each) for each in ours]

    def is_current(self, text: str, entries: Sequence[Entry]) -> bool:
        """Whether nothing of ours is missing, too much, or different."""
        return _by_event(self.found(text)) == _by_event(entries)

    def is_husk(self, text: str) -> bool:
        """Whether that is what removing leaves of a file that was made for our entries."""
        return not text

    @staticmethod
    def _check(before: str, after: str) -> None:
        """Raise NotEditable where more than our own tables would change."""
        if _without_ours(before) != _without_ours(after):
            raise NotEditable(_BY_HAND)


def _toml(value: object) -> str:
    """Return a string or a whole number; those of JSON are TOML too."""
    return json.dumps(value, ensure_ascii=False)


def _table(block: str) -> object:
    try:
        return tomllib.loads(block)[_HOOKS][0]
    except tomllib.TOMLDecodeError:  # it goes on behind what looked like a header
        return None


def _without_ours(text: str) -> dict[str, Any]:
    document = tomllib.loads(text)
    if isinstance(document.get(_HOOKS), list):
        document[_HOOKS] = [each for each in document[_HOOKS] if not is_ours(each)]
        if not document[_HOOKS]:
            del document[_HOOKS]
    return document


# --- a plugin -----------------------------------------------------------------------------------

_PROGRAM_LINE = re.compile(r"^const program = (\[.*\])$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PluginForm:
    """A file of our own that a host loads as code: ``template`` with our command filled in."""

    template: str

    def add(self, text: str, entries: Sequence[Entry]) -> str:
        """Fill the template in; the command is that of the first entry."""
        if text.strip():
            raise NotEditable("it is not prompt-rag's")
        command = json.dumps(command_of(entries[0].fields))
        return _PROGRAM_LINE.sub(lambda _: f"const program = {command}", self.template)

    def remove(self, text: str) -> str:
        """Return nothing where the file is ours."""
        return "" if self.found(text) else text

    def found(self, text: str) -> list[Entry]:
        """List the one command there is."""
        match = _PROGRAM_LINE.search(text)
        command = json.loads(match[1]) if match else []
        fields = {"command": command[0], "args": command[1:]} if command else {}
        return [Entry("", "", fields)] if is_ours(fields) else []

    def is_current(self, text: str, entries: Sequence[Entry]) -> bool:
        """Whether ``text`` is what would be written."""
        return text == self.add("", entries)

    def is_husk(self, text: str) -> bool:
        """Whether nothing is left."""
        return not text
