"""Replaying the log: the same bar changes nothing, and another one rules as the policy would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import policy, replay
from prompt_rag.decisions import MOST_CANDIDATES, record
from prompt_rag.domain import Candidate, Decision, NoteHead, Passage, Reason, Thresholds
from prompt_rag.policy import COVERAGE, FEATURES, TO_BEST, Weights

BAR = Thresholds(0.6, 0.03, 0.1, 0.8, "model", min_probability=0.5)
WEIGHTS = Weights(
    1.0,
    {"distance": -6.0, "gap": 8.0, "coverage": 2.0, "coverage_lead": 3.0},
    dict.fromkeys(FEATURES, 0.0),
)


def candidates(measured: list[tuple[float, float, bool]]) -> list[Candidate]:
    """Return candidates of distance, coverage, and whether each is a copy of the best."""
    return [
        Candidate(
            Passage("", f"n{rank}", 0, "section", (), "", ""),
            NoteHead(f"n{rank}", "s", f"n{rank}.md", "", "", None, ()),
            distance,
            rank,
            {COVERAGE: coverage, TO_BEST: 0.0 if copy or rank == 1 else 0.9},
        )
        for rank, (distance, coverage, copy) in enumerate(measured, start=1)
    ]


def logged(
    found: list[Candidate], bar: Thresholds = BAR, weights: Weights | None = WEIGHTS
) -> dict[str, Any]:
    """Return what the log holds of the policy's ruling, as it is read back."""
    ruling = policy.decide(found, bar, weights)
    confident = ruling.reason is Reason.CONFIDENT
    decision = Decision(
        "inject" if confident else "abstain",
        ruling.reason,
        verdicts=ruling.verdicts,
        thresholds=bar,
    )
    line: dict[str, Any] = json.loads(json.dumps(record(decision, {"prompt": "?"})))
    return line


def after(found: list[Candidate], bar: Thresholds) -> tuple[str, ...]:
    ruling = policy.decide(found, bar, WEIGHTS)
    listed = ruling.verdicts[:MOST_CANDIDATES]
    return tuple(each.candidate.note.key for each in listed if each.accepted)[:3]


# Six decimals, as the log keeps them.
NUMBER = st.integers(0, 1000).map(lambda number: number / 1000)
MEASURED = st.lists(st.tuples(NUMBER, NUMBER, st.booleans()), min_size=1, max_size=12)


@given(MEASURED)
def test_the_same_bar_changes_nothing(measured: list[tuple[float, float, bool]]) -> None:
    line = logged(candidates(measured))
    found = replay.replay([line], BAR, WEIGHTS, max_excerpts=3)
    assert found.changes == ()
    assert (found.decisions, found.passed_over) == (1, 0)
    assert found.injected_before == found.injected_after


@given(MEASURED, NUMBER, NUMBER, NUMBER)
def test_another_bar_rules_as_the_policy_would(
    measured: list[tuple[float, float, bool]], distance: float, gap: float, probability: float
) -> None:
    """What is not listed in the log counts as it did: more than five candidates make one rival."""
    everything = candidates(measured)
    other = Thresholds(distance, gap - 0.5, 0.0, 0.8, "model", min_probability=probability)
    found = replay.replay([logged(everything)], other, WEIGHTS, max_excerpts=3)
    expected = after(everything, other)
    assert bool(found.injected_after) == bool(expected)
    if found.changes:
        assert found.changes[0].after == expected
        assert found.changes[0].before == after(everything, BAR)
    else:
        assert expected == after(everything, BAR)


def test_a_change_says_why() -> None:
    line = {**logged(candidates([(0.4, 0.5, False), (0.7, 0.1, False)])), "text": "how?"}
    stricter = Thresholds(0.3, 0.0, 0.0, 0.8, "model")
    (change,) = replay.replay([line], stricter, WEIGHTS, max_excerpts=3).changes
    assert (change.before, change.after) == (("n1.md",), ())
    assert change.reason is Reason.TOO_FAR
    assert "above max_distance 0.300" in change.why
    assert (change.id, change.time, change.text) == (line["id"], line["time"], "how?")


def test_what_cannot_be_ruled_on_is_passed_over() -> None:
    line = logged(candidates([(0.4, 0.5, False)]))
    bare = {**line, "candidates": []}
    not_ours: list[dict[str, Any]] = [
        {**line, "thresholds": None},
        {**line, "thresholds": {**line["thresholds"], "calibrated_for": "another"}},
        {**line, "thresholds": {**line["thresholds"], "min_gap": -2.0}},
        {**line, "candidates": [{"note": "x"}]},
        {**line, "candidates": [7]},
        {**line, "candidates": 7},
        {**line, "others": 7},
    ]
    found = replay.replay([line, bare, {}, *not_ours], BAR, WEIGHTS, max_excerpts=3)
    assert (found.decisions, found.passed_over) == (1, len(not_ours))


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (0.004, None),
        (0.005, (0.005, 0.9)),
        (0.015, (0.01, 0.8)),
        (0.02, (0.02, 0.7)),
        (1, (0.02, 0.7)),
    ],
)
def test_the_bar_of_a_rate(rate: float, expected: tuple[float, float] | None) -> None:
    assert replay.bar_for({"0.02": 0.7, "0.005": 0.9, "0.01": 0.8}, rate) == expected
    assert replay.bar_for({}, rate) is None
