"""Fitting on sets made by hand, whose best limits are known, and what holds for every set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_rag import policy, tuning
from prompt_rag.domain import Candidate, LabelledPrompt, NoteHead, Passage, Reason, Thresholds
from prompt_rag.evaluation import Case
from prompt_rag.policy import COVERAGE, FEATURES, TO_BEST, Weights
from prompt_rag.tuning import Rows

TWO = ("distance", "gap")


@pytest.fixture(autouse=True)
def _wider_gap_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the sweep's work, and nothing here lies between its steps."""
    monkeypatch.setattr(tuning, "GAP_STEP", 0.03)


def candidate(name: str, distance: float, rank: int, **evidence: float) -> Candidate:
    passage = Passage(name, name, 0, "section", (), "", name)
    note = NoteHead(name, "notes", name, name, "", None, ())
    return Candidate(
        passage, note, distance, rank, {TO_BEST: 0.0 if rank == 1 else 1.0, **evidence}
    )


def case(
    number: int,
    relevant: str,
    distance: float | None,
    gap: float | None = None,
    *,
    also_ok: str = "",
    searched: bool = True,
    **evidence: float,
) -> Case:
    """A prompt whose search finds note ``a`` first and, ``gap`` behind it, note ``b``."""
    found = []
    if distance is not None:
        found.append(candidate("a", distance, 1, **evidence))
        if gap is not None:
            found.append(candidate("b", distance + gap, 2))
    return Case(
        LabelledPrompt(f"p{number}", "?", tuple(relevant), "k", "tune", tuple(also_ok)),
        "abstain",
        "",
        tuple((each.note.key,) for each in found),
        (),
        candidates=tuple(found),
        searched=searched,
    )


def table(*measured: tuple[str, float | None, float | None]) -> Rows:
    return tuning.rows([case(i, *each) for i, each in enumerate(measured)])


def sweep(found: Rows, allowed: float) -> tuple[float, float, float]:
    bar = tuning.fit_distance_gap(found, allowed, "f")
    assert bar.calibrated_for == "f"
    # A gap that all are exempt from is none: both ways to write "up to this distance" are one.
    min_gap, sure = bar.min_gap, bar.sure_distance
    return (bar.max_distance, *((min_gap, sure) if sure < bar.max_distance else (0.0, 0.0)))


# --- rows ---------------------------------------------------------------------------------------


def test_rows() -> None:
    found = tuning.rows(
        [
            case(0, "a", 0.4, 0.1, **{COVERAGE: 0.5}),
            case(1, "b", 0.5, 0.1),
            case(2, "x", 0.5, also_ok="a"),
            case(3, "a", 0.5, also_ok="a"),
            case(4, "", 0.5, also_ok="a"),
            case(5, "", None),
            case(6, "", 0.1, searched=False),
        ]
    )
    assert found.ids == ("p0", "p1", "p2", "p3", "p4", "p5", "p6")
    assert found.features.shape == (7, len(FEATURES))
    assert found.column("distance").tolist() == [0.4, 0.5, 0.5, 0.5, 0.5, 0.0, 0.0]
    assert found.column("gap")[:3].tolist() == pytest.approx([0.1, 0.1, policy.NO_RIVAL])
    assert found.column("coverage").tolist() == [0.5, 0, 0, 0, 0, 0, 0]
    assert found.searched.tolist() == [True] * 5 + [False] * 2
    assert found.answerable.tolist() == [True] * 4 + [False] * 3
    assert found.right.tolist() == [True, False, False, True, False, False, False]
    assert found.neutral.tolist() == [False, False, True, False, True, False, False]
    assert found.wrong.tolist() == [False, True, False, False, False, True, True]


def test_an_origin_of_the_first_candidate_counts() -> None:
    one = case(0, "c", 0.4)
    merged = Case(one.prompt, "", "", (("a", "c"),), (), candidates=one.candidates)
    assert tuning.rows([merged, case(1, "", 0.5)]).right.tolist() == [True, False]


@pytest.mark.parametrize("relevant", ["a", ""])
def test_both_kinds_of_prompts_are_needed_to_fit(relevant: str) -> None:
    for cases in ([], [case(0, relevant, 0.4)]):
        with pytest.raises(ValueError, match="answerable and unanswerable"):
            tuning.rows(cases)
        assert tuning.measured(cases).features.shape == (len(cases), len(FEATURES))


@pytest.mark.parametrize(
    ("share", "prompts", "allowed"),
    [(0.02, 50, 1), (0.02, 49, 0), (0.1, 30, 3), (1, 7, 7), (0, 9, 0)],
)
def test_how_many_are_allowed(share: float, prompts: int, allowed: int) -> None:
    found = table(("a", 0.1, None), *[("", 0.5, None)] * prompts)
    assert found.allowed(share) == allowed


# --- distance and gap, by hand ------------------------------------------------------------------


def test_distance_decides() -> None:
    found = table(("a", 0.30, 0.0), ("a", 0.40, 0.0), ("", 0.45, 0.0), ("", 0.60, 0.0))
    # Both right ones at 0.40 with no gap; stricter gives up one, wider lets one in.
    assert sweep(found, 0.0) == (0.4, 0.0, 0.0)
    assert sweep(found, 0.5) == (0.4, 0.0, 0.0)  # what is allowed is not used for nothing


def test_what_is_allowed_is_used_where_it_finds_more() -> None:
    found = table(("a", 0.30, 0.0), ("", 0.35, 0.0), ("a", 0.40, 0.0), ("", 0.90, 0.0))
    assert sweep(found, 0.0) == (0.3, 0.0, 0.0)
    assert sweep(found, 0.5) == (0.4, 0.0, 0.0)


def test_gap_decides() -> None:
    found = table(("a", 0.50, 0.10), ("a", 0.50, 0.125), ("", 0.40, 0.05), ("", 0.30, 0.01))
    max_distance, min_gap, sure = sweep(found, 0.0)
    assert (max_distance, sure) == (0.5, 0.0)
    assert 0.05 < min_gap <= 0.10
    assert min_gap == pytest.approx(0.09)  # the largest step below 0.6 - 0.5 in binary


def test_a_sure_note_needs_no_gap() -> None:
    found = table(("a", 0.20, 0.0), ("a", 0.50, 0.2), ("", 0.45, 0.1), ("", 0.30, 0.0))
    max_distance, min_gap, sure = sweep(found, 0.0)
    assert (max_distance, sure) == (0.5, 0.2)
    assert 0.1 < min_gap <= 0.2


def test_a_wrong_note_costs_what_a_right_one_is_worth() -> None:
    # At 0.40 one more is found and one more is spoiled: no better than 0.30, which is stricter.
    found = table(("a", 0.30, 0.0), ("a", 0.40, 0.0), ("c", 0.40, 0.0), ("", 0.90, 0.0))
    assert sweep(found, 0.0)[0] == 0.3
    more = table(*[("a", 0.30, 0.0)], *[("a", 0.40, 0.0)] * 2, ("c", 0.40, 0.0), ("", 0.9, 0.0))
    assert sweep(more, 0.0)[0] == 0.4


def test_where_silence_is_best_nothing_is_let_in() -> None:
    found = table(("c", 0.3, 0.0), ("", 0.2, 0.0))
    assert sweep(found, 0.0) == (0.05, 0.24, 0.0)


def test_borderline_counts_for_nothing_either_way() -> None:
    cases = [
        case(0, "a", 0.5, 0.0),
        case(1, "x", 0.4, 0.0, also_ok="a"),
        case(2, "", 0.4, 0.0, also_ok="a"),
        case(3, "", 0.6, 0.0),
    ]
    assert sweep(tuning.rows(cases), 0.0) == (0.5, 0.0, 0.0)


def test_what_nobody_typed_is_in_the_way_of_nothing() -> None:
    cases = [case(0, "a", 0.5, 0.0), case(1, "", 0.1, 0.5, searched=False), case(2, "", None)]
    assert sweep(tuning.rows(cases), 0.0) == (0.5, 0.0, 0.0)


def test_no_limits_are_strict_enough() -> None:
    found = table(("a", 0.3, 0.0), ("", 0.0, 0.5))
    with pytest.raises(ValueError, match="no limits keep false injections at 0"):
        tuning.fit_distance_gap(found, 0.0, "f")
    assert sweep(found, 1.0)[0] == 0.3


def test_search_lists_more_than_is_injected() -> None:
    measured = [("a", 0.30 + i / 100, 0.0) for i in range(21)]
    bar = tuning.fit_distance_gap(table(*measured, ("", 0.305, 0.0)), 0.0, "f")
    assert bar.max_distance == 0.3
    assert bar.search_distance == pytest.approx(0.49)  # 95 % of 0.30 … 0.50
    none = tuning.fit_distance_gap(table(("c", 0.3, 0.0), ("", 0.9, 0.0)), 0.0, "f")
    assert none.search_distance == 1.0


# --- distance and gap, for every set ------------------------------------------------------------


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide steps: the properties hold at any, and a fit takes milliseconds."""
    monkeypatch.setattr(tuning, "DISTANCE_STEP", 0.1)


HUNDREDTHS = st.integers(0, 110).map(lambda number: number / 100)
MEASURED = st.lists(
    st.tuples(
        st.sampled_from(["a", "c", ""]),
        HUNDREDTHS | st.floats(0.0, 1.1),
        st.none() | st.integers(0, 30).map(lambda number: number / 100),
    ),
    max_size=12,
).map(lambda listed: [("a", 0.3, 0.1), ("", 0.7, 0.0), *listed])


def injected(bar: Thresholds, cases: Sequence[Case], weights: Weights | None = None) -> list[Case]:
    """Return the cases whose first candidate the policy lets in."""
    return [
        each
        for each in cases
        if each.searched and policy.decide(each.candidates, bar, weights).reason is Reason.CONFIDENT
    ]


def worth(cases: Sequence[Case]) -> int:
    right = sum("a" in each.prompt.relevant for each in cases)
    return right - sum(each.prompt.relevant == ("c",) for each in cases)


@pytest.mark.usefixtures("coarse")
@settings(max_examples=40)
@given(MEASURED, st.sampled_from([0.0, 0.1, 0.34, 0.5, 1.0]))
def test_the_rate_is_kept_by_the_policy_itself(
    measured: list[tuple[str, float, float | None]], allowed: float
) -> None:
    cases = [case(i, *each) for i, each in enumerate(measured)]
    with suppress(ValueError):  # said where nothing is strict enough; checked above
        bar = tuning.fit_distance_gap(tuning.rows(cases), allowed, "f")
        let_in = injected(bar, cases)
        unanswerable = [each for each in cases if not each.answerable]
        false = [each for each in let_in if not each.answerable]
        assert len(false) <= allowed * len(unanswerable) + 1e-9
        # No other limits of the grid that keep to it are worth more.
        for max_distance in (0.05, 0.25, 0.45, 0.65, 0.95):
            for min_gap in (0.0, 0.09, 0.18):
                other = Thresholds(max_distance, min_gap, 0.0, 1.0, "f")
                also = injected(other, cases)
                if len([each for each in also if not each.answerable]) <= len(false):
                    assert worth(also) <= worth(let_in)
        assert bar.sure_distance <= bar.max_distance <= bar.search_distance


@pytest.mark.usefixtures("coarse")
@settings(max_examples=20)
@given(MEASURED)
def test_more_may_be_found_where_more_is_allowed(
    measured: list[tuple[str, float, float | None]],
) -> None:
    cases = [case(i, *each) for i, each in enumerate(measured)]
    found = tuning.rows(cases)
    values = []
    for allowed in (0.0, 0.5, 1.0):
        with suppress(ValueError):
            values.append(worth(injected(tuning.fit_distance_gap(found, allowed, "f"), cases)))
    assert values == sorted(values)


# --- weights ------------------------------------------------------------------------------------


def prompts(count: int = 300, seed: int = 5) -> list[Case]:
    """Prompts whose first note is right with a chance that falls with distance.

    The chance is 1 / (1 + e^(20 (distance − 0.5))), and nothing else has to do with it.
    """
    chance = np.random.default_rng(seed)
    cases = []
    for number in range(count):
        distance = float(chance.uniform(0.2, 0.8))
        right = chance.random() < 1 / (1 + math.exp(20 * (distance - 0.5)))
        relevant = "a" if right else chance.choice(["", "c"], p=[0.8, 0.2])
        gap = float(chance.uniform(0, 0.2))
        cases.append(case(number, relevant, distance, gap, **{COVERAGE: float(chance.random())}))
    return cases


def test_the_weights_come_out_that_made_the_prompts() -> None:
    found = tuning.weights_of(tuning.rows(prompts(4000)), ("distance", "coverage"))
    assert found.terms["distance"] == pytest.approx(-20, rel=0.12)
    assert found.intercept == pytest.approx(10, rel=0.12)
    assert abs(found.terms["coverage"]) < 0.5
    assert found.typical["distance"] == pytest.approx(0.5, abs=0.01)


def gradient(columns: Any, labels: Any, weights: Any) -> Any:
    design = np.column_stack([np.ones(len(columns)), columns])
    chance = 1 / (1 + np.exp(-design @ weights))
    return design.T @ (labels - chance) - tuning.RIDGE * np.array([0.0, *weights[1:]])


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(5, 60), st.integers(1, 5), st.booleans())
def test_the_regression_ends_at_the_top(seed: int, count: int, width: int, separable: bool) -> None:
    """The penalised likelihood has one top, and there its gradient is zero."""
    chance = np.random.default_rng(seed)
    columns = chance.normal(size=(count, width))
    labels = (columns[:, 0] > 0 if separable else chance.random(count) < 0.5).astype(float)
    labels[:2] = (0.0, 1.0)
    weights = tuning._logistic(columns, labels)
    assert np.abs(gradient(columns, labels, weights)).max() < 1e-6


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_that_are_all_equal(label: float) -> None:
    columns = np.random.default_rng(0).normal(size=(20, 2))
    weights = tuning._logistic(columns, np.full(20, label))
    assert np.isfinite(weights).all()
    chance = 1 / (1 + np.exp(-(weights[0] + columns @ weights[1:])))
    assert np.abs(chance - label).max() < 1e-3


def test_features_that_never_vary_and_rows_that_are_left_out() -> None:
    cases = [
        case(0, "a", 0.3, 0.1),
        case(1, "", 0.6, 0.1),
        case(2, "x", 0.3, 0.1, also_ok="a"),
        case(3, "", None),
    ]
    found = tuning.weights_of(tuning.rows(cases), tuple(FEATURES))
    assert found.terms["coverage"] == 0.0
    assert found.typical["distance"] == pytest.approx(0.45)
    assert found.terms["distance"] < 0
    none = tuning.weights_of(tuning.rows(cases), TWO, np.zeros(4, dtype=bool))
    assert none == Weights(0.0, {"distance": 0.0, "gap": 0.0}, {"distance": 0.0, "gap": 0.0})


def test_predictions_are_those_of_the_policy() -> None:
    cases = [*prompts(30), case(30, "", None), case(31, "", 0.1, searched=False)]
    found = tuning.rows(cases)
    weights = tuning.weights_of(found, tuple(FEATURES))
    predicted = tuning.predict(weights, found)
    for each, probability in zip(cases[:30], predicted[:30], strict=True):
        first, *rivals = each.candidates
        assert weights.probability(policy.features_of(first, rivals)) == pytest.approx(probability)
    assert predicted[30:].tolist() == [0.0, 0.0]


# --- the bar ------------------------------------------------------------------------------------


def bar(probabilities: str, allowed: float) -> float:
    """Return the bar for ``a`` answerable, ``u`` unanswerable, each with a probability."""
    cases = []
    numbers = []
    for number, word in enumerate(probabilities.split()):
        cases.append(case(number, "a" if word[0] == "a" else "", 0.5))
        numbers.append(float(word[1:]))
    return tuning._bar(np.array(numbers), tuning.rows(cases), allowed)


def test_the_bar_lies_between_two_prompts() -> None:
    measured = "a0.95 a0.7 u0.9 u0.8 u0.2 u0.1"
    assert bar(measured, 0.0) == pytest.approx(0.95)  # between 0.9 and certainty
    assert bar(measured, 0.25) == pytest.approx(0.85)
    # Whatever is allowed, a note must be more likely right than wrong.
    assert bar(measured, 0.75) == 0.5
    assert bar(measured, 1.0) == 0.5


def test_a_borderline_note_does_not_raise_the_bar() -> None:
    cases = [case(0, "a", 0.5), case(1, "", 0.5), case(2, "", 0.5, also_ok="a")]
    found = tuning._bar(np.array([0.9, 0.6, 0.99]), tuning.rows(cases), 0.0)
    assert found == pytest.approx(0.8)


def test_a_tie_is_kept_out_whole() -> None:
    assert bar("a0.9 u0.8 u0.8 u0.8 u0.1", 0.25) == pytest.approx(0.8001)


def test_the_bar_may_be_out_of_reach() -> None:
    assert bar("a0.9 u1.0", 0.0) > 1.0


def test_no_prompt_is_judged_by_a_fit_it_was_part_of() -> None:
    found = tuning.rows(prompts(60))
    held_out = tuning.held_out(found, TWO)
    folds = np.array([int(sha256(each.encode()).hexdigest(), 16) % 10 for each in found.ids])
    for fold in range(10):
        expected = tuning.predict(tuning.weights_of(found, TWO, folds != fold), found)
        np.testing.assert_array_equal(held_out[folds == fold], expected[folds == fold])
    assert not np.allclose(held_out, tuning.predict(tuning.weights_of(found, TWO), found))


# --- the fit as a whole -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> list[Case]:
    return prompts()


@pytest.mark.parametrize("allowed", [0.0, 0.02, 0.1, 0.5])
def test_the_rate_is_kept_on_promptsheld_out(made: list[Case], allowed: float) -> None:
    found = tuning.rows(made)
    fitted = tuning.fit(found, allowed, model="m", fingerprint="f", facts={"on": "here"})
    assert fitted.facts["max_false_injection"] == allowed
    assert fitted.facts["held_out_false_injection_rate"] <= allowed
    assert fitted.facts["answerable"] + fitted.facts["unanswerable"] == len(made)
    assert fitted.facts["on"] == "here"
    assert fitted.model == "m"
    limits = fitted.thresholds
    assert limits.calibrated_for == "f"
    assert limits.sure_distance == 0.0
    assert limits.max_distance <= limits.search_distance
    # What was fitted separates the prompts it was fitted on, in the policy's own hands.
    let_in = injected(limits, made, fitted.weights)
    assert len([each for each in let_in if not each.answerable]) <= allowed * 200 + 3
    if allowed:
        assert worth(let_in) > 0.3 * worth(injected(Thresholds(2, 0, 2, 2, "f"), made))


def test_coverage_rises_with_what_is_allowed(made: list[Case]) -> None:
    found = tuning.rows(made)
    covered = [
        tuning.fit(found, allowed, model="m", fingerprint="f").facts["held_out_coverage"]
        for allowed in (0.0, 0.05, 0.2, 1.0)
    ]
    assert covered == sorted(covered)
    assert covered[0] < covered[-1]


def test_bars_of_other_rates_are_kept(made: list[Case]) -> None:
    found = tuning.rows(made)
    bars = tuning.fit(found, 0.3, model="m", fingerprint="f").facts["bars"]
    assert list(bars) == ["0.005", "0.01", "0.02", "0.05"]
    for rate in tuning.RATES:
        other = tuning.fit(found, rate, model="m", fingerprint="f").thresholds
        assert bars[str(rate)] == other.min_probability


def test_a_fit_is_the_same_each_time_and_for_any_order(made: list[Case]) -> None:
    one = tuning.fit(tuning.rows(made), 0.05, model="m", fingerprint="f", features=TWO)
    two = tuning.fit(tuning.rows(made[::-1]), 0.05, model="m", fingerprint="f", features=TWO)
    assert one.thresholds == two.thresholds
    assert one.weights is not None
    assert two.weights is not None
    assert set(one.weights.terms) == set(TWO)
    for name, weight in one.weights.terms.items():
        assert weight == pytest.approx(two.weights.terms[name], abs=2e-6)


def test_the_limits_are_for_the_absurd(made: list[Case]) -> None:
    found = tuning.rows(made)
    limits = tuning.fit(found, 0.05, model="m", fingerprint="f").thresholds
    right = found.column("distance")[found.right]
    assert np.mean(right <= limits.max_distance) == pytest.approx(tuning.LIMIT_SHARE, abs=0.02)
    gaps = found.column("gap")[found.right]
    assert np.mean(gaps >= limits.min_gap) == pytest.approx(tuning.LIMIT_SHARE, abs=0.02)


def test_a_handful_of_prompts() -> None:
    """Folds without a single prompt to fit on are no reason to fail."""
    found = table(("a", 0.3, 0.1), ("", 0.6, 0.0))
    fitted = tuning.fit(found, 0.0, model="m", fingerprint="f")
    assert fitted.facts["held_out_false_injection_rate"] == 0.0
    assert fitted.thresholds.min_probability >= 0.5


def test_a_search_that_finds_nothing_first() -> None:
    with pytest.raises(ValueError, match="finds a relevant note first"):
        tuning.fit(table(("c", 0.3, 0.1), ("", 0.6, 0.0)), 0.0, model="m", fingerprint="f")
