"""``rebuild``, ``sync``, ``status``, ``inspect`` and ``forget``: the index and what is in it."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from prompt_rag import (
    calibration,
    chunking,
    embedder,
    generations,
    indexing,
    pauses,
    vectors,
    wire,
)
from prompt_rag import config as configuration
from prompt_rag.catalog import Catalog
from prompt_rag.cli import output
from prompt_rag.config import Config
from prompt_rag.domain import (
    BuildReport,
    NoteHead,
    NoteUnknown,
    PromptRagError,
)

NAMES_SHOWN = 3
DAEMON_SECONDS = 0.5  # it answers in a millisecond, or is stuck


@click.command()
@output.json_option
@output.quiet_option
def rebuild(as_json: bool, quiet: bool) -> None:
    """Build the whole index anew, then swap it in."""
    report = build(configuration.load(), quiet=quiet)
    _show(report, as_json=as_json, quiet=quiet)


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be done and change nothing.")
@click.option("--allow-shrink", is_flag=True, help="Believe that most notes are really gone.")
@output.json_option
@output.quiet_option
def sync(
    paths: tuple[Path, ...],
    dry_run: bool,
    allow_shrink: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bring the index up to date; with PATHS only those files and folders."""
    with output.progress(quiet=quiet or as_json) as report_progress:
        report = indexing.sync(
            configuration.load(),
            paths=paths or None,
            dry_run=dry_run,
            allow_shrink=allow_shrink,
            progress=report_progress,
        )
    _show(report, as_json=as_json, quiet=quiet, dry_run=dry_run)


def build(config: Config, *, quiet: bool) -> BuildReport:
    """Rebuild with a progress bar."""
    with output.progress(quiet=quiet) as report_progress:
        return indexing.rebuild(config, progress=report_progress)


def _show(report: BuildReport, *, as_json: bool, quiet: bool, dry_run: bool = False) -> None:
    if as_json:
        output.print_json(report_document(report))
    else:
        print_report(report, quiet=quiet, dry_run=dry_run)


def report_document(report: BuildReport) -> dict[str, Any]:
    """Return a report in the form that ``sync --json`` and ``rebuild --json`` promise."""
    return {
        "seen": report.seen,
        "indexed": report.indexed,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "skipped": [{"note": note, "why": why} for note, why in report.skipped],
        "passages": report.passages,
        "embedded": report.embedded,
        "reused": report.reused,
        "seconds": report.seconds,
        "generation": report.generation,
        "kept": [{"source": source, "why": why} for source, why in report.kept],
        "warnings": [{"source": source, "why": why} for source, why in report.warnings],
    }


def print_report(report: BuildReport, *, quiet: bool = False, dry_run: bool = False) -> None:
    """Print a report for a person: what was done, what was left out and why.

    ``quiet`` leaves the warnings: a source that was not taken in is nobody's wish.
    """
    if not quiet:
        click.echo(_done(report, dry_run=dry_run))
        _print_skipped(report)
    for source, why in report.kept:
        output.say(f"Warning: {source} was left as it was: {output.plain(why)}")
    for source, why in report.warnings:
        output.say(f"Warning: {source}: {output.plain(why)}")


def _done(report: BuildReport, *, dry_run: bool) -> str:
    if dry_run:
        return (
            f"{report.indexed} notes would be indexed, {report.removed} removed;"
            f" {report.unchanged} are unchanged"
        )
    return (
        f"{report.indexed} notes indexed ({report.passages} passages, {report.embedded} embedded),"
        f" {report.unchanged} unchanged, {report.removed} removed"
        f" in {report.seconds:.1f} s"
    )


def _print_skipped(report: BuildReport) -> None:
    if not report.skipped:
        return
    click.echo(f"{len(report.skipped)} left out:")
    for why, count in Counter(why for _, why in report.skipped).most_common():
        names = [output.one_line(note, 60) for note, reason in report.skipped if reason == why]
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if count > NAMES_SHOWN else "")
        click.echo(f"  {count:4d}  {output.plain(why)}: {shown}")


@click.command()
@output.json_option
def status(as_json: bool) -> None:
    """Show what is indexed, how fresh it is, and with which model and thresholds."""
    config = configuration.load()
    document = _status(config)
    if as_json:
        output.print_json(document)
        return
    rows = [[key, str(document[key])] for key in ("home", "config", "model", "index", "daemon")]
    if document["paused"]:
        rows.append(["hook", "paused; `prompt-rag pause off` ends that"])
    if bar := document["thresholds"]:
        numbers = (
            f"max_distance {bar.max_distance:.3f}, min_gap {bar.min_gap:.3f},"
            f" min_probability {bar.min_probability:.3f}"
        )
        rows.append(["thresholds", numbers])
    else:
        rows.append(["thresholds", "none for this model; try: prompt-rag tune"])
    output.print_table(["", ""], rows)
    if document["sources"]:
        click.echo()
        columns = ["source", "notes", "passages", "with TL;DR"]
        table = [
            [each["source"], *[str(each[name]) for name in ("notes", "passages", "with_tldr")]]
            for each in document["sources"]
        ]
        output.print_table(columns, table, right=(1, 2, 3))
    for problem in document["problems"]:
        output.say(f"Problem: {problem['what']}")
        if problem["hint"]:
            output.say(f"Hint: {problem['hint']}")


def _status(config: Config) -> dict[str, Any]:
    document: dict[str, Any] = {
        "home": config.home,
        "config": config.file,
        "model": config.settings.model_name,
        "index": "none",
        "generation": None,
        "built_at": None,
        "notes": 0,
        "passages": 0,
        "sources": [],
        "thresholds": None,
        "daemon": _daemon(config),
        "paused": pauses.paused_until(config.home) is not None,
        "problems": [],
    }
    problems: list[PromptRagError] = []
    identity = None
    try:
        files = embedder.locate(config.settings.model_name, config.home)
        identity = embedder.identity_of(files)
        fitted = calibration.of_model(identity, config.settings, config.home)
        document["thresholds"] = fitted.thresholds if fitted is not None else None
    except PromptRagError as error:
        problems.append(error)
    try:
        generation = generations.current(config.home)
        document["generation"] = generation.id
        version = chunking.version(config.settings.tiers)
        with Catalog.open(generation.catalog, identity, chunker_version=version) as catalog:
            counts = catalog.counts()
            document["sources"] = [
                {
                    "source": each.source,
                    "notes": each.notes,
                    "passages": each.passages,
                    "with_tldr": each.notes - each.notes_without_tldr,
                }
                for each in counts
            ]
            document["notes"] = sum(each.notes for each in counts)
            document["passages"] = sum(each.passages for each in counts)
            written = _written_at(generation.catalog)
            document["built_at"] = catalog.created_at.isoformat(timespec="seconds")
            document["index"] = (
                f"{document['notes']} notes, {document['passages']} passages,"
                f" built {output.age(catalog.created_at)}, written {output.age(written)}"
            )
    except PromptRagError as error:
        problems.append(error)
    document["problems"] = [{"what": each.message, "hint": each.hint} for each in problems]
    return document


def _daemon(config: Config) -> str:
    """Return what the resident process says of itself, in a word or two."""
    if config.settings.daemon == "off":
        return "off"
    soon = time.monotonic() + DAEMON_SECONDS
    try:
        wire.ask(str(config.home), {"kind": "status"}, soon, start=False)
    except wire.Unanswered as error:
        return "does not answer" if error.reason == wire.DEADLINE else "not running"
    return "running"


def _written_at(catalog: Path) -> datetime:
    """Return when something was last written; commits wait in the log while readers stay."""
    log = catalog.with_name(f"{catalog.name}-wal")
    files = [file.stat() for file in (catalog, log) if file.exists()]
    times = [status.st_mtime for status in files if status.st_size]
    return datetime.fromtimestamp(max(times), UTC)


@click.command()
@click.argument("note")
@output.json_option
def inspect(note: str, as_json: bool) -> None:
    """Show a note's passages as they are indexed. NOTE is its key, path, title or id."""
    config = configuration.load()
    with Catalog.open(generations.current(config.home).catalog) as catalog:
        head = _one_note(catalog, note, "inspect")
        passages = catalog.passages_of(head.id)
    if as_json:
        output.print_json({"note": head, "passages": passages})
        return
    click.echo(f"{output.plain(head.title)}\n{output.plain(head.uri)}\n{len(passages)} passages\n")
    for passage in passages:
        path = " > ".join(passage.heading_path) or "(top)"
        click.echo(f"[{passage.ordinal}] {passage.kind}  {output.one_line(path)}")
        for line in passage.text.splitlines():
            click.echo(f"    {output.plain(line)}")
        click.echo()


def _one_note(catalog: Catalog, name: str, command: str) -> NoteHead:
    name = output.whole(name)
    found = catalog.find_notes(name)
    if not found:
        raise NoteUnknown(
            f"no note in the index answers to {output.plain(name)}",
            f"prompt-rag search {shlex.quote(name)}",
        )
    if len(found) > 1:
        named = ", ".join(f"{head.source}:{head.key} (id {head.id})" for head in found[:5])
        raise NoteUnknown(
            f"{len(found)} notes answer to {output.plain(name)}: {output.plain(named)}",
            f"prompt-rag {command} {found[0].id}",
        )
    return found[0]


@click.command()
@click.argument("note")
def forget(note: str) -> None:
    """Take NOTE out of the index and keep it out; the note itself is not touched."""
    config = configuration.load()
    with indexing.writing(config, wait_seconds=5.0):
        generation = generations.current(config.home)
        with Catalog.open(generation.catalog, writable=True) as catalog:
            head = _one_note(catalog, note, "forget")
            catalog.forget([head.id])
            vectors.checkpoint(generation, catalog, force=True)  # the graph holds vectors too
        generations.prune(config.home)  # and the generation before this one all of it
    output.say(f"forgotten: {output.plain(head.title)} ({output.plain(head.key)})")
