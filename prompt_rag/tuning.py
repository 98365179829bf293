"""Fitting thresholds to labelled prompts for a stated rate of false injections.

The thresholds are fitted on the tune split and belong to one model. A sweep over all combinations
is affordable (three numbers, a few hundred prompts) and has no hidden assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prompt_rag import policy
from prompt_rag.domain import Thresholds
from prompt_rag.evaluation import Case

# Steps of the sweep: finer ones follow single prompts of a few hundred.
DISTANCE_STEP = 0.01
GAP_STEP = 0.01
LARGEST_GAP = 0.25
# A wrong note in answer to an answerable prompt costs as much as a right one is worth, so that a
# bar which finds one more and spoils one more is no better than silence.
WRONG_NOTE_COST = 1.0
# `search` shows what is near enough to be worth a look: this share of the relevant notes.
SEARCH_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted thresholds and what they reach on the prompts they were fitted to."""

    thresholds: Thresholds
    coverage: float
    false_injection_rate: float
    wrong_note_rate: float


def fit(cases: Sequence[Case], max_false_injection: float, calibrated_for: str) -> Fit:
    """Return the thresholds with the best coverage at no more than ``max_false_injection``.

    ``max_false_injection`` is a share of the unanswerable prompts among ``cases``, in [0, 1]. Among
    equals the strictest thresholds win. Prompts that never reach the search (nobody typed them)
    count as unanswerable and not injected.

    Raises ValueError where there are no answerable or no unanswerable prompts.
    """
    answerable = np.array([case.answerable for case in cases])
    if answerable.all() or not answerable.any():
        raise ValueError("tuning needs answerable and unanswerable prompts")
    distance, gap, right, neutral = _measured(cases)
    n_answerable, n_unanswerable = int(answerable.sum()), int((~answerable).sum())
    allowed = int(max_false_injection * n_unanswerable + 1e-9)
    best: tuple[float, ...] | None = None
    chosen = (0.0, 0.0, 0.0)
    for max_distance in np.arange(0.05, 1.0, DISTANCE_STEP):
        near = distance <= max_distance
        for min_gap in np.arange(0.0, LARGEST_GAP, GAP_STEP):
            leads = near & (gap >= min_gap)
            for sure_distance in np.arange(0.0, max_distance + DISTANCE_STEP / 2, DISTANCE_STEP):
                injected = leads | (distance <= sure_distance)
                false = int((injected & ~answerable).sum())
                if false > allowed:
                    break  # a larger sure_distance only adds
                hits = int((injected & right).sum())
                wrong = int((injected & answerable & ~right & ~neutral).sum())
                value = (
                    hits - WRONG_NOTE_COST * wrong,
                    float(-false),
                    -float(max_distance),
                    float(min_gap),
                    -float(sure_distance),
                )
                if best is None or value > best:
                    best = value
                    chosen = (float(max_distance), float(min_gap), float(sure_distance))
    max_distance, min_gap, sure_distance = (round(number, 4) for number in chosen)
    injected = ((distance <= max_distance) & (gap >= min_gap)) | (distance <= sure_distance)
    relevant_distances = np.sort(distance[right])
    position = min(int(SEARCH_SHARE * len(relevant_distances)), len(relevant_distances) - 1)
    search = float(relevant_distances[position]) if len(relevant_distances) else max_distance
    return Fit(
        Thresholds(
            max_distance=max_distance,
            min_gap=min_gap,
            sure_distance=sure_distance,
            search_distance=round(max(search, max_distance), 4),
            calibrated_for=calibrated_for,
        ),
        coverage=float((injected & right).sum()) / n_answerable,
        false_injection_rate=float((injected & ~answerable).sum()) / n_unanswerable,
        wrong_note_rate=float((injected & answerable & ~right & ~neutral).sum()) / n_answerable,
    )


def _measured(
    cases: Sequence[Case],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return distance, gap, whether the best note is relevant, whether it is borderline.

    Arrays of the length of ``cases``. Without a candidate the distance is infinite; without a rival
    the gap is.
    """
    distances, gaps, right, neutral = [], [], [], []
    for case in cases:
        if not case.searched:
            distances.append(np.inf)
            gaps.append(0.0)
            right.append(False)
            neutral.append(False)
            continue
        best = min(case.candidates, key=lambda each: (each.distance, each.rank))
        keys = set(case.ranked[case.candidates.index(best)])
        gap = policy.gap_of(best, case.candidates)
        distances.append(best.distance)
        gaps.append(np.inf if gap is None else gap)
        right.append(bool(keys & set(case.prompt.relevant)))
        neutral.append(bool(keys & set(case.prompt.also_ok)))
    return np.array(distances), np.array(gaps), np.array(right), np.array(neutral)
