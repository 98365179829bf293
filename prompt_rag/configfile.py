"""Edits of ``config.toml`` that keep a person's comments, order and spacing.

The file is read, changed through tomlkit, checked by loading the result, and replaced atomically;
a file that does not parse is never written. Beside it a flat copy of the few settings that the
hook needs is kept in the home, because a TOML parser is too slow to load on every prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from prompt_rag import config as configuration
from prompt_rag import fsio, wire
from prompt_rag.config import Config, SourceSettings
from prompt_rag.domain import ConfigError

HOME_README = """\
This folder belongs to prompt-rag: the search index of your notes, its log and its sessions.
Your notes themselves are not here. It is safe to delete; `prompt-rag rebuild` makes it anew.
"""


def set_value(config: Config, key: str, text: str) -> Config:
    """Write ``key`` to the file, ``text`` as a person types it, and return the new settings.

    Raises :class:`ConfigError` where the key is unknown or the value does not fit.
    """
    value = configuration.parsed(key, text, "value")

    def change(document: tomlkit.TOMLDocument) -> None:
        *tables, last = key.split(".")
        place: Any = document
        for name in tables:
            if name not in place:
                place.add(name, tomlkit.table())
            place = place[name]
        place[last] = list(value) if isinstance(value, tuple) else value

    return _edit(config, change)


def add_source(config: Config, source: SourceSettings) -> Config:
    """Append a ``[[source]]``. Raises :class:`ConfigError` where the name or folder is taken."""
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
        table = tomlkit.table()
        table["name"], table["kind"] = source.name, source.kind
        if source.path is not None:
            table["path"] = str(source.path)
        for key in ("include", "exclude", "exclude_tags"):
            if getattr(source, key):
                table[key] = list(getattr(source, key))
        if "source" not in document:
            document.add("source", tomlkit.aot())
        document["source"].append(table)

    return _edit(config, change)


def remove_source(config: Config, name: str) -> Config:
    """Take the source ``name`` out of the file. Raises :class:`ConfigError` where there is none."""
    names = [source.name for source in config.sources]
    if name not in names:
        known = ", ".join(names) or "none"
        raise ConfigError(
            f"no source is named {name} (there are: {known})", "prompt-rag source list"
        )

    def change(document: tomlkit.TOMLDocument) -> None:
        tables: Any = document["source"]
        for position, table in enumerate(tables):
            if table["name"] == name:
                del tables[position]
                break
        if not tables:
            del document["source"]

    return _edit(config, change)


def prepare_home(config: Config) -> None:
    """Make the home folder, its README and the hook's flat settings.

    Raises OSError where the folder cannot be made.
    """
    fsio.private_folder(str(config.home))
    readme = config.home / "README"
    if not readme.exists():
        fsio.write_atomic(str(readme), HOME_README.encode())
    lines = "".join(f"{key} = {config.value(key)}\n" for key in wire.SETTING_KEYS)
    target = config.home / wire.SETTINGS
    if not target.exists() or target.read_text() != lines:
        fsio.write_atomic(str(target), lines.encode())


def _edit(config: Config, change: Callable[[tomlkit.TOMLDocument], None]) -> Config:
    file = config.file
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.ParseError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}", f"edit {file}") from error
    change(document)
    _write(file, tomlkit.dumps(document))
    try:
        changed = configuration.load(config.home)
    except ConfigError:
        _write(file, text)
        raise
    prepare_home(changed)
    return changed


def _write(file: Path, text: str) -> None:
    # A link into somebody's dotfiles stays a link: its target is replaced.
    target = file.resolve()
    fsio.private_folder(str(target.parent))
    fsio.write_atomic(str(target), text.encode("utf-8"))
