"""``replay``: what other thresholds would have done with the decisions in the log."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import click

from prompt_rag import calibration, embedder, wire
from prompt_rag import config as configuration
from prompt_rag import replay as replaying
from prompt_rag.calibration import Calibration
from prompt_rag.cli import output
from prompt_rag.cli.log import local
from prompt_rag.config import Config
from prompt_rag.decisions import DecisionLog
from prompt_rag.domain import ConfigError
from prompt_rag.replay import Change, Replay

SHOWN = 50
"""Changes that the table lists; `--json` has all."""
_SHARE = click.FloatRange(0.0, 1.0)
_DISTANCE = click.FloatRange(0.0, 2.0)
_GAP = click.FloatRange(-2.0, 2.0)


@click.command()
@click.option(
    "--max-false-injection",
    "rate",
    type=_SHARE,
    help="The bar that was fitted for this share of false injections, or the next stricter one.",
)
@click.option("--max-distance", type=_DISTANCE)
@click.option("--min-gap", type=_GAP)
@click.option("--min-probability", type=_SHARE)
@output.json_option
def replay(rate: float | None, as_json: bool, **limits: float | None) -> None:
    """Show which decisions in the log would fall otherwise with other thresholds.

    What is not named stays as it is now. Nothing is changed; `prompt-rag config set` does that.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    if rate is None and not given:
        raise click.UsageError("name a threshold to try, for example --max-false-injection 0.02")
    if rate is not None and "min_probability" in given:
        raise click.UsageError("--max-false-injection and --min-probability set the same bar")
    config = configuration.load()
    fitted = _in_use(config)
    if rate is not None:
        given["min_probability"] = _bar(fitted, rate)
    bar = replace(fitted.thresholds, **given)  # type: ignore[arg-type]  # all are numbers
    # As with a limit set in the configuration: a stricter one holds for the sure ones too.
    bar = replace(bar, sure_distance=min(bar.sure_distance, bar.max_distance))
    found = replaying.replay(
        DecisionLog(config.home / wire.LOG),
        bar,
        fitted.weights,
        max_excerpts=config.settings.max_excerpts,
    )
    if as_json:
        output.print_json({"thresholds": asdict(bar), **asdict(found)})
    else:
        _print(found, given)


def _in_use(config: Config) -> Calibration:
    files = embedder.locate(config.settings.model_name, config.home)
    identity = embedder.identity_of(files)
    fitted = calibration.of_model(identity, config.settings, config.home)
    if fitted is None:
        raise ConfigError(
            f"{identity.name} has no thresholds to compare with", "prompt-rag tune --apply"
        )
    return fitted


def _bar(fitted: Calibration, rate: float) -> float:
    found = replaying.bar_for(fitted.facts.get("bars", {}), rate)
    if found is None:
        raise ConfigError(
            f"no bar for {rate:.1%} false injections is known",
            f"prompt-rag tune --max-false-injection {rate:g} --apply",
        )
    if found[0] < rate:
        output.say(f"the nearest bar that keeps to it is the one for {found[0]:.1%}")
    return found[1]


def _print(found: Replay, given: dict[str, Any]) -> None:
    named = ", ".join(f"{name} {value:.3f}" for name, value in given.items())
    if found.changes:
        rows = [_row(change) for change in found.changes[-SHOWN:][::-1]]
        output.print_table(["when", "id", "before", "after", "because"], rows)
        if len(found.changes) > SHOWN:
            output.say(f"… and {len(found.changes) - SHOWN} earlier ones; --json has all")
        click.echo()
    more = sum(bool(each.after) and not each.before for each in found.changes)
    fewer = sum(bool(each.before) and not each.after for each in found.changes)
    click.echo(
        f"with {named} {len(found.changes)} of {found.decisions} decisions would fall otherwise:"
        f" {more} more with notes, {fewer} fewer, {len(found.changes) - more - fewer} with others"
        f" ({found.injected_before} with notes before, {found.injected_after} after)"
    )
    if found.passed_over:
        output.say(f"{found.passed_over} decisions of another model or a wider bar are left out")


def _row(change: Change) -> list[str]:
    return [
        local(change.time),
        change.id,
        *[
            ", ".join(output.one_line(key, 40) for key in keys) or "silence"
            for keys in (change.before, change.after)
        ],
        change.why + (f": {output.one_line(change.text, 60)}" if change.text else ""),
    ]
