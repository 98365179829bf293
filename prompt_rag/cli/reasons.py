"""A probability taken apart into sentences, for a person who has never seen a log-odd."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prompt_rag.domain import Thresholds, Verdict
from prompt_rag.policy import FEATURES

# Contributions below it move a probability by less than half a percent and would print as 0.0.
SMALLEST_SHOWN = 0.05
CERTAIN = 1e-12
"""A probability is kept this far from 0 and 1, where its log-odds are infinite."""

LEGEND = (
    "Each line moves the odds that the note helps, against a typical prompt: + for, - against;"
    " at 0.0 in all the chances are even."
)


def taken_apart(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return those whose probability is worth explaining: the first, and what goes in."""
    return [
        verdict
        for position, verdict in enumerate(verdicts)
        if verdict.probability is not None and (verdict.accepted or position == 0)
    ]


def sentences(verdict: Verdict, bar: Thresholds) -> list[str]:
    """Return how the probability of ``verdict`` comes about, what weighs most first.

    None where it did not come to a probability: ``verdict.why`` then says all there is.
    """
    if verdict.probability is None:
        return []
    probability = min(max(verdict.probability, CERTAIN), 1.0 - CERTAIN)
    total = math.log(probability / (1.0 - probability))
    start = total - sum(verdict.contributions.values())
    enough = "enough" if verdict.accepted else "not enough"
    last = (
        f"a probability of {verdict.probability:.0%}: {enough}, {bar.min_probability:.0%} is needed"
    )
    shown = [
        (amount, FEATURES[name])
        for name, amount in by_size(verdict)
        if abs(amount) >= SMALLEST_SHOWN
    ]
    return [
        f"{start:+.1f} where the first note of a typical prompt starts",
        *[f"{amount:+.1f} {words}" for amount, words in shown],
        f"{total:+.1f} in all, {last}",
    ]


def by_size(verdict: Verdict) -> list[tuple[str, float]]:
    """Return name and amount of each contribution, the largest first whatever its sign."""
    return sorted(verdict.contributions.items(), key=lambda each: (-abs(each[1]), each[0]))
