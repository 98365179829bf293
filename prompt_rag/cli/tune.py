"""``tune``: fit the bar, for any model, on the fixtures and on a person's own notes and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from prompt_rag import calibration, evaluation, feedback, fsio, indexing, pseudo, tuning
from prompt_rag import config as configuration
from prompt_rag.calibration import Calibration
from prompt_rag.cli import fixtures, output
from prompt_rag.cli import report as page
from prompt_rag.cli.evaluate import evaluated_home
from prompt_rag.config import Config
from prompt_rag.domain import Embedder, IndexMissing, LabelledPrompt, Thresholds
from prompt_rag.evaluation import Case
from prompt_rag.search import Reader, load_embedder
from prompt_rag.tuning import Rows

WORDS_OF_KIND = {
    pseudo.TITLE: "titles (easier than prompts)",
    pseudo.TLDR: "lines of a TL;DR",
    pseudo.HEADING: "headings",
    "all": "all",
}
REPORTED = ("prompt-rag", "bm25", "like")
SHARES = ("found_first", "injected")


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
@click.option(
    "--no-feedback", is_flag=True, help="Leave out what you said with `prompt-rag feedback`."
)
@click.option(
    "--report",
    "report_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page with curves, distributions and the worst mistakes into this file.",
)
@click.option("--apply", "apply_it", is_flag=True, help="Use the result from now on.")
@output.json_option
@output.quiet_option
def tune(
    files: tuple[Path, ...],
    rate: float,
    no_feedback: bool,
    report_file: Path | None,
    apply_it: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit the bar for the model in use.

    Weights and bar are fitted on the fixtures, together with your labelled prompts if you give
    any, and with what you said with `prompt-rag feedback`. Then the prompts of the fixtures that
    no note answers are put to your own index, and the bar is raised until it keeps its promise
    there too.
    """
    config = configuration.load()
    labelled = [prompt for file in files for prompt in evaluation.load_prompts(file)]
    said = [] if no_feedback else feedback.prompts(feedback.read(config.home))
    work = load_embedder(config, threads=config.settings.model_threads)
    systems = REPORTED if report_file is not None else REPORTED[:1]
    with output.progress(quiet=quiet or as_json) as report:
        by_system = _fixture_cases(config, work, systems, report)
        learnt = by_system["prompt-rag"]
        own = _own_cases(config, work, labelled, said, report)
    current = calibration.of_model(work.identity, config.settings, config.home)
    # Who has no weights yet has the more use for what the own notes say.
    more = (
        [case for case in own.drawn if case.prompt.kind != pseudo.TITLE]
        if current is None or current.weights is None
        else []
    )
    table = tuning.rows([*learnt, *own.labelled, *more])
    fitted = tuning.fit(
        table,
        rate,
        model=work.identity.name,
        fingerprint=work.identity.fingerprint,
        facts={
            "fitted_by": "prompt-rag tune",
            "own_prompts": len(own.labelled),
            "own_queries": len(more),
        },
    )
    fitted = replace(fitted, distance_gap=_distance_gap(table, rate, fitted))
    fitted = _raised(fitted, own.unanswerable, rate)
    if own.drawn:
        drawn = pseudo.summary(own.drawn, fitted)
        fitted = replace(fitted, facts={**fitted.facts, "own_notes": drawn})
    if report_file is not None:
        _write_report(report_file, by_system, fitted, rate)
    if apply_it:
        calibration.write(config.home / calibration.OWN, fitted)
    if as_json:
        output.print_json({"applied": apply_it, **asdict(fitted)})
    else:
        _print(fitted, rate, applied=apply_it)


def _fixture_cases(
    config: Config, work: Embedder, systems: Sequence[str], report: Any
) -> dict[str, list[Case]]:
    """Return what each system makes of the fixtures' notes and prompts."""
    with evaluated_home(None, None) as home:
        fresh = replace(config, home=home.home, sources=home.sources)
        indexing.rebuild(fresh, make_embedder=lambda: work, progress=report)
        with Reader.open(fresh, lambda: work) as reader:
            return {
                name: evaluation.run(name, reader, fixtures.prompts(), report) for name in systems
            }


def _write_report(
    file: Path, by_system: dict[str, list[Case]], fitted: Calibration, rate: float
) -> None:
    """Write the page, readable by this person alone: it quotes prompts."""
    both = evaluation.at_distance_and_gap(by_system["prompt-rag"])
    first, *baselines = by_system
    cases = {first: by_system[first], "distance-gap": both}
    cases |= {name: by_system[name] for name in baselines}
    fsio.write_atomic(str(file), page.page(cases, fitted, rate).encode("utf-8", "replace"))
    output.say(f"the report is in {file}")


@dataclass(frozen=True, slots=True)
class _Own:
    """Cases on the own index: labelled prompts, the fixtures' unanswerable ones, drawn queries."""

    labelled: Sequence[Case] = ()
    unanswerable: Sequence[Case] = ()
    drawn: Sequence[Case] = ()


def _own_cases(
    config: Config,
    work: Embedder,
    labelled: Sequence[LabelledPrompt],
    said: Sequence[LabelledPrompt],
    report: Any,
) -> _Own:
    """Return what the own index makes of prompts.

    ``said`` are those of feedback; where their notes are gone, they are left out.
    """
    try:
        reader = Reader.open(config, lambda: work)
    except IndexMissing:
        if labelled:
            raise
        return _Own()
    with reader:
        evaluation.require_known_notes(labelled, reader.catalog)
        known = {
            key for name in reader.catalog.sources() for key in reader.catalog.fingerprints(name)
        }
        kept = [each for each in said if known.issuperset(each.relevant)]
        # A near miss about somebody else's notes may well be answered by one of these.
        unanswerable = [
            prompt
            for prompt in fixtures.prompts()
            if not prompt.relevant and prompt.kind != "near-miss"
        ]
        return _Own(
            evaluation.run("prompt-rag", reader, [*labelled, *kept], report),
            evaluation.run("prompt-rag", reader, unanswerable, report),
            pseudo.measure(pseudo.draw(reader.catalog), reader.catalog, work, report),
        )


def _distance_gap(table: Rows, rate: float, fitted: Calibration) -> Thresholds | None:
    """Return the best that distance and gap do alone; None where nothing keeps to ``rate``."""
    try:
        return tuning.fit_distance_gap(table, rate, fitted.thresholds.calibrated_for)
    except ValueError:
        return None


def _raised(fitted: Calibration, foreign: Sequence[Case], rate: float) -> Calibration:
    """Return ``fitted`` with a bar, and bars for other rates, that hold on ``foreign`` too."""
    if not foreign or fitted.weights is None:
        return fitted
    table = tuning.measured(foreign)
    reached = np.sort(tuning.predict(fitted.weights, table))[::-1]

    def raised(bar: float, share: float) -> float:
        allowed = min(int(share * len(reached) + 1e-9), len(reached) - 1)
        return max(bar, round(float(reached[allowed]) + 1e-4, 4))

    before = fitted.thresholds.min_probability
    bar = raised(before, rate)
    facts = {
        **fitted.facts,
        "bars": {name: raised(each, float(name)) for name, each in fitted.facts["bars"].items()},
        "raised_on_own_notes": bar > before,
    }
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
    drawn = facts.get("own_notes", {})
    if drawn:
        click.echo(
            "\nLines of your own notes as queries, with the passages they come from left out:"
        )
        table = [
            [WORDS_OF_KIND[kind], str(each["queries"]), *[f"{each[n]:.0%}" for n in SHARES]]
            for kind, each in drawn.items()
        ]
        columns = ["", "queries", "found their note first", "would get it"]
        output.print_table(columns, table, right=(1, 2, 3))
    output.say("in use from now on" if applied else "nothing was changed; --apply uses it")
