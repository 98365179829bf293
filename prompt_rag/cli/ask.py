"""``search``, ``explain`` and ``hook``: ask the index, by hand or by an agent host."""

from __future__ import annotations

import sys
from typing import Any

import click

from prompt_rag import config as configuration
from prompt_rag import policy
from prompt_rag.cli import output
from prompt_rag.domain import Candidate, Decision, Reason
from prompt_rag.search import Reader

DEFAULT_K = 10

WORDS = {
    Reason.CONFIDENT: "a note is near enough and stands out",
    Reason.EMPTY: "there is no text",
    Reason.MACHINE_PROMPT: "no person typed this",
    Reason.COMMAND: "this is a command for the agent, no question",
    Reason.CONTENTLESS: "there is nothing in it to look up",
    Reason.NO_NOTES: "the index holds no notes",
    Reason.TOO_FAR: "no note is near enough",
    Reason.GAP_TOO_SMALL: "several notes are equally near, so none stands out",
    Reason.UNCALIBRATED: "this model has no thresholds; `prompt-rag tune --apply` fits them",
}
"""A reason in a person's words."""


@click.command()
@click.argument("query")
@click.option("-k", default=DEFAULT_K, show_default=True, type=click.IntRange(1, 100))
@click.option("--tag", "tags", multiple=True, help="Only notes with this tag; repeat for any of.")
@click.option("--source", "source_name", help="Only notes of this source.")
@output.json_option
def search(
    query: str,
    k: int,
    tags: tuple[str, ...],
    source_name: str | None,
    as_json: bool,
) -> None:
    """List the notes nearest to QUERY and mark what the hook would inject."""
    config = configuration.load()
    with Reader.open(config) as reader:
        bar = reader.thresholds
        candidates = reader.candidates(query, tags=tags, source=source_name)
        ruling = policy.decide(candidates, bar, reader.weights) if bar is not None else None
    injected = {
        id(verdict.candidate) for verdict in (ruling.verdicts if ruling else ()) if verdict.accepted
    }
    within = 2.0 if bar is None else bar.search_distance
    shown = [each for each in candidates if each.distance <= within][:k]
    if as_json:
        output.print_json(
            {
                "query": query,
                "results": [
                    {**candidate_document(each), "injects": id(each) in injected} for each in shown
                ],
            }
        )
        return
    if not shown:
        output.say(f"nothing within distance {within:.2f}")
        return
    rows = [
        [
            "*" if id(each) in injected else "",
            f"{each.distance:.3f}",
            output.one_line(each.note.title, 40),
            output.one_line(" > ".join(each.passage.heading_path), 30),
            output.one_line(each.note.uri, 60),
        ]
        for each in shown
    ]
    output.print_table(["", "distance", "note", "heading", "where"], rows, right=(1,))
    if injected:
        output.say("* the hook would inject it")


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate in the form that ``--json`` promises."""
    return {
        "note": candidate.note.key,
        "source": candidate.note.source,
        "title": candidate.note.title,
        "uri": candidate.note.uri,
        "also": list(candidate.note.also),
        "kind": candidate.passage.kind,
        "heading_path": list(candidate.passage.heading_path),
        "distance": round(candidate.distance, 4),
        "rank": candidate.rank,
        **{name: round(value, 4) for name, value in candidate.evidence.items()},
    }


@click.command()
@click.argument("prompt")
@output.json_option
def explain(prompt: str, as_json: bool) -> None:
    """Show what the hook would do with PROMPT (- reads it from stdin), and why."""
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    with Reader.open(configuration.load()) as reader:
        decision = reader.decide(prompt)
    if as_json:
        output.print_json(decision_document(decision))
    else:
        print_decision(decision)


def decision_document(decision: Decision) -> dict[str, Any]:
    """Return a decision in the form that ``explain --json`` promises."""
    return {
        "outcome": decision.outcome,
        "reason": decision.reason.value,
        "query": decision.query,
        "best_distance": decision.best_distance,
        "gap": decision.gap,
        "thresholds": decision.thresholds,
        "candidates": [
            {
                **candidate_document(verdict.candidate),
                "accepted": verdict.accepted,
                "verdict": verdict.why,
            }
            for verdict in decision.verdicts
        ],
        "block": decision.block or None,
        "chars": len(decision.block),
        "timings_ms": dict(decision.timings_ms),
        "generation": decision.generation,
        "model": decision.model,
    }


def print_decision(decision: Decision, *, candidates: int = 5) -> None:
    """Print a decision for a person: outcome, reason, the nearest notes, the block."""
    verb = "inject" if decision.outcome == "inject" else "stay silent"
    reason = WORDS.get(decision.reason, decision.reason.value)
    click.echo(f"{verb}: {reason} ({decision.reason.value})")
    if decision.query:
        click.echo(f"looked up: {output.one_line(decision.query, 200)}")
    bar = decision.thresholds
    if bar is not None:
        click.echo(
            f"thresholds: max_distance {bar.max_distance:.3f}, min_gap {bar.min_gap:.3f},"
            f" sure_distance {bar.sure_distance:.3f}"
        )
    if decision.verdicts:
        click.echo()
        rows = [
            [
                "in" if verdict.accepted else "out",
                f"{verdict.candidate.distance:.3f}",
                output.one_line(verdict.candidate.note.title, 40),
                verdict.why,
            ]
            for verdict in decision.verdicts[:candidates]
        ]
        output.print_table(["", "distance", "note", "why"], rows, right=(1,))
    if decision.block:
        click.echo(f"\n{len(decision.block)} characters would be added to the prompt:\n")
        click.echo(decision.block)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--host", default="claude", show_default=True, help="The agent host that calls.")
@click.option("--home", help="The folder of the index; default: the user's.")
def hook(host: str, home: str | None) -> None:
    """Answer an agent host: its JSON on stdin, at most one JSON answer on stdout.

    Always exits 0 and never writes to stderr. This is what `install` puts into a host's settings.
    """
    from prompt_rag import hook as hot_path  # `prompt-rag hook` itself starts in __main__

    hot_path.main(["--host", host, *(["--home", home] if home else [])])
