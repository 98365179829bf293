"""Edits of ``config.toml`` that keep a person's comments, order and spacing.

The file is read, changed through tomlkit, checked by loading the result, and only then replaced,
atomically: a file that does not load is never written. Beside it a flat copy of the few settings
that the hook needs is kept in the home, because a TOML parser is too slow to load on every prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
from tomlkit.items import AoT, Array, Comment, Item, Key, Table

from prompt_rag import config as configuration
from prompt_rag import fsio, wire
from prompt_rag.config import Config, SourceSettings
from prompt_rag.domain import ConfigError

_Body = list[tuple[Key | None, Item]]

HOME_README = """\
This folder belongs to prompt-rag: the search index of your notes, its log and its sessions.
Your notes themselves are not here. It is safe to delete: `prompt-rag rebuild` makes the index anew,
and `prompt-rag init` the settings, if there is a config.toml beside this file.
"""


def set_value(config: Config, key: str, text: str) -> Config:
    """Write ``key`` to the file, ``text`` as a person types it, and return the new settings.

    Raises :class:`ConfigError` where the key is unknown, the value does not fit, or the file cannot
    be written; the file is then as it was.
    """
    value = configuration.parsed(key, text, "value")

    def change(document: tomlkit.TOMLDocument) -> None:
        section, dot, name = key.rpartition(".")
        if dot and section not in document:
            document.add(section, tomlkit.table())
        place: Any = document[section] if dot else document
        if not dot and name not in document:
            _keep_above_first_table(document)
        body = place.value.body if isinstance(place, Table) else []
        tail = _tail(body)
        place[name] = list(value) if isinstance(value, tuple) else value
        body.extend(tail)

    return _edit(config, change)


def add_source(config: Config, source: SourceSettings) -> Config:
    """Append a ``[[source]]``.

    Raises :class:`ConfigError` where the name or the folder is taken, or as :func:`set_value` does.
    """
    for existing in config.sources:
        if existing.name == source.name:
            raise ConfigError(
                f"a source named {source.name} exists", f"prompt-rag source remove {source.name}"
            )
        if (existing.kind, existing.path) == (source.kind, source.path):
            raise ConfigError(
                f"{source.path or 'Bear'} is already the source {existing.name}",
                "prompt-rag source list",
            )

    def change(document: tomlkit.TOMLDocument) -> None:
        listed: Any = document.get("source")
        # What somebody wrote as `source = [{…}]` stays a list.
        table: Any = tomlkit.inline_table() if isinstance(listed, Array) else tomlkit.table()
        table["name"], table["kind"] = source.name, source.kind
        if source.path is not None:
            table["path"] = str(source.path)
        for key in ("include", "exclude", "exclude_tags"):
            if getattr(source, key):
                table[key] = list(getattr(source, key))
        if listed is None:
            document.add("source", tomlkit.aot())
            listed = document["source"]
        if isinstance(table, Table):
            table.value.body.extend(_tail(listed[-1].value.body) if listed else [])
            table.trivia.indent = "\n" if len(document) > 1 or listed else ""
        listed.append(table)

    return _edit(config, change)


def remove_source(config: Config, name: str) -> Config:
    """Take the source ``name`` out of the file.

    Raises :class:`ConfigError` where there is none, or as :func:`set_value` does.
    """
    names = [source.name for source in config.sources]
    if name not in names:
        known = ", ".join(names) or "none"
        raise ConfigError(
            f"no source is named {name} (there are: {known})", "prompt-rag source list"
        )

    def change(document: tomlkit.TOMLDocument) -> None:
        tables: Any = document["source"]
        place = [table["name"] for table in tables].index(name)
        tail = _tail(tables[place].value.body) if isinstance(tables[place], Table) else []
        del tables[place]
        if place < len(tables) and tail:
            tables[place].trivia.indent = _text(tail) + tables[place].trivia.indent
        elif tables:
            tables[-1].value.body.extend(tail)
        elif not isinstance(tables, Array):
            index = next(i for i, (key, _) in enumerate(document.body) if key == "source")
            del document["source"]
            document.body[index] = (None, tomlkit.ws(_text(tail)))

    return _edit(config, change)


def prepare_home(config: Config) -> None:
    """Make the home folder, its README and the hook's flat settings.

    The hook reads variables itself, so that what is set for one call does not stick.

    Raises OSError where the folder cannot be made.
    """
    fsio.private_folder(str(config.home))
    readme = config.home / "README"
    if not readme.exists():
        fsio.write_atomic(str(readme), HOME_README.encode())
    if set(map(config.origins.get, wire.SETTING_KEYS)) - {"default", str(config.file)}:
        config = configuration.load(config.home, environment={})
    lines = "".join(f"{key} = {config.value(key)}\n" for key in wire.SETTING_KEYS).encode()
    target = config.home / wire.SETTINGS
    if not target.exists() or target.read_bytes() != lines:
        fsio.write_atomic(str(target), lines)


# --- the file -----------------------------------------------------------------------------------


def _edit(config: Config, change: Callable[[tomlkit.TOMLDocument], None]) -> Config:
    file = config.file
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", f"edit {file}") from error
    # tomlkit ends the lines it adds with \n; where all others end with \r\n, so shall these.
    crlf = 0 < text.count("\n") == text.count("\r\n")
    try:
        document = tomlkit.parse(text.replace("\r\n", "\n") if crlf else text)
    except tomlkit.exceptions.ParseError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}", f"edit {file}") from error
    change(document)
    text = tomlkit.dumps(document)
    changed = configuration.load(config.home, text=text)
    _write(file, text.replace("\n", "\r\n") if crlf else text)
    prepare_home(changed)
    return changed


def _write(file: Path, text: str) -> None:
    try:
        # A link into somebody's dotfiles stays a link: its target is replaced.
        target = file.resolve()
        fsio.private_folder(str(target.parent))
        fsio.write_atomic(str(target), text.encode("utf-8"))
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"{file} cannot be written: {error}") from error


def _tail(body: _Body) -> _Body:
    """Take comments and empty lines off the end of a table: they are about what follows it."""
    tail: _Body = []
    while body and body[-1][0] is None:
        tail.insert(0, body.pop())
    return tail


def _text(tail: _Body) -> str:
    return "".join(item.as_string() for _, item in tail)


def _has_head(key: Key | None, item: Item) -> bool:
    return isinstance(item, AoT) or (
        isinstance(item, Table) and key is not None and not key.is_dotted()
    )


def _keep_above_first_table(document: tomlkit.TOMLDocument) -> None:
    """Tie the comments right above the first table to it, so that a new key goes above them."""
    body = document.body
    heads = (i for i, (key, item) in enumerate(body) if _has_head(key, item))
    start = first = next(heads, 0)
    while start > 0 and isinstance(body[start - 1][1], Comment):
        start -= 1
    if start < first:
        head: Any = body[first][1]
        table = head[0] if isinstance(head, AoT) else head
        table.trivia.indent = "\n" + _text(body[start:first]) + table.trivia.indent
        body[start:first] = [(None, tomlkit.ws("")) for _ in range(start, first)]
