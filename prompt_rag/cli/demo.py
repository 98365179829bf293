"""``demo``: the main job on the fixtures, in a home that is thrown away."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import click

from prompt_rag import config as configuration
from prompt_rag import indexing
from prompt_rag.cli import fixtures, output
from prompt_rag.cli.index import print_report
from prompt_rag.cli.words import WORDS
from prompt_rag.search import Reader

VOICES = ("work", "bear")
PROMPTS = (
    "parcels from Leipzig don't move on the map since the power cut, yet the scans arrive",
    "remote: GL-HOOK-ERR: tag is not signed",
    "why must we never restart mosquitto after swapping its certificate, what's the right way?",
    "the green card for the metro in portugal, how do you load it so it works on the ferry too",
    "coffee machine on the third floor says water tank empty although it's full, E11",
    "write a python function that reverses a linked list",
    "hello, how are you today",
    "looks good, commit it",
    "<task-notification>\n<task-id>b1</task-id> postgres locks: done\n</task-notification>",
)


@click.command()
@output.quiet_option
def demo(quiet: bool) -> None:
    """Index the fixtures in a temporary home and walk through some prompts."""
    with tempfile.TemporaryDirectory(prefix="prompt-rag-demo-") as folder:
        home = Path(folder)
        own = configuration.load(home)
        config = replace(own, home=home, sources=tuple(fixtures.sources(home, VOICES)))
        click.echo("A made-up person's notes: a folder of Markdown files and a Bear database.\n")
        with output.progress(quiet=quiet) as report_progress:
            report = indexing.rebuild(config, progress=report_progress)
        print_report(report)
        started = time.perf_counter()
        with Reader.open(config) as reader:
            click.echo(f"model and index loaded in {time.perf_counter() - started:.1f} s\n")
            for prompt in PROMPTS:
                _show(reader, prompt)


def _show(reader: Reader, prompt: str) -> None:
    decision = reader.decide(prompt)
    click.echo(f"> {output.one_line(prompt, 110)}")
    best = decision.verdicts[0] if decision.verdicts else None
    if decision.outcome == "inject":
        for excerpt in decision.excerpts:
            note = excerpt.candidate.note
            first = output.one_line(excerpt.text, 100)
            click.echo(f"  + {note.title}  (distance {excerpt.candidate.distance:.2f}): {first}")
    else:
        near = ""
        if best is not None:
            near = f"; nearest: {best.candidate.note.title}, {best.candidate.distance:.2f}"
        click.echo(f"  - silent: {WORDS.get(decision.reason, decision.reason.value)}{near}")
    click.echo(f"    {decision.timings_ms.get('total', 0.0):.0f} ms\n")
