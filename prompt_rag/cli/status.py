"""``status``: what is indexed, how fresh it is, and what the hook goes by."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from prompt_rag import calibration, chunking, embedder, generations, pauses, wire
from prompt_rag import config as configuration
from prompt_rag.catalog import Catalog
from prompt_rag.cli import output
from prompt_rag.config import Config
from prompt_rag.domain import PromptRagError

DAEMON_SECONDS = 0.5  # it answers in a millisecond, or is stuck


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
