"""``eval``: what a system finds and injects on labelled prompts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from prompt_rag import calibration, embedder, evaluation, indexing
from prompt_rag import config as configuration
from prompt_rag.cli import fixtures, output
from prompt_rag.config import Config, SourceSettings
from prompt_rag.search import Reader


@click.command("eval")
@click.option("--notes", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--bear", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--prompts", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--system", type=click.Choice(list(evaluation.SYSTEMS)), default="prompt-rag")
@click.option("--split", type=click.Choice(["tune", "test"]), help="Only these prompts.")
@output.json_option
@output.quiet_option
def evaluate(
    notes: Path | None,
    bear: Path | None,
    prompts: Path | None,
    system: str,
    split: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure a system on labelled prompts; without options on the fixtures."""
    labelled = evaluation.load_prompts(prompts) if prompts else fixtures.prompts()
    if split is not None:
        labelled = [prompt for prompt in labelled if prompt.split == split]
    with (
        output.progress(quiet=quiet or as_json) as report_progress,
        evaluated_home(notes, bear) as config,
    ):
        indexing.rebuild(config, progress=report_progress)
        with Reader.open(config) as reader:
            evaluation.require_known_notes(labelled, reader.catalog)
            cases = evaluation.run(system, reader, labelled, report_progress)
            document = evaluation.report(system, reader, cases)
    if as_json:
        output.print_json(document)
    else:
        _print(document)


@contextmanager
def evaluated_home(notes: Path | None, bear: Path | None) -> Iterator[Config]:
    """Give a temporary home whose sources are ``notes`` and ``bear``, or else the fixtures.

    The person's own model and thresholds hold; their notes and their log are not touched.
    """
    own = configuration.load()
    with tempfile.TemporaryDirectory(prefix="prompt-rag-eval-") as folder:
        home = Path(folder)
        for name in (calibration.OWN, embedder.models_folder(own.home).name):
            if (own.home / name).exists():
                (home / name).symlink_to(own.home / name)
        sources: list[SourceSettings] = []
        if notes is not None:
            sources.append(SourceSettings("notes", "markdown", notes.absolute()))
        if bear is not None:
            sources.append(SourceSettings("bear", "bear", bear.absolute()))
        if not sources:
            sources = fixtures.sources(home)
        yield replace(own, home=home, file=home / "config.toml", sources=tuple(sources))


def _print(document: dict[str, Any]) -> None:
    counts = document["prompts"]
    click.echo(
        f"{document['system']} with {document['model']['name']}: {document['notes']} notes,"
        f" {document['passages']} passages, {counts['answerable']} answerable and"
        f" {counts['unanswerable']} unanswerable prompts\n"
    )
    rows = []
    for group in ("retrieval", "injection"):
        for name, value in document[group].items():
            bounds = document["intervals"].get(name)
            between = f"{bounds[0]:.3f} to {bounds[1]:.3f}" if bounds else ""
            rows.append([name, "none" if value is None else f"{value:.3f}", between])
    output.print_table(["figure", "value", "95 % interval"], rows, right=(1,))
    click.echo()
    columns = ["kind", "prompts", "recall@5", "mrr", "coverage", "wrong_note", "false_injection"]
    names = ["recall@5", "mrr", "coverage", "wrong_note_rate", "false_injection_rate"]
    table = [
        [
            kind or "(none)",
            str(found["prompts"]),
            *[f"{found[name]:.3f}" if name in found else "" for name in names],
        ]
        for kind, found in document["by_kind"].items()
    ]
    output.print_table(columns, table, right=(1, 2, 3, 4, 5, 6))
