"""``rebuild``, ``sync``, ``inspect`` and ``forget``: the index and what is in it."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import click

from prompt_rag import config as configuration
from prompt_rag import generations, indexing, vectors
from prompt_rag.catalog import Catalog
from prompt_rag.cli import output
from prompt_rag.config import Config
from prompt_rag.domain import BuildReport, NoteHead, NoteUnknown

NAMES_SHOWN = 3


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
    if paths and not report.seen and not report.removed:
        output.say("no source has a note there; see: prompt-rag source list", quiet=quiet)
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
@click.argument("note")
@output.json_option
def inspect(note: str, as_json: bool) -> None:
    """Show a note's passages as they are indexed. NOTE is its key, path, title or id."""
    config = configuration.load()
    with Catalog.open(generations.current(config.home).catalog) as catalog:
        head = one_note(catalog, note, "inspect")
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


def one_note(catalog: Catalog, name: str, command: str) -> NoteHead:
    """Return the note that ``name`` (key, path, title or id) stands for.

    Raises :class:`NoteUnknown` where that is none or several; its hint is ``command`` with one.
    """
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
            head = one_note(catalog, note, "forget")
            catalog.forget([head.id])
            vectors.checkpoint(generation, catalog, force=True)  # the graph holds vectors too
        generations.prune(config.home)  # and the generation before this one all of it
    output.say(f"forgotten: {output.plain(head.title)} ({output.plain(head.key)})")
