"""Thresholds to decision: which candidates are confident enough to enter a prompt, and why.

The rule, in the order it is applied:

1. No candidate: abstain, ``no-notes``.
2. The best candidate is farther than ``max_distance``: abstain, ``too-far``.
3. It is nearer than ``sure_distance``: it needs no lead.
4. Otherwise its gap, the distance of the nearest *other* note minus its own, must reach
   ``min_gap``; less is a flat list in which the first is no better than the second: abstain,
   ``gap-too-small``. A note that says nearly the same as the best one is agreement and no rival.
5. Beside the best go those that need no lead either (``sure_distance``), and the best one's
   near-copies within ``max_distance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prompt_rag.domain import Candidate, Reason, Thresholds, Verdict

WHOLE_NOTE = "whole_note"
"""Evidence: cosine distance between the query and the mean of the note's passages."""
COVERAGE = "coverage"
"""Evidence: share of the query's words, weighted by rarity, that stand in the note; in [0, 1]."""
TITLE_COVERAGE = "title_coverage"
"""Evidence: the same share for the note's title."""
TO_BEST = "to_best"
"""Evidence: cosine distance between a candidate's passage and the best candidate's passage."""

# Passages of different notes that are closer than this say the same. Exported copies with a changed
# heading or an edited sentence measure 0.02 to 0.10 with the default model, two notes on one
# subject 0.25 and more (scripts in benchmarks/thresholds.py print both).
NEAR_COPY_DISTANCE = 0.12


@dataclass(frozen=True, slots=True)
class Ruling:
    """The policy's word on a whole list: verdicts in the order of the candidates."""

    reason: Reason
    verdicts: tuple[Verdict, ...]
    best_distance: float | None
    gap: float | None


def decide(candidates: Sequence[Candidate], thresholds: Thresholds) -> Ruling:
    """Rule on ``candidates``, at most one for each note, in any order.

    The reason is ``confident`` if and only if a verdict is accepted.
    """
    if not candidates:
        return Ruling(Reason.NO_NOTES, (), None, None)
    best = min(candidates, key=lambda candidate: (candidate.distance, candidate.rank))
    gap = gap_of(best, candidates)
    reason, why = _rule_on_best(best, gap, thresholds)
    verdicts = []
    for candidate in candidates:
        if candidate is best:
            verdicts.append(Verdict(candidate, reason is Reason.CONFIDENT, why))
        elif reason is Reason.CONFIDENT:
            verdicts.append(_rule_on_other(candidate, thresholds))
        else:
            verdicts.append(Verdict(candidate, accepted=False, why="the best note was not let in"))
    return Ruling(reason, tuple(verdicts), best.distance, gap)


def gap_of(best: Candidate, candidates: Sequence[Candidate]) -> float | None:
    """Return how far behind ``best`` the nearest rival is; None where there is no rival."""
    rivals = [
        candidate.distance
        for candidate in candidates
        if candidate is not best and not _is_near_copy(candidate.evidence)
    ]
    return min(rivals) - best.distance if rivals else None


def _is_near_copy(evidence: Mapping[str, float]) -> bool:
    return evidence.get(TO_BEST, 2.0) <= NEAR_COPY_DISTANCE


def _rule_on_best(best: Candidate, gap: float | None, thresholds: Thresholds) -> tuple[Reason, str]:
    distance = f"distance {best.distance:.3f}"
    if best.distance > thresholds.max_distance:
        return Reason.TOO_FAR, f"{distance} is above max_distance {thresholds.max_distance:.3f}"
    if best.distance <= thresholds.sure_distance:
        return (
            Reason.CONFIDENT,
            f"{distance} is within sure_distance {thresholds.sure_distance:.3f}",
        )
    if gap is None:
        return Reason.CONFIDENT, f"{distance} is near enough and no other note comes close"
    if gap < thresholds.min_gap:
        return (
            Reason.GAP_TOO_SMALL,
            f"its lead over the next note, {gap:.3f}, is below min_gap {thresholds.min_gap:.3f}",
        )
    return Reason.CONFIDENT, f"{distance} is near enough and it leads by {gap:.3f}"


def _rule_on_other(candidate: Candidate, thresholds: Thresholds) -> Verdict:
    distance = f"distance {candidate.distance:.3f}"
    if candidate.distance <= thresholds.sure_distance:
        return Verdict(
            candidate,
            accepted=True,
            why=f"{distance} is within sure_distance {thresholds.sure_distance:.3f}",
        )
    if candidate.distance <= thresholds.max_distance and _is_near_copy(candidate.evidence):
        return Verdict(candidate, accepted=True, why="it says nearly the same as the best note")
    return Verdict(
        candidate,
        accepted=False,
        why=f"{distance} is above sure_distance {thresholds.sure_distance:.3f}",
    )
