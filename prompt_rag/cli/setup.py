"""``init`` and ``source``: where the notes are."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click

from prompt_rag import config as configuration
from prompt_rag import configfile, indexing, installing
from prompt_rag.cli import output
from prompt_rag.cli.index import build, print_report, report_document
from prompt_rag.cli.install import install_all
from prompt_rag.config import Config, SourceSettings
from prompt_rag.domain import ConfigError, SourceError
from prompt_rag.sources import bear

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# Where people keep notes; a vault of Obsidian is recognised wherever it lies one level below.
LIKELY_FOLDERS = ("Notes", "notes", "Documents/Notes", "Documents/notes", "Zettelkasten", "wiki")
VAULT_PARENTS = (
    ".",
    "Documents",
    "Obsidian",
    "Documents/Obsidian",
    "Library/Mobile Documents/iCloud~md~obsidian/Documents",
)
VAULT_MARK = ".obsidian"
MARKDOWN_SUFFIXES = (".md", ".markdown")

OFFERED = "claude"
TRY_IT = 'Try it without an agent: prompt-rag explain "a question one of your notes answers"'


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
        output.print_json(report_document(report))
        return
    print_report(report, quiet=quiet)
    if not quiet:
        _offer_install(ask=not yes)
        output.say(TRY_IT)


def _offer_install(*, ask: bool) -> None:
    """Put the hook into the most likely host's settings, if somebody says so, else say how."""
    host = installing.HOSTS[OFFERED]
    try:
        plan = installing.install(host, configuration.load().home)
    except ConfigError as error:  # the index is built all the same
        output.say(f"{host.title}: {error.message}")
        return
    question = f"Put the hook into {host.title}'s settings ({host.path})?"
    if not plan.change.is_needed:
        output.say(f"{host.title}: the hook is in its settings")
    elif ask and sys.stdin.isatty() and click.confirm(question, default=True, err=True):
        install_all([plan])
        output.say(f"{host.title}: installed; to undo it: prompt-rag uninstall {host.name}")
    else:
        others = ", ".join(name for name in installing.HOSTS if name != host.name)
        output.say(f"Put it into {host.title}: prompt-rag install {host.name} (or {others})")


def _named_sources(
    folders: tuple[Path, ...], database: str | None
) -> list[tuple[Literal["markdown", "bear"], Path | None]]:
    named: list[tuple[Literal["markdown", "bear"], Path | None]] = [
        ("markdown", _absolute(folder)) for folder in folders
    ]
    if database is not None:
        if not database and not _bear_may_exist():
            raise SourceError(
                "there is no Bear database where Bear keeps one", "prompt-rag init --bear DB"
            )
        named.append(("bear", _bear_path(database)))
    return named


def _absolute(path: Path) -> Path:
    """Return one spelling for each place: without dots, links as they are."""
    text = os.path.abspath(path)  # noqa: PTH100  # Path.absolute keeps "..", resolve follows links
    if output.whole(text) != text:
        raise ConfigError(
            f"{output.whole(text)} is not UTF-8 and cannot be written to the settings"
        )
    return Path(text)


def _bear_path(database: str) -> Path | None:
    if not database:
        return None
    path = _absolute(Path(database))
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
    if _bear_may_exist():
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
        found.append(("markdown", _absolute(folder)))
    return found


def _bear_may_exist() -> bool:
    """Whether Bear's database is there, or the system does not tell: macOS guards its folders."""
    try:
        return any(place.is_file() for place in bear.candidates())
    except OSError:
        return True


def _likely_folders(home: Path) -> Iterator[Path]:
    """Yield folders below ``home`` that look like notes, none inside another."""
    vaults = [
        mark.parent
        for parent in VAULT_PARENTS
        for mark in sorted((home / parent).glob(f"*/{VAULT_MARK}"))
    ]
    named = [home / name for name in LIKELY_FOLDERS]
    taken: set[tuple[int, int]] = set()
    for folder in [*vaults, *named]:
        if not _has_notes(folder):
            continue
        # By inode: "Notes" and "notes" are one folder where case does not count.
        line = [_inode(place) for place in (folder.resolve(), *folder.resolve().parents)]
        if not taken.intersection(line):
            taken.add(line[0])
            yield folder


def _inode(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


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
    new = _new_source(config, "markdown", _absolute(folder), name)
    settings = SourceSettings(new.name, new.kind, new.path, include, exclude, exclude_tags)
    indexing.make_source(settings)  # says now what is wrong with a pattern
    _add(config, settings)


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
