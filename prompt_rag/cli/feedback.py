"""``feedback``: say whether a decision was right, and use what was said."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from prompt_rag import config as configuration
from prompt_rag import feedback as labels
from prompt_rag import fsio, generations, wire
from prompt_rag.catalog import Catalog
from prompt_rag.cli import output
from prompt_rag.cli.index import one_note
from prompt_rag.config import Config
from prompt_rag.decisions import DecisionLog
from prompt_rag.domain import ConfigError, PromptRagError
from prompt_rag.feedback import Label


@click.group()
def feedback() -> None:
    """Say whether a decision of the hook was right; `tune` learns from it."""


_decision = click.argument("decision", metavar="[ID]", required=False)
_prompt = click.option(
    "--prompt",
    "text",
    help="The prompt's text (- reads it from stdin), where the log does not keep it.",
)


@feedback.command()
@_decision
@_prompt
@output.json_option
def good(decision: str | None, text: str | None, as_json: bool) -> None:
    """The decision ID, or the last one, was right.

    Its notes, or its silence, become the right answer to its prompt.
    """
    _store("good", decision, text, (), as_json=as_json)


@feedback.command()
@_decision
@click.option(
    "--note",
    "notes",
    multiple=True,
    help="A note that should have come; repeat for several. Needed where the hook was silent.",
)
@_prompt
@output.json_option
def bad(decision: str | None, notes: tuple[str, ...], text: str | None, as_json: bool) -> None:
    """The decision ID, or the last one, was wrong.

    Without --note nothing should have come.
    """
    _store("bad", decision, text, notes, as_json=as_json)


@feedback.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@output.json_option
def export(file: Path | None, as_json: bool) -> None:
    """Write what was said as labelled prompts into FILE, or to stdout, for `eval` and `tune`."""
    known = labels.read(configuration.load().home)
    prompts = labels.prompts(known)
    without = [each for each in known if not each.text]
    if file is not None:
        fsio.write_atomic(str(file), b"".join(labels.line(each) for each in prompts))
    if as_json:
        ids = [each.id for each in without]
        output.print_json({"prompts": [asdict(each) for each in prompts], "without_text": ids})
    elif file is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(labels.line(each) for each in prompts))
        sys.stdout.buffer.flush()
    else:
        output.say(f"{len(prompts)} labelled prompts written to {file}")
    if without and not as_json:
        output.say(_missing(without))


def _missing(without: Sequence[Label]) -> str:
    names = ", ".join(each.id for each in without[:5]) + (" …" if len(without) > 5 else "")
    return (
        f"the text of {len(without)} labelled prompts is not known and they are left out ({names});"
        " give it: prompt-rag feedback good|bad ID --prompt TEXT, or keep it from now on:"
        " prompt-rag config set log.prompt_text true"
    )


def _store(
    verdict: labels.Word,
    decision: str | None,
    text: str | None,
    notes: Sequence[str],
    *,
    as_json: bool,
) -> None:
    config = configuration.load()
    record = _record(config, decision)
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    elif text is not None:
        text = output.whole(text)
    label = labels.label(record, verdict, notes=_keys(config, notes), text=text)
    labels.append(config.home, label)
    if as_json:
        output.print_json({**asdict(label), "text": label.text or None})
        return
    wanted = ", ".join(output.one_line(key, 60) for key in label.relevant) or "no note"
    output.say(f"{label.id} was {verdict}; the right answer is: {wanted}")
    if not label.text:
        output.say(
            "the log does not keep the text of prompts, and without it `tune` cannot use this;"
            f" give it: prompt-rag feedback {verdict} {label.id} --prompt TEXT"
        )


def _record(config: Config, decision: str | None) -> dict[str, Any]:
    """Return the logged decision of that id, or the last one that can be right or wrong."""
    latest: dict[str, Any] | None = None
    for record in DecisionLog(config.home / wire.LOG):
        if record.get("id") == decision if decision else labels.can_be_judged(record):
            latest = record
    if latest is not None:
        return latest
    if decision:
        raise ConfigError(f"no decision {output.plain(decision)} is in the log", "prompt-rag why")
    raise ConfigError("the hook has decided nothing yet", "prompt-rag explain PROMPT")


def _keys(config: Config, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    with Catalog.open(generations.current(config.home).catalog) as catalog:
        found = []
        for name in names:
            try:
                found.append(one_note(catalog, name, "inspect").key)
            except PromptRagError as error:
                error.message = f"--note: {error.message}"
                raise
        return found
