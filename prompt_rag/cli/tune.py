"""``tune``: fit the bar, for any model, on the fixtures and on a person's own notes and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from prompt_rag import calibration, evaluation, indexing, tuning
from prompt_rag import config as configuration
from prompt_rag.calibration import Calibration
from prompt_rag.cli import fixtures, output
from prompt_rag.cli.evaluate import evaluated_home
from prompt_rag.config import Config
from prompt_rag.domain import Embedder, IndexMissing, LabelledPrompt
from prompt_rag.evaluation import Case
from prompt_rag.search import Reader, load_embedder


@click.command()
@click.option(
    "--prompts",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Labelled prompts about your own notes; repeat for several files.",
)
@click.option(
    "--max-false-injection",
    "rate",
    default=0.02,
    show_default=True,
    type=click.FloatRange(0.0, 0.5),
    help="Share of prompts without an answer that may get notes all the same.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Use the result from now on.")
@output.json_option
@output.quiet_option
def tune(files: tuple[Path, ...], rate: float, apply_it: bool, as_json: bool, quiet: bool) -> None:
    """Fit the bar for the model in use.

    Weights and bar are fitted on the fixtures, together with your labelled prompts if you give
    any. Then the prompts of the fixtures that no note answers are put to your own index, and the
    bar is raised until it keeps its promise there too.
    """
    config = configuration.load()
    labelled = [prompt for file in files for prompt in evaluation.load_prompts(file)]
    work = load_embedder(config, threads=config.settings.model_threads)
    with output.progress(quiet=quiet or as_json) as report:
        learnt = _fixture_cases(config, work, report)
        own, foreign = _own_cases(config, work, labelled, report)
    fitted = tuning.fit(
        tuning.rows([*learnt, *own]),
        rate,
        model=work.identity.name,
        fingerprint=work.identity.fingerprint,
        facts={"fitted_by": "prompt-rag tune", "own_prompts": len(labelled)},
    )
    fitted = _raised(fitted, foreign, rate)
    if apply_it:
        calibration.write(config.home / calibration.OWN, fitted)
    if as_json:
        output.print_json({"applied": apply_it, **asdict(fitted)})
    else:
        _print(fitted, rate, applied=apply_it)


def _fixture_cases(config: Config, work: Embedder, report: Any) -> list[Case]:
    """Return what the model makes of the fixtures' notes and prompts."""
    with evaluated_home(None, None) as home:
        fresh = replace(config, home=home.home, sources=home.sources)
        indexing.rebuild(fresh, make_embedder=lambda: work, progress=report)
        with Reader.open(fresh, lambda: work) as reader:
            return evaluation.run("prompt-rag", reader, fixtures.prompts(), report)


def _own_cases(
    config: Config, work: Embedder, labelled: Sequence[LabelledPrompt], report: Any
) -> tuple[list[Case], list[Case]]:
    """Return own labelled prompts, and the fixtures' unanswerable ones, put to the own index."""
    try:
        reader = Reader.open(config, lambda: work)
    except IndexMissing:
        if labelled:
            raise
        return [], []
    with reader:
        evaluation.require_known_notes(labelled, reader.catalog)
        own = evaluation.run("prompt-rag", reader, labelled, report)
        # A near miss about somebody else's notes may well be answered by one of these.
        unanswerable = [
            prompt
            for prompt in fixtures.prompts()
            if not prompt.relevant and prompt.kind != "near-miss"
        ]
        return own, evaluation.run("prompt-rag", reader, unanswerable, report)


def _raised(fitted: Calibration, foreign: Sequence[Case], rate: float) -> Calibration:
    """Return ``fitted`` with a bar that keeps ``rate`` on ``foreign`` too."""
    if not foreign or fitted.weights is None:
        return fitted
    table = tuning.measured(foreign)
    reached = np.sort(tuning.predict(fitted.weights, table))[::-1]
    allowed = int(rate * len(foreign) + 1e-9)
    needed = float(reached[allowed]) + 1e-4
    bar = max(fitted.thresholds.min_probability, round(needed, 4))
    facts = {**fitted.facts, "raised_on_own_notes": bar > fitted.thresholds.min_probability}
    return replace(fitted, thresholds=replace(fitted.thresholds, min_probability=bar), facts=facts)


def _print(fitted: Calibration, rate: float, *, applied: bool) -> None:
    bar, facts = fitted.thresholds, fitted.facts
    rows = [
        ["model", fitted.model],
        ["fitted for", f"at most {rate:.1%} false injections"],
        ["min_probability", f"{bar.min_probability:.3f}"],
        ["max_distance", f"{bar.max_distance:.3f}"],
        ["min_gap", f"{bar.min_gap:.3f}"],
        ["held-out coverage", f"{facts['held_out_coverage']:.1%} of the answerable prompts"],
        ["held-out false injections", f"{facts['held_out_false_injection_rate']:.1%}"],
        ["raised for your notes", "yes" if facts.get("raised_on_own_notes") else "no"],
    ]
    output.print_table(["", ""], rows)
    output.say("in use from now on" if applied else "nothing was changed; --apply uses it")
