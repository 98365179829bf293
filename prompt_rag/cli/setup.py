"""``init``, ``source``, ``config`` and ``model``: what is indexed, and how."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click

from prompt_rag import config as configuration
from prompt_rag import configfile, embedder
from prompt_rag.cli import output
from prompt_rag.cli.index import build, print_report
from prompt_rag.config import SETTING_FIELDS, Config, SourceSettings
from prompt_rag.domain import ConfigError, SourceError
from prompt_rag.sources import bear

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# Where people keep notes; a vault of Obsidian is recognised wherever it lies one level below.
LIKELY_FOLDERS = ("Notes", "notes", "Documents/Notes", "Documents/notes", "Zettelkasten", "wiki")
VAULT_PARENTS = (".", "Documents", "Obsidian", "Documents/Obsidian")
VAULT_MARK = ".obsidian"
MARKDOWN_SUFFIXES = (".md", ".markdown")

HOOK_HELP = """
Put it into Claude Code: add this to ~/.claude/settings.json

  {"hooks": {"UserPromptSubmit": [{"hooks": [
     {"type": "command", "command": "%s", "args": ["hook", "--host", "claude"], "timeout": 10}]}]}}

Try it without an agent: prompt-rag explain "a question one of your notes answers"
"""


# --- init ---------------------------------------------------------------------------------------


@click.command()
@click.option("--yes", "-y", is_flag=True, help="Take what is found without asking.")
@click.option("--markdown", "folders", type=FOLDER, multiple=True, help="A folder of notes.")
@click.option(
    "--bear",
    "bear_database",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[DB]",
    help="Index Bear; DB where its database is not in Bear's own place.",
)
@output.json_option
@output.quiet_option
def init(
    yes: bool,
    folders: tuple[Path, ...],
    bear_database: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find your notes, write the configuration, build the index."""
    config = configuration.load()
    wanted = _named_sources(folders, bear_database) or _found_sources(config, ask=not yes)
    for kind, path in wanted:
        if not any((each.kind, each.path) == (kind, path) for each in config.sources):
            config = configfile.add_source(config, _new_source(config, kind, path))
            output.say(f"source {config.sources[-1].name}: {path or 'Bear'}", quiet=quiet)
    if not config.sources:
        raise SourceError("no notes were found", "prompt-rag init --markdown DIR")
    report = build(config, quiet=quiet)
    if as_json:
        output.print_json(report)
        return
    print_report(report, verb="indexed")
    output.say(HOOK_HELP % Path(sys.argv[0]).absolute(), quiet=quiet)


def _named_sources(
    folders: tuple[Path, ...], database: str | None
) -> list[tuple[Literal["markdown", "bear"], Path | None]]:
    named: list[tuple[Literal["markdown", "bear"], Path | None]] = [
        ("markdown", folder.absolute()) for folder in folders
    ]
    if database is not None:
        named.append(("bear", _bear_path(database)))
    return named


def _bear_path(database: str) -> Path | None:
    if not database:
        return None
    path = Path(database).expanduser().absolute()
    if not path.is_file():
        raise SourceError(f"there is no Bear database at {path}", "prompt-rag source add bear")
    return path


def _found_sources(
    config: Config, *, ask: bool
) -> list[tuple[Literal["markdown", "bear"], Path | None]]:
    """Return what lies in the usual places and, where somebody can be asked, is wanted."""
    if config.sources:
        return []
    found: list[tuple[Literal["markdown", "bear"], Path | None]] = []
    if any(place.is_file() for place in bear.candidates()):
        found.append(("bear", None))
    found += [("markdown", folder) for folder in _likely_folders(Path.home())]
    if ask and not sys.stdin.isatty():
        raise SourceError(
            "init asks which notes to index, and nobody can answer here",
            "prompt-rag init --yes --markdown DIR",
        )
    if ask:
        found = [
            (kind, path)
            for kind, path in found
            if click.confirm(f"Index {path or 'your Bear notes'}?", default=True, err=True)
        ]
    if ask and not found:
        folder = click.prompt("A folder of Markdown notes", type=FOLDER, err=True)
        found.append(("markdown", folder.expanduser().absolute()))
    return found


def _likely_folders(home: Path) -> Iterator[Path]:
    """Yield folders below ``home`` that look like notes, none inside another."""
    vaults = [
        mark.parent
        for parent in VAULT_PARENTS
        for mark in sorted((home / parent).glob(f"*/{VAULT_MARK}"))
    ]
    named = [home / name for name in LIKELY_FOLDERS]
    taken: set[Path] = set()
    for folder in [*vaults, *named]:
        real = folder.resolve()
        if real in taken or taken & set(real.parents) or not _has_notes(folder):
            continue
        taken.add(real)
        yield folder


def _has_notes(folder: Path) -> bool:
    try:
        files = list(folder.iterdir()) if folder.is_dir() else []
    except OSError:
        return False
    below = [each for each in files if each.is_dir() and not each.name.startswith(".")]
    return any(file.suffix in MARKDOWN_SUFFIXES for file in files) or any(
        any(each.glob("*.md")) for each in below
    )


# --- source -------------------------------------------------------------------------------------


@click.group()
def source() -> None:
    """Say where your notes are."""


@source.group()
def add() -> None:
    """Add a source; `prompt-rag sync` then indexes it."""


@add.command("markdown")
@click.argument("folder", type=FOLDER)
@click.option("--name", help="How the source is called; default: the folder's name.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files that match.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not files that match.")
@click.option("--exclude-tag", "exclude_tags", multiple=True, metavar="TAG", help="Not these.")
def add_markdown(
    folder: Path,
    name: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    exclude_tags: tuple[str, ...],
) -> None:
    """Add a folder of Markdown notes, with all folders below it."""
    config = configuration.load()
    new = _new_source(config, "markdown", folder.absolute(), name)
    _add(
        config,
        SourceSettings(new.name, new.kind, new.path, include, exclude, exclude_tags),
    )


@add.command("bear")
@click.argument("database", required=False, default="")
@click.option("--name", help="How the source is called; default: bear.")
@click.option("--exclude-tag", "exclude_tags", multiple=True, metavar="TAG", help="Not these.")
def add_bear(database: str, name: str | None, exclude_tags: tuple[str, ...]) -> None:
    """Add Bear: its own database, or a copy at DATABASE."""
    config = configuration.load()
    new = _new_source(config, "bear", _bear_path(database), name)
    _add(config, SourceSettings(new.name, new.kind, new.path, exclude_tags=exclude_tags))


def _add(config: Config, new: SourceSettings) -> None:
    configfile.add_source(config, new)
    output.say(f"added {new.name}: {new.path or 'Bear'}; now run: prompt-rag sync")


def _new_source(
    config: Config, kind: Literal["markdown", "bear"], path: Path | None, name: str | None = None
) -> SourceSettings:
    """Return a source with a name of its own, made from the folder's where none is given."""
    if name is None:
        base = re.sub(r"[^\w-]+", "-", path.name if path and kind == "markdown" else kind)
        base = base.strip("-").lower() or kind
        taken = {each.name for each in config.sources}
        numbered = (f"{base}-{number}" for number in range(2, len(taken) + 3))
        name = next(each for each in (base, *numbered) if each not in taken)
    return SourceSettings(name, kind, path)


@source.command("list")
@output.json_option
def list_sources(as_json: bool) -> None:
    """List the sources."""
    config = configuration.load()
    if as_json:
        output.print_json({"sources": config.sources})
        return
    if not config.sources:
        output.say("no sources yet; try: prompt-rag source add markdown DIR")
    rows = [[each.name, each.kind, str(each.path or "Bear's own place")] for each in config.sources]
    output.print_table(["name", "kind", "path"], rows)


@source.command("remove")
@click.argument("name")
def remove_source(name: str) -> None:
    """Take the source NAME out; the notes themselves are not touched."""
    configfile.remove_source(configuration.load(), name)
    output.say(f"removed {name}; now run: prompt-rag sync")


# --- config -------------------------------------------------------------------------------------


@click.group("config")
def config_group() -> None:
    """Show and change settings."""


@config_group.command("show")
@output.json_option
def show_config(as_json: bool) -> None:
    """Print every setting with its value and where that comes from."""
    config = configuration.load()
    values = {key: config.value(key) for key in SETTING_FIELDS}
    if as_json:
        output.print_json(
            {
                "file": config.file,
                "home": config.home,
                "settings": {
                    key: {"value": value, "origin": config.origins[key]}
                    for key, value in values.items()
                },
                "sources": config.sources,
            }
        )
        return
    rows = [[key, _shown(value), config.origins[key]] for key, value in values.items()]
    output.print_table(["setting", "value", "from"], rows)
    output.say(f"file: {config.file}\nhome: {config.home}")


def _shown(value: object) -> str:
    if value is None:
        return "(the model's)"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


@config_group.command("set")
@click.argument("key")
@click.argument("value")
def set_config(key: str, value: str) -> None:
    """Set KEY to VALUE in the file, keeping its comments."""
    changed = configfile.set_value(configuration.load(), key, value)
    origin = changed.origins[key]
    note = "" if origin == str(changed.file) else f" (but {origin} overrides it)"
    output.say(f"{key} = {_shown(changed.value(key))}{note}")


# --- model --------------------------------------------------------------------------------------


@click.group()
def model() -> None:
    """Show, verify or fetch the embedding model."""


@model.command("show")
@click.option("--all", "all_models", is_flag=True, help="List every model that can be used.")
@output.json_option
def show_model(all_models: bool, as_json: bool) -> None:
    """Show the model in use."""
    if all_models:
        models = embedder.known_models()
        if as_json:
            output.print_json(
                [dict(zip(("name", "dim", "licence"), m, strict=True)) for m in models]
            )
        else:
            rows = [[name, str(dim), licence] for name, dim, licence in models]
            output.print_table(["name", "dim", "licence"], rows, right=(1,))
        return
    config = configuration.load()
    files = embedder.locate(config.settings.model_name, config.home)
    identity = embedder.identity_of(files)
    if as_json:
        output.print_json({"identity": identity, "weights": files.weights, "folder": files.folder})
        return
    rows = [
        ["name", identity.name],
        ["dimensions", str(identity.dim)],
        ["reads", f"{identity.max_tokens} tokens"],
        ["weights", str(files.weights)],
        ["tokenizer", str(files.folder)],
        ["fingerprint", identity.fingerprint],
    ]
    output.print_table(["", ""], rows)


@model.command("verify")
@output.json_option
def verify_model(as_json: bool) -> None:
    """Check the model's files and embed a sentence with them."""
    config = configuration.load()
    files = embedder.locate(config.settings.model_name, config.home)
    vector = embedder.FastEmbedder(files).embed_query("a note about a note")
    fine = vector.shape == (files.dim,)
    if as_json:
        output.print_json({"model": files.name, "ok": fine, "dim": len(vector)})
    else:
        output.say(f"{files.name} is whole and answers with {len(vector)} dimensions")


@model.command("pull")
@click.argument("name")
def pull_model(name: str) -> None:
    """Fetch the model NAME; the only command that uses the network."""
    if name == embedder.DEFAULT_MODEL:
        raise ConfigError(
            f"{name} comes with the installation and is never fetched", "prompt-rag model verify"
        )
    config = configuration.load()
    files = embedder.pull(name, config.home)
    output.say(
        f"{name} is in {files.folder}\nnow run: prompt-rag config set model.name {name}"
        " && prompt-rag rebuild && prompt-rag tune"
    )
