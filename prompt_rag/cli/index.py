"""``rebuild``, ``sync``, ``status``, ``inspect`` and ``forget``: the index and what is in it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from prompt_rag import calibration, chunking, embedder, generations, indexing, vectors
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

SKIPPED_SHOWN = 10


@click.command()
@output.json_option
@output.quiet_option
def rebuild(as_json: bool, quiet: bool) -> None:
    """Build the whole index anew, then swap it in."""
    report = build(configuration.load(), quiet=quiet)
    _show(report, "indexed", as_json=as_json)


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
    _show(report, "would be indexed" if dry_run else "indexed", as_json=as_json)


def build(config: Config, *, quiet: bool) -> BuildReport:
    """Rebuild with a progress bar."""
    with output.progress(quiet=quiet) as report_progress:
        return indexing.rebuild(config, progress=report_progress)


def _show(report: BuildReport, verb: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(report_document(report))
    else:
        print_report(report, verb=verb)


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
    }


def print_report(report: BuildReport, *, verb: str) -> None:
    """Print a report for a person: what was done, what was left out and why."""
    click.echo(
        f"{report.indexed} notes {verb} ({report.passages} passages, {report.embedded} embedded),"
        f" {report.unchanged} unchanged, {report.removed} removed"
        f" in {report.seconds:.1f} s"
    )
    if report.skipped:
        reasons = Counter(why for _, why in report.skipped)
        click.echo(f"{len(report.skipped)} left out:")
        for why, count in reasons.most_common():
            names = [output.one_line(note, 60) for note, reason in report.skipped if reason == why]
            shown = ", ".join(names[:3]) + (", …" if count > 3 else "")
            click.echo(f"  {count:4d}  {why}: {shown}")
    for source, why in report.kept:
        output.say(f"Warning: {source} was left as it was: {why}")


@click.command()
@output.json_option
def status(as_json: bool) -> None:
    """Show what is indexed, how fresh it is, and with which model and thresholds."""
    config = configuration.load()
    document = _status(config)
    if as_json:
        output.print_json(document)
        return
    rows = [[key, str(document[key])] for key in ("home", "config", "model", "index")]
    if bar := document["thresholds"]:
        numbers = (
            f"max_distance {bar.max_distance}, min_gap {bar.min_gap},"
            f" min_probability {bar.min_probability}"
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
            written = datetime.fromtimestamp(generation.catalog.stat().st_mtime, UTC)
            document["built_at"] = catalog.created_at.isoformat(timespec="seconds")
            document["index"] = (
                f"{document['notes']} notes, {document['passages']} passages,"
                f" built {output.age(catalog.created_at)}, written {output.age(written)}"
            )
    except PromptRagError as error:
        problems.append(error)
    document["problems"] = [{"what": each.message, "hint": each.hint} for each in problems]
    return document


@click.command()
@click.argument("note")
@output.json_option
def inspect(note: str, as_json: bool) -> None:
    """Show a note's passages as they are indexed. NOTE is its key, path, title or id."""
    config = configuration.load()
    with Catalog.open(generations.current(config.home).catalog) as catalog:
        head = _one_note(catalog, note)
        passages = catalog.passages_of(head.id)
    if as_json:
        output.print_json({"note": head, "passages": passages})
        return
    click.echo(f"{head.title}\n{head.uri}\n{len(passages)} passages\n")
    for passage in passages:
        path = " > ".join(passage.heading_path) or "(top)"
        click.echo(f"[{passage.ordinal}] {passage.kind}  {output.one_line(path)}")
        click.echo("\n".join(f"    {line}" for line in passage.text.splitlines()) + "\n")


def _one_note(catalog: Catalog, name: str) -> NoteHead:
    found = catalog.find_notes(name)
    if not found:
        raise NoteUnknown(f"no note in the index answers to {name}", f'prompt-rag search "{name}"')
    if len(found) > 1:
        keys = ", ".join(f"{head.source}:{head.key}" for head in found[:5])
        raise NoteUnknown(
            f"{len(found)} notes answer to {name}: {keys}", f"prompt-rag inspect {found[0].id}"
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
            head = _one_note(catalog, note)
            catalog.forget([head.id])
            vectors.checkpoint(generation, catalog, force=True)  # the graph holds vectors too
    output.say(f"forgotten: {head.title} ({head.key})")
