"""Measure what a stranger gets: fit on all voices but one, test on that one, for each in turn.

``python benchmarks/evaluation.py`` prints JSON; ``--write`` also replaces
``docs/evaluation.json``, from which ``docs/generate.py`` makes ``docs/evaluation.md``.

For every system a bar is set at 1, 2 and 5 % false injections on the voices it is fitted on, then
applied to the one left out, so that the rate of false injections is a result and not an assumption.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prompt_rag import config as configuration
from prompt_rag import evaluation, indexing, tuning
from prompt_rag.cli import fixtures
from prompt_rag.evaluation import Case
from prompt_rag.policy import FEATURES
from prompt_rag.search import Reader
from prompt_rag.tuning import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

RATES = (0.01, 0.02, 0.05)
BINS = 5
RESAMPLES = 1000
SEED = 20261201
WORDS = ("coverage", "coverage_lead", "title_coverage", "passage_coverage", "words_found")
ABLATIONS: Mapping[str, tuple[str, ...]] = {
    "everything": tuple(FEATURES),
    "without the gap": tuple(name for name in FEATURES if name != "gap"),
    "without the whole note": tuple(name for name in FEATURES if name != "whole_note"),
    "without the words of the note": tuple(
        name for name in FEATURES if name not in ("coverage", "coverage_lead", "title_coverage")
    ),
    "without the words of the passage": tuple(
        name for name in FEATURES if name not in ("passage_coverage", "words_found")
    ),
    "without any words": tuple(name for name in FEATURES if name not in WORDS),
    "without vectors": WORDS,
}

Confidence = Callable[["Rows", "Array"], "Array"]
"""Rows and which of them to fit on, to one number for each row; larger is surer."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        config = replace(configuration.load(home), sources=tuple(fixtures.sources(home)))
        indexing.rebuild(config)
        prompts = fixtures.prompts()
        with Reader.open(config) as reader:
            cases = {
                system: evaluation.run(system, reader, prompts)
                for system in ("prompt-rag", "bm25", "like")
            }
            notes = reader.catalog.notes()
            model = reader.embedder.identity
    voices = np.array([prompt.voice for prompt in prompts])
    table = tuning.rows(cases["prompt-rag"])
    systems: dict[str, tuple[Sequence[Case], Rows, Array]] = {
        "prompt-rag": (cases["prompt-rag"], table, left_out(table, voices, tuple(FEATURES))),
        "distance-gap": (
            cases["prompt-rag"],
            table,
            -table.column("distance") + evaluation.GAP_WEIGHT * table.column("gap"),
        ),
        "distance": (cases["prompt-rag"], table, -table.column("distance")),
    }
    for name in ("bm25", "like"):
        rows = tuning.rows(cases[name])
        systems[name] = (cases[name], rows, _strength(cases[name]))
    document: dict[str, Any] = {
        "model": model.name,
        "notes": notes,
        "prompts": {
            "answerable": int(table.answerable.sum()),
            "unanswerable": int((~table.answerable).sum()),
        },
        "voices": {voice: int((voices == voice).sum()) for voice in sorted(set(voices))},
        "systems": {
            name: system_figures(judged, rows, confidence, voices)
            for name, (judged, rows, confidence) in systems.items()
        },
        "ablation": {
            name: [
                at_rate(table, left_out(table, voices, features), voices, rate) for rate in RATES
            ]
            for name, features in ABLATIONS.items()
        },
        "calibration": calibration_bins(table, systems["prompt-rag"][2]),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    print(text)
    if "--write" in sys.argv:
        target = Path(__file__).parent.parent / "docs" / "evaluation.json"
        target.write_text(text, encoding="utf-8")


def left_out(table: Rows, voices: Array, features: tuple[str, ...]) -> Array:
    """Return the probability of each row by weights that never saw its voice."""
    result = np.zeros(len(voices))
    for voice in sorted(set(voices)):
        weights = tuning.weights_of(table, features, voices != voice)
        result[voices == voice] = tuning.predict(weights, table)[voices == voice]
    return result


def _strength(cases: Sequence[Case]) -> Array:
    """Return how much a baseline makes of its first candidate: what it ranks by, negated."""
    return np.array([-case.candidates[0].distance if case.candidates else -9.0 for case in cases])


def system_figures(
    cases: Sequence[Case], table: Rows, confidence: Array, voices: Array
) -> dict[str, Any]:
    """Return retrieval over the answerable prompts and injection at each rate."""
    return {
        "retrieval": {
            name: evaluation.figures(cases)[name] for name in ("recall@5", "mrr", "ndcg@10")
        },
        "injection": [at_rate(table, confidence, voices, rate, cases) for rate in RATES],
    }


def at_rate(
    table: Rows,
    confidence: Array,
    voices: Array,
    rate: float,
    cases: Sequence[Case] | None = None,
) -> dict[str, Any]:
    """Set the bar at ``rate`` on the other voices, apply it to each voice, add up."""
    surely = np.where(table.searched, confidence, -np.inf)
    injected = np.zeros(len(voices), dtype=bool)
    for voice in sorted(set(voices)):
        fitted_on = voices != voice
        refused = np.sort(surely[fitted_on & ~table.answerable])[::-1]
        bar = refused[int(rate * len(refused))]
        injected |= (voices == voice) & (surely > bar)
    figures: dict[str, Any] = {"rate": rate, **_injection(table, injected)}
    chance = np.random.default_rng(SEED)
    draws = []
    for _ in range(RESAMPLES):
        rows = chance.integers(0, len(voices), len(voices))
        draws.append(_coverage(table, injected, rows))
    figures["coverage_interval"] = [round(float(x), 4) for x in np.percentile(draws, (2.5, 97.5))]
    if cases is not None:
        kinds = np.array([case.prompt.kind for case in cases])
        figures["false_by_kind"] = {
            kind: round(float((injected & (kinds == kind)).sum() / (kinds == kind).sum()), 4)
            for kind in sorted(set(kinds[~table.answerable]))
        }
        figures["by_voice"] = {
            voice: _injection(table, injected, voices == voice) for voice in sorted(set(voices))
        }
    return figures


def _injection(table: Rows, injected: Array, part: Array | None = None) -> dict[str, float]:
    part = np.ones(len(injected), dtype=bool) if part is None else part
    hits = int((injected & table.right & part).sum())
    wrong = int((injected & table.wrong & part).sum())
    unanswerable = ~table.answerable & part
    return {
        "coverage": round(hits / int((table.answerable & part).sum()), 4),
        "precision": round(hits / max(1, hits + wrong), 4),
        "false_injection_rate": round(
            int((injected & table.wrong & unanswerable).sum()) / int(unanswerable.sum()), 4
        ),
    }


def _coverage(table: Rows, injected: Array, rows: Array) -> float:
    answerable = int(table.answerable[rows].sum())
    return int((injected & table.right)[rows].sum()) / max(1, answerable)


def calibration_bins(table: Rows, probability: Array) -> list[dict[str, float]]:
    """Return predicted and observed share of helping notes in bins of equal size."""
    use = table.searched & ~table.neutral
    order = np.argsort(probability[use])
    return [
        {
            "predicted": round(float(probability[use][part].mean()), 4),
            "observed": round(float(table.right[use][part].mean()), 4),
            "prompts": len(part),
        }
        for part in np.array_split(order, BINS)
    ]


if __name__ == "__main__":
    main()
