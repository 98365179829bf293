"""Fitting thresholds and weights to labelled prompts for a stated rate of false injections.

What is fitted belongs to one model. Two rules can be fitted: distance and gap alone, by a sweep,
and a logistic regression over everything that is measured, whose bar is set on predictions for
prompts that were held out of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from prompt_rag import policy
from prompt_rag.calibration import Calibration
from prompt_rag.domain import Thresholds
from prompt_rag.evaluation import Case
from prompt_rag.policy import FEATURES, Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Steps of the sweep: finer ones follow single prompts of a few hundred.
DISTANCE_STEP = 0.01
GAP_STEP = 0.01
LARGEST_GAP = 0.25
# A wrong note in answer to an answerable prompt costs as much as a right one is worth, so that a
# bar which finds one more and spoils one more is no better than silence.
WRONG_NOTE_COST = 1.0
# `search` shows what is near enough to be worth a look: this share of the relevant notes.
SEARCH_SHARE = 0.95
# The hard limits lie outside this share of the relevant notes that were found: they are there for
# the absurd, the weights for the doubtful.
LIMIT_SHARE = 0.98
# Strength of the L2 penalty on standardised weights; scikit-learn's default, and weak at a few
# hundred prompts.
RIDGE = 1.0
# Below it a note is more likely wrong than right, however much is allowed.
EVEN_CHANCE = 0.5
# Shares of false injections whose bars are kept beside the one in use, for `replay`.
RATES = (0.005, 0.01, 0.02, 0.05)
FOLDS = 10
# Below, the quantiles of the tail are single prompts themselves.
FEWEST_FOR_A_TAIL = 100
TAIL_FROM = 0.05
NEWTON_STEPS = 50


@dataclass(frozen=True, slots=True)
class Rows:
    """One row a prompt, about the first candidate of its search.

    ``features`` is ``(n, f)`` float64 in the order of :data:`policy.FEATURES`; the others are
    ``(n,)`` bool: was it looked up at all, is it answerable, is the first candidate relevant, is it
    borderline. ``ids`` are the prompts'.
    """

    features: Array
    searched: Array
    answerable: Array
    right: Array
    neutral: Array
    ids: tuple[str, ...]

    def column(self, name: str) -> Array:
        """Return one feature, ``(n,)``."""
        column: Array = self.features[:, list(FEATURES).index(name)]
        return column

    @property
    def wrong(self) -> Array:
        """Whether injecting the first candidate is a mistake."""
        wrong: Array = ~self.right & ~self.neutral
        return wrong

    def allowed(self, max_false_injection: float) -> int:
        """Return how many unanswerable prompts that share of them is."""
        return int(max_false_injection * int((~self.answerable).sum()) + 1e-9)


def rows(cases: Sequence[Case]) -> Rows:
    """Measure each case's first candidate, to fit on.

    Raises ValueError where there are no answerable or no unanswerable prompts.
    """
    table = measured(cases)
    if table.answerable.all() or not table.answerable.any():
        raise ValueError("tuning needs answerable and unanswerable prompts")
    return table


def measured(cases: Sequence[Case]) -> Rows:
    """Measure each case's first candidate. Without one, or not looked up, its row is all zero."""
    answerable = np.array([case.answerable for case in cases], dtype=bool)
    features = np.zeros((len(cases), len(FEATURES)))
    searched = np.zeros(len(cases), dtype=bool)
    right, neutral = searched.copy(), searched.copy()
    for position, case in enumerate(cases):
        if not case.searched or not case.candidates:
            continue
        first, *rivals = case.candidates
        found = policy.features_of(first, rivals)
        features[position] = [found[name] for name in FEATURES]
        searched[position] = True
        keys = set(case.ranked[0])
        right[position] = bool(keys & set(case.prompt.relevant))
        neutral[position] = not right[position] and bool(keys & set(case.prompt.also_ok))
    ids = tuple(case.prompt.id for case in cases)
    return Rows(features, searched, answerable, right, neutral, ids)


# --- distance and gap alone ---------------------------------------------------------------------


def fit_distance_gap(table: Rows, max_false_injection: float, fingerprint: str) -> Thresholds:
    """Return the distance and gap worth most within ``max_false_injection``.

    That is a share of the unanswerable prompts, in [0, 1]. Worth is what is right less what is
    wrong (:data:`WRONG_NOTE_COST`). Among equals the strictest win.

    Raises ValueError where not even the strictest limits keep to it.
    """
    distance = np.where(table.searched, table.column("distance"), np.inf)
    gap = table.column("gap")
    allowed = table.allowed(max_false_injection)
    best: tuple[float, ...] | None = None
    chosen = (0.0, 0.0, 0.0)
    for max_distance in _steps(0.05, 1.0, DISTANCE_STEP):
        near = distance <= max_distance
        for min_gap in _steps(0.0, LARGEST_GAP, GAP_STEP):
            leads = near & (gap >= min_gap)
            for sure in _steps(0.0, max_distance + 1e-6, DISTANCE_STEP):
                injected = leads | (distance <= sure)
                false = int((injected & ~table.answerable & table.wrong).sum())
                if false > allowed:
                    break  # a larger sure_distance only adds
                hits = int((injected & table.right).sum())
                wrong = int((injected & table.answerable & table.wrong).sum())
                worth = hits - WRONG_NOTE_COST * wrong
                value = (worth, -false, -max_distance, min_gap, -sure)
                if best is None or value > best:
                    best, chosen = value, (max_distance, min_gap, sure)
    if best is None:
        raise ValueError(f"no limits keep false injections at {max_false_injection:g}")
    max_distance, min_gap, sure = chosen
    return Thresholds(
        max_distance=max_distance,
        min_gap=min_gap,
        sure_distance=sure,
        search_distance=max(_search_distance(table), max_distance),
        calibrated_for=fingerprint,
    )


def _steps(start: float, stop: float, step: float) -> list[float]:
    """Return the numbers from ``start`` to below ``stop`` as they are stored, with four places.

    Limits that are rounded after the sweep would not be those that were counted with.
    """
    return [round(float(number), 4) for number in np.arange(start, stop, step)]


def _search_distance(table: Rows) -> float:
    found = table.column("distance")[table.right]
    return round(float(np.quantile(found, SEARCH_SHARE)), 4) if len(found) else 1.0


# --- everything that is measured ----------------------------------------------------------------


def fit(
    table: Rows,
    max_false_injection: float,
    *,
    model: str,
    fingerprint: str,
    features: Sequence[str] = tuple(FEATURES),
    facts: Mapping[str, Any] | None = None,
) -> Calibration:
    """Return weights, hard limits and a bar for at most ``max_false_injection``.

    ``max_false_injection`` is a share of the unanswerable prompts, in [0, 1]. The bar lies where
    predictions for prompts that were held out of the fit (:data:`FOLDS` folds by the hash of the
    prompt's id) keep to it.

    Raises ValueError where the first candidate is right for no prompt.
    """
    if not table.right.any():
        raise ValueError("tuning needs prompts for which the search finds a relevant note first")
    probability = held_out(table, features)
    bar = round(_bar(probability, table, max_false_injection), 4)
    max_distance = round(float(np.quantile(table.column("distance")[table.right], LIMIT_SHARE)), 4)
    min_gap = round(float(np.quantile(table.column("gap")[table.right], 1 - LIMIT_SHARE)), 4)
    limited = (table.column("distance") <= max_distance) & (table.column("gap") >= min_gap)
    injected = table.searched & limited & (probability >= bar)
    n_answerable, n_unanswerable = int(table.answerable.sum()), int((~table.answerable).sum())
    return Calibration(
        model=model,
        thresholds=Thresholds(
            max_distance=max_distance,
            min_gap=min_gap,
            sure_distance=0.0,
            search_distance=max(_search_distance(table), max_distance),
            min_probability=bar,
            calibrated_for=fingerprint,
        ),
        weights=weights_of(table, features),
        facts={
            "max_false_injection": max_false_injection,
            "bars": {str(rate): round(_bar(probability, table, rate), 4) for rate in RATES},
            "answerable": n_answerable,
            "unanswerable": n_unanswerable,
            "held_out_coverage": round(int((injected & table.right).sum()) / n_answerable, 4),
            "held_out_false_injection_rate": round(
                int((injected & ~table.answerable & table.wrong).sum()) / n_unanswerable, 4
            ),
            **(facts or {}),
        },
    )


def _bar(probability: Array, table: Rows, max_false_injection: float) -> float:
    """Return the probability that only the allowed share of unanswerable prompts reaches.

    The larger of two: the one that the allowed number of these very prompts reaches, and the one
    that the tail of their distribution leads to expect of others.
    """
    allowed = table.allowed(max_false_injection)
    reached = np.sort(probability[~table.answerable & table.wrong & table.searched])[::-1]
    if len(reached) <= allowed:
        return EVEN_CHANCE  # nothing is in the way
    # Halfway to the last allowed one, so that the bar does not sit on a single prompt.
    above = reached[allowed - 1] if allowed else 1.0
    seen = max((reached[allowed] + above) / 2, reached[allowed] + 1e-4)
    share = max_false_injection * int((~table.answerable).sum()) / len(reached)
    return float(max(seen, _tail(reached, share), EVEN_CHANCE))


def _tail(reached: Array, share: float) -> float:
    """Return the probability above which ``share`` of prompts like these is expected.

    A bar for one in a hundred that is read off 200 prompts rests on two of them. So the upper half
    of their log-odds is taken for that of a normal distribution, whose line through the quantiles
    from 0.5 to 0.95 is followed to where the bar has to be. 0 where there are too few to tell.
    """
    if len(reached) < FEWEST_FOR_A_TAIL or not 0.0 < share < TAIL_FROM:
        return 0.0
    safe = np.clip(reached, 1e-9, 1 - 1e-9)
    levels = np.linspace(0.5, 1 - TAIL_FROM, 10)
    normal = NormalDist()
    places = [normal.inv_cdf(level) for level in levels]
    slope, middle = np.polyfit(places, np.quantile(np.log(safe / (1 - safe)), levels), 1)
    odds = middle + slope * normal.inv_cdf(1 - share)
    return float(1 / (1 + np.exp(-np.clip(odds, -60, 60))))


def held_out(table: Rows, features: Sequence[str]) -> Array:
    """Return for each prompt the probability that a fit without its fold predicts."""
    folds = np.array([int(sha256(each.encode()).hexdigest(), 16) % FOLDS for each in table.ids])
    result = np.zeros(len(table.ids))
    for fold in range(FOLDS):
        test = folds == fold
        if test.any():
            result[test] = predict(weights_of(table, features, ~test), table)[test]
    return result


def predict(weights: Weights, table: Rows) -> Array:
    """Return the probability of each row, ``(n,)``; 0 where nothing was looked up."""
    total = np.full(len(table.ids), weights.intercept)
    for name, weight in weights.terms.items():
        total = total + weight * table.column(name)
    probability: Array = 1.0 / (1.0 + np.exp(-np.clip(total, -60, 60)))
    return np.where(table.searched, probability, 0.0)


def weights_of(table: Rows, features: Sequence[str], rows_of: Array | None = None) -> Weights:
    """Return the logistic regression of ``right`` on the features, borderline rows left out.

    ``rows_of`` is ``(n,)`` bool, the rows to fit on; None means all. Without any row the chances
    are even.
    """
    use = table.searched & ~table.neutral
    if rows_of is not None:
        use &= rows_of
    if not use.any():
        return Weights(0.0, dict.fromkeys(features, 0.0), dict.fromkeys(features, 0.0))
    columns = np.column_stack([table.column(name) for name in features])[use]
    mean, spread = columns.mean(axis=0), columns.std(axis=0)
    spread[spread == 0.0] = 1.0
    coefficients = _logistic((columns - mean) / spread, table.right[use].astype(float))
    plain = coefficients[1:] / spread
    return Weights(
        intercept=round(float(coefficients[0] - plain @ mean), 6),
        terms={name: round(float(w), 6) for name, w in zip(features, plain, strict=True)},
        typical={name: round(float(m), 6) for name, m in zip(features, mean, strict=True)},
    )


def _logistic(columns: Array, labels: Array) -> Array:
    """Return intercept and weights of an L2-penalised logistic regression, by Newton's method.

    ``columns`` is ``(n, f)``, standardised; ``labels`` ``(n,)`` of 0 and 1. The intercept is not
    penalised. (Iteratively reweighted least squares; Hastie et al., The Elements of Statistical
    Learning, 4.4.1.)
    """
    design = np.column_stack([np.ones(len(columns)), columns])
    penalty = np.diag([0.0, *[RIDGE] * columns.shape[1]])
    weights = np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -60, 60)))
        gradient = design.T @ (labels - chance) - penalty @ weights
        curvature = (design.T * (chance * (1 - chance))) @ design + penalty
        curvature += 1e-9 * np.eye(len(weights))  # all labels equal: the intercept runs away
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step
        if np.abs(step).max() < 1e-8:
            break
    return weights
