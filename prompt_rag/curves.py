"""Risk against coverage: what a system's confidence is worth, without choosing a bar.

Prompts are taken surest first. At each point *coverage* is the share of all prompts that get a
note, and *risk* the share of those that get a wrong one (El-Yaniv and Wiener, On the foundations of
noise-free selective classification, 2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Point:
    """One bar: ``coverage`` and ``risk`` in [0, 1], of the prompts at or above ``confidence``."""

    confidence: float
    coverage: float
    risk: float


def risk_coverage(confidence: Sequence[float | None], wrong: Sequence[bool]) -> list[Point]:
    """Return a point for each different confidence, surest first; larger is surer.

    None is a prompt that gets no note at any bar; it counts for coverage all the same.
    """
    judged = [(sure, bad) for sure, bad in zip(confidence, wrong, strict=True) if sure is not None]
    judged.sort(key=lambda each: -each[0])
    points = []
    spoken = mistakes = 0
    # Equal ones share a bar: there is none between them.
    for sure, group in groupby(judged, key=lambda each: each[0]):
        members = [bad for _, bad in group]
        spoken += len(members)
        mistakes += sum(members)
        points.append(Point(sure, spoken / len(confidence), mistakes / spoken))
    return points


def area(points: Sequence[Point]) -> float | None:
    """Return the area under the curve (AURC): the mean risk over the coverage that is reached.

    Smaller is better; None without points.
    """
    if not points:
        return None
    steps = zip([0.0, *[point.coverage for point in points]], points, strict=False)
    return sum((point.coverage - before) * point.risk for before, point in steps) / (
        points[-1].coverage
    )
