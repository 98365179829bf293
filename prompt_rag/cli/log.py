"""``why``, ``stats`` and ``pause``: what the hook did, and how to make it stop for a while."""

from __future__ import annotations

import math
import re
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from prompt_rag import config as configuration
from prompt_rag import decisions, pauses, wire
from prompt_rag.cli import output
from prompt_rag.cli.words import WORDS
from prompt_rag.config import Config
from prompt_rag.decisions import DecisionLog
from prompt_rag.domain import Reason

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _log(config: Config) -> DecisionLog:
    return DecisionLog(config.home / wire.LOG)


@click.command()
@click.argument("count", default=5, type=click.IntRange(1, 1000))
@click.option("--all", "everything", is_flag=True, help="Also what nobody typed.")
@output.json_option
def why(count: int, everything: bool, as_json: bool) -> None:
    """Show the last COUNT decisions of the hook, newest first, with their reasons."""
    log = _log(configuration.load())
    wanted: list[dict[str, Any]] = []
    for record in reversed(list(log)):
        if everything or record.get("reason") not in decisions.UNTYPED:
            wanted.append(record)
        if len(wanted) == count:
            break
    if as_json:
        output.print_json(wanted)
        return
    if not wanted:
        output.say("the hook has not been asked yet; try: prompt-rag explain PROMPT")
    for record in wanted:
        _print_record(record)


def _print_record(record: dict[str, Any]) -> None:
    reason = str(record.get("reason", ""))
    outcome = "injected" if record.get("outcome") == "inject" else "silent"
    words = WORDS.get(Reason(reason), reason) if reason in set(Reason) else reason
    timings = record.get("timings_ms")
    total = timings.get("total") if isinstance(timings, dict) else None
    spent = f", {total:.0f} ms" if isinstance(total, int | float) else ""
    click.echo(
        f"{local(record.get('time'))}  {outcome}: {words}"
        f"  ({record.get('chars', 0)} characters{spent}, {record.get('host') or 'unknown host'},"
        f" id {record.get('id', '')})"
    )
    if record.get("text"):
        click.echo(f"    prompt: {output.one_line(str(record['text']), 120)}")
    candidates = record.get("candidates")
    for candidate in candidates[:3] if isinstance(candidates, list) else ():
        mark = "in " if candidate.get("accepted") else "out"
        click.echo(
            f"    {mark} {candidate.get('distance') or 0.0:.3f}"
            f" {output.one_line(str(candidate.get('note', '')), 50)}: {candidate.get('why', '')}"
        )


def local(time_text: Any) -> str:
    """Return a logged instant in the person's own time zone."""
    try:
        when = datetime.fromisoformat(str(time_text))
    except ValueError:
        return str(time_text)
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


@click.command()
@output.json_option
def stats(as_json: bool) -> None:
    """Sum up the decision log: how often the hook spoke, why not, and how long it took."""
    summary = decisions.summarise(_log(configuration.load()))
    if as_json:
        output.print_json(asdict(summary))
        return
    if not summary.decisions:
        output.say("the hook has not been asked yet")
        return
    rate = f"{summary.injection_rate:.0%}" if summary.injection_rate is not None else "none"
    times = ", ".join(f"{name} {value:.0f} ms" for name, value in summary.total_ms.items())
    rows = [
        ["period", f"{local(summary.first)} to {local(summary.last)}"],
        ["calls of the hook", str(summary.decisions)],
        ["typed by a person", str(summary.typed)],
        ["injected", f"{summary.injected} ({rate} of those typed)"],
        ["characters injected", str(summary.chars_injected)],
        ["repeats avoided", str(summary.repeats_avoided)],
        ["time taken", times or "none"],
    ]
    output.print_table(["", ""], rows)
    click.echo()
    reasons = [[name, str(count)] for name, count in summary.reasons.items()]
    output.print_table(["reason", "times"], reasons, right=(1,))


@click.command()
@click.argument("duration")
def pause(duration: str) -> None:
    """Silence the hook for DURATION (30m, 2h, 1d, forever), or end that (off)."""
    config = configuration.load()
    if duration == "off":
        pauses.resume(config.home)
        output.say("the hook answers again")
        return
    match = re.fullmatch(r"(\d{1,6})([smhd])", duration)
    if duration == "forever":
        pauses.pause(config.home, math.inf)
        output.say("silent until: prompt-rag pause off")
    elif match:
        until = time.time() + int(match[1]) * UNITS[match[2]]
        pauses.pause(config.home, until)
        when = datetime.fromtimestamp(until, UTC).astimezone()
        output.say(f"silent until {when:%Y-%m-%d %H:%M}; sooner: prompt-rag pause off")
    else:
        raise click.BadParameter(
            f"{duration} is none of 30m, 2h, 1d (at most six digits), forever, off",
            param_hint="DURATION",
        )
