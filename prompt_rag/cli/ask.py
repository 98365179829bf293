"""``search``, ``explain`` and ``hook``: ask the index, by hand or by an agent host."""

from __future__ import annotations

import sys
from typing import Any

import click

from prompt_rag import answer, pauses
from prompt_rag import config as configuration
from prompt_rag.cli import output, reasons
from prompt_rag.cli.words import WORDS
from prompt_rag.domain import Candidate, ConfigError, Decision, Verdict
from prompt_rag.search import Reader

DEFAULT_K = 10


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
    query = output.whole(query)
    if not query.strip():
        raise click.UsageError("QUERY is empty")
    config = configuration.load()
    with Reader.open(config) as reader:
        _require_source(reader, source_name)
        bar = reader.thresholds
        candidates = reader.candidates(query, tags=tags, source=source_name)
        # The hook looks through all notes, and takes the query for a prompt.
        injected = [excerpt.candidate for excerpt in answer.decide(reader, query).excerpts]
    within = 2.0 if bar is None else bar.search_distance
    shown = [each for each in candidates if each.distance <= within][:k]
    marked = [_is_among(each, injected) for each in shown]
    if as_json:
        results = [
            {**candidate_document(each), "injects": mark}
            for each, mark in zip(shown, marked, strict=True)
        ]
        output.print_json({"query": query, "results": results})
        return
    if not shown:
        output.say(f"nothing within distance {within:.2f}")
        return
    rows = [
        [
            "*" if mark else "",
            f"{each.distance:.3f}",
            output.one_line(each.note.title, 40),
            output.one_line(" > ".join(each.passage.heading_path), 30),
            each.note.uri,
        ]
        for each, mark in zip(shown, marked, strict=True)
    ]
    output.print_table(["", "distance", "note", "heading", "where"], rows, right=(1,))
    if any(marked):
        output.say("* the hook would inject it")


def _require_source(reader: Reader, name: str | None) -> None:
    known = reader.catalog.sources()
    if name is not None and name not in known:
        raise ConfigError(
            f"the index has no source {name} (it has: {', '.join(known) or 'none'})",
            "prompt-rag source list",
        )


def _is_among(candidate: Candidate, others: list[Candidate]) -> bool:
    """Whether one of ``others`` is of the same note, or has the same text in another place."""
    return any(
        candidate.note.id == other.note.id or candidate.note.uri in other.note.also
        for other in others
    )


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
    config = configuration.load()
    with Reader.open(config) as reader:
        decision = answer.decide(reader, output.whole(prompt))
    if pauses.paused_until(config.home) is not None:
        output.say(
            "The hook is paused; without the pause it would do this. End: prompt-rag pause off"
        )
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
        "candidates": [_verdict_document(verdict) for verdict in decision.verdicts],
        "block": decision.block or None,
        "chars": len(decision.block),
        "timings_ms": dict(decision.timings_ms),
        "generation": decision.generation,
        "model": decision.model,
    }


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    return {
        **candidate_document(verdict.candidate),
        "accepted": verdict.accepted,
        "verdict": verdict.why,
        "probability": verdict.probability,
        "contributions": dict(reasons.by_size(verdict)),
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
            f" sure_distance {bar.sure_distance:.3f}, min_probability {bar.min_probability:.3f}"
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
        _print_contributions(decision)
    if decision.block:
        click.echo(f"\n{len(decision.block)} characters would be added to the prompt:\n")
        click.echo(decision.block)


def _print_contributions(decision: Decision) -> None:
    """Print what made the probability of the best note, and of what goes in."""
    explained = reasons.taken_apart(decision.verdicts)
    if decision.thresholds is None or not explained:
        return
    click.echo(f"\n{reasons.LEGEND}")
    for verdict in explained:
        click.echo(f"\n{output.one_line(verdict.candidate.note.title, 80)}")
        for sentence in reasons.sentences(verdict, decision.thresholds):
            click.echo(f"  {sentence}")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--host", default="claude", show_default=True, help="The agent host that calls.")
@click.option("--home", help="The folder of the index; default: the user's.")
def hook(host: str, home: str | None) -> None:
    """Answer an agent host: its JSON on stdin, at most one JSON answer on stdout.

    Always exits 0 and never writes to stderr. This is what `install` puts into a host's settings.
    """
    from prompt_rag import hook as hot_path  # `prompt-rag hook` itself starts in __main__

    hot_path.main(["--host", host, *(["--home", home] if home else [])])
