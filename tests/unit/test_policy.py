"""From candidates to verdicts: every branch of the rule, and what holds for all lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import policy
from prompt_rag.domain import Candidate, NoteHead, Passage, Reason, Thresholds
from prompt_rag.policy import (
    COVERAGE,
    NEAR_COPY_DISTANCE,
    NO_RIVAL,
    PASSAGE_COVERAGE,
    PASSAGE_WORDS,
    TITLE_COVERAGE,
    TO_BEST,
    WHOLE_NOTE,
    Weights,
)

BAR = Thresholds(
    max_distance=0.6,
    min_gap=0.02,
    sure_distance=0.3,
    search_distance=0.8,
    calibrated_for="f",
)


def candidate(name: str, distance: float, rank: int = 1, **evidence: float) -> Candidate:
    passage = Passage(name, name, 0, "section", (), f"text of {name}", name)
    note = NoteHead(name, "notes", f"{name}.md", name.title(), "", None, ())
    return Candidate(passage, note, distance, rank, {TO_BEST: 1.0, **evidence})


def ruled(
    *distances: float, bar: Thresholds = BAR, weights: Weights | None = None
) -> policy.Ruling:
    """Rule on notes that say different things, at these distances."""
    listed = [candidate(f"n{i}", each, i + 1) for i, each in enumerate(distances)]
    return policy.decide(listed, bar, weights)


def accepted(ruling: policy.Ruling) -> list[str]:
    return [verdict.candidate.note.id for verdict in ruling.verdicts if verdict.accepted]


# --- distance and gap alone ---------------------------------------------------------------------


def test_no_candidate() -> None:
    assert policy.decide([], BAR) == policy.Ruling(Reason.NO_NOTES, (), None, None)


def test_too_far() -> None:
    ruling = ruled(0.61, 0.9)
    assert ruling.reason is Reason.TOO_FAR
    assert accepted(ruling) == []
    assert ruling.best_distance == 0.61
    assert ruling.gap == pytest.approx(0.29)
    assert [verdict.why for verdict in ruling.verdicts] == [
        "distance 0.610 is above max_distance 0.600",
        "the note before it is out",
    ]


def test_near_and_ahead() -> None:
    ruling = ruled(0.5, 0.55)
    assert ruling.reason is Reason.CONFIDENT
    assert accepted(ruling) == ["n0", "n1"]  # without the first, the second leads the rest
    assert ruling.verdicts[0].why == "distance 0.500 is near enough and it leads by 0.050"
    assert ruling.verdicts[1].why == "distance 0.550 is near enough and no other note comes close"


def test_a_flat_list_is_withheld() -> None:
    """Two mediocre finds that nearly tie: neither is presented as the answer."""
    ruling = ruled(0.440, 0.445)
    assert ruling.reason is Reason.GAP_TOO_SMALL
    assert accepted(ruling) == []
    assert ruling.verdicts[0].why == "its lead over the next note, 0.005, is below min_gap 0.020"


def test_the_only_note_needs_no_lead() -> None:
    ruling = ruled(0.6)
    assert ruling.reason is Reason.CONFIDENT
    assert ruling.gap is None


def test_a_sure_note_needs_no_lead() -> None:
    ruling = ruled(0.3, 0.301, 0.302, 0.61)
    assert accepted(ruling) == ["n0"]  # the second is not sure and does not lead
    assert ruling.verdicts[0].why == "distance 0.300 is within sure_distance 0.300"
    assert accepted(ruled(0.2, 0.25, 0.3)) == ["n0", "n1", "n2"]


def test_limits_are_inclusive() -> None:
    assert ruled(0.6, 0.9).reason is Reason.CONFIDENT
    bar = Thresholds(0.6, 0.25, 0.0, 0.8, "f")
    assert ruled(0.5, 0.75, bar=bar).reason is Reason.CONFIDENT  # in binary exactly 0.25
    assert ruled(0.5, 0.7499, bar=bar).reason is Reason.GAP_TOO_SMALL


def test_after_one_that_stays_out_none_goes_in() -> None:
    ruling = ruled(0.4, 0.5, 0.505, 0.58)
    assert accepted(ruling) == ["n0"]
    assert [verdict.why for verdict in ruling.verdicts[2:]] == ["the note before it is out"] * 2


def test_the_first_need_not_be_the_nearest() -> None:
    """The order comes from more than distance; a nearer rival is a negative lead."""
    ruling = ruled(0.5, 0.45)
    assert ruling.gap == pytest.approx(-0.05)
    assert ruling.best_distance == 0.5
    assert ruling.reason is Reason.GAP_TOO_SMALL
    lenient = Thresholds(0.6, -0.1, 0.0, 0.8, "f")
    assert accepted(ruled(0.5, 0.45, bar=lenient)) == ["n0", "n1"]


def test_a_distance_that_is_no_number_is_not_near() -> None:
    assert ruled(math.nan).reason is Reason.TOO_FAR
    assert accepted(ruled(0.4, math.nan)) == ["n0"]


# --- near copies --------------------------------------------------------------------------------


def test_a_near_copy_agrees_and_is_no_rival() -> None:
    copy = candidate("copy", 0.445, 2, **{TO_BEST: NEAR_COPY_DISTANCE})
    other = candidate("other", 0.5, 3)
    ruling = policy.decide([candidate("note", 0.44), copy, other], BAR)
    assert ruling.reason is Reason.CONFIDENT
    assert ruling.gap == pytest.approx(0.06)
    assert accepted(ruling) == ["note", "copy", "other"]
    assert ruling.verdicts[1].why == "it says nearly the same as the best note"


def test_another_note_on_the_subject_is_a_rival() -> None:
    other = candidate("other", 0.445, 2, **{TO_BEST: NEAR_COPY_DISTANCE + 0.001})
    ruling = policy.decide([candidate("note", 0.44), other], BAR)
    assert ruling.reason is Reason.GAP_TOO_SMALL


def test_a_near_copy_that_is_too_far_stays_out() -> None:
    copy = candidate("copy", 0.61, 2, **{TO_BEST: 0.05})
    ruling = policy.decide([candidate("note", 0.5), copy], BAR)
    assert accepted(ruling) == ["note"]
    assert ruling.gap is None


def test_a_near_copy_goes_in_after_one_that_does_not() -> None:
    listed = [
        candidate("note", 0.44),
        candidate("other", 0.59, 2),
        candidate("third", 0.595, 3),
        candidate("copy", 0.596, 4, **{TO_BEST: 0.05}),
    ]
    assert accepted(policy.decide(listed, BAR)) == ["note", "copy"]


def test_without_the_measurement_a_note_is_a_rival() -> None:
    bare = Candidate(candidate("x", 0.0).passage, candidate("x", 0.0).note, 0.445, 2)
    assert policy.decide([candidate("note", 0.44), bare], BAR).reason is Reason.GAP_TOO_SMALL


# --- features -----------------------------------------------------------------------------------

MEASURED = {
    WHOLE_NOTE: 0.55,
    COVERAGE: 0.8,
    TITLE_COVERAGE: 0.4,
    PASSAGE_COVERAGE: 0.6,
    PASSAGE_WORDS: 3.0,
}


def test_features() -> None:
    rivals = [
        candidate("copy", 0.46, 2, **{TO_BEST: 0.05, COVERAGE: 0.9}),
        candidate("other", 0.55, 3, **{COVERAGE: 0.3}),
        candidate("third", 0.7, 4, **{COVERAGE: 0.5}),
    ]
    found = policy.features_of(candidate("note", 0.45, **MEASURED), rivals)
    assert list(found) == list(policy.FEATURES)
    assert found == {
        "distance": 0.45,
        "gap": pytest.approx(0.1),
        "whole_note": 0.55,
        "coverage": 0.8,
        "coverage_lead": pytest.approx(0.3),
        "title_coverage": 0.4,
        "passage_coverage": 0.6,
        "words_found": pytest.approx(math.log(4)),
    }


def test_features_of_a_note_alone_without_evidence() -> None:
    bare = Candidate(candidate("x", 0.0).passage, candidate("x", 0.0).note, 0.45, 1)
    assert policy.features_of(bare, []) == {
        "distance": 0.45,
        "gap": NO_RIVAL,
        "whole_note": 0.45,
        "coverage": 0.0,
        "coverage_lead": 0.0,
        "title_coverage": 0.0,
        "passage_coverage": 0.0,
        "words_found": 0.0,
    }


def test_a_rival_out_of_sight_is_none() -> None:
    found = policy.features_of(candidate("note", 0.1), [candidate("other", 1.9, 2)])
    assert found["gap"] == NO_RIVAL


# --- weights ------------------------------------------------------------------------------------

WEIGHTS = Weights(
    intercept=1.0,
    terms={"distance": -4.0, "coverage": 3.0},
    typical={"distance": 0.5, "coverage": 0.25},
)
WEIGHED = Thresholds(0.9, -1.0, 0.0, 0.9, "f", min_probability=0.7)


def test_probability_by_hand() -> None:
    # 1 - 4 × 0.5 + 3 × 0.6 = 0.8; 1 / (1 + e^-0.8) = 0.6900
    assert WEIGHTS.probability({"distance": 0.5, "coverage": 0.6}) == pytest.approx(0.69, abs=1e-4)
    assert WEIGHTS.probability({"distance": 0.25, "coverage": 0.0}) == 0.5
    assert WEIGHTS.contributions({"distance": 0.4, "coverage": 0.25}) == {
        "distance": pytest.approx(0.4),
        "coverage": 0.0,
    }


@pytest.mark.parametrize(
    ("distance", "probability"), [(1e300, 0.0), (-1e300, 1.0), (math.inf, 0.0), (math.nan, 0.0)]
)
def test_probability_at_the_ends(distance: float, probability: float) -> None:
    found = WEIGHTS.probability({"distance": distance, "coverage": 0.0})
    assert found == pytest.approx(probability, abs=1e-20)


def test_likely_enough() -> None:
    note = candidate("note", 0.4, **{COVERAGE: 0.5})  # 1 - 1.6 + 1.5 = 0.9: 0.711
    ruling = policy.decide([note], WEIGHED, WEIGHTS)
    assert ruling.reason is Reason.CONFIDENT
    (verdict,) = ruling.verdicts
    assert verdict.why == "probability 0.71 reaches 0.70"
    assert verdict.probability == pytest.approx(0.7109, abs=1e-4)
    assert verdict.contributions == {
        "distance": pytest.approx(0.4),
        "coverage": pytest.approx(0.75),
    }


def test_not_likely_enough() -> None:
    note = candidate("note", 0.4, **{COVERAGE: 0.4})  # 0.6: 0.646
    ruling = policy.decide([note, candidate("other", 0.5, 2)], WEIGHED, WEIGHTS)
    assert ruling.reason is Reason.LOW_PROBABILITY
    assert accepted(ruling) == []
    assert [verdict.why for verdict in ruling.verdicts] == [
        "probability 0.65 is below 0.70",
        "the note before it is out",
    ]


def test_the_limits_come_before_the_weights() -> None:
    note = candidate("note", 0.4, **{COVERAGE: 1.0})
    strict = Thresholds(0.3, -1.0, 0.0, 0.9, "f", min_probability=0.0)
    assert policy.decide([note], strict, WEIGHTS).reason is Reason.TOO_FAR
    ahead = Thresholds(0.9, 0.2, 0.0, 0.9, "f", min_probability=0.0)
    rival = candidate("rival", 0.5, 2)
    assert policy.decide([note, rival], ahead, WEIGHTS).reason is Reason.GAP_TOO_SMALL
    sure = Thresholds(0.9, 0.2, 0.4, 0.9, "f", min_probability=1.0)
    ruling = policy.decide([note, rival], sure, WEIGHTS)
    assert ruling.reason is Reason.CONFIDENT
    assert ruling.verdicts[0].probability is None


def test_the_second_is_weighed_as_if_the_first_were_not_there() -> None:
    gap_only = Weights(0.0, {"gap": 10.0}, {"gap": 0.0})
    ruling = ruled(0.2, 0.3, 0.4, bar=WEIGHED, weights=gap_only)
    probabilities = [verdict.probability for verdict in ruling.verdicts]
    assert probabilities == pytest.approx([0.7311, 0.7311, 1 / (1 + math.exp(-5))], abs=1e-4)
    lead_only = Weights(0.0, {"coverage_lead": 10.0}, {"coverage_lead": 0.0})
    found = [candidate(f"n{i}", 0.3, i, **{COVERAGE: (3 - i) / 10}) for i in range(3)]
    ruling = policy.decide(found, WEIGHED, lead_only)
    probabilities = [verdict.probability for verdict in ruling.verdicts]
    assert probabilities == pytest.approx([0.7311, 0.7311, 0.7311], abs=1e-4)


# --- for all lists ------------------------------------------------------------------------------

DISTANCES = st.floats(0.0, 2.0) | st.sampled_from([0.3, 0.32, 0.6])
LISTS = st.lists(st.tuples(DISTANCES, st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=6)
BARS = st.builds(
    Thresholds,
    max_distance=st.floats(0.0, 2.0),
    min_gap=st.floats(-0.2, 0.5),
    sure_distance=st.floats(0.0, 0.5),
    search_distance=st.just(2.0),
    calibrated_for=st.just("f"),
    min_probability=st.floats(0.0, 1.0),
)
MAYBE_WEIGHTS = st.sampled_from([None, WEIGHTS])


def listed(measured: Sequence[tuple[float, float, float]]) -> list[Candidate]:
    return [
        candidate(f"n{i}", distance, i + 1, **{TO_BEST: to_best if i else 0.0, COVERAGE: coverage})
        for i, (distance, to_best, coverage) in enumerate(measured)
    ]


@given(LISTS, BARS, MAYBE_WEIGHTS)
def test_confident_if_and_only_if_something_goes_in(
    measured: list[tuple[float, float, float]], bar: Thresholds, weights: Weights | None
) -> None:
    candidates = listed(measured)
    ruling = policy.decide(candidates, bar, weights)
    assert (ruling.reason is Reason.CONFIDENT) == bool(accepted(ruling))
    assert [verdict.candidate for verdict in ruling.verdicts] == candidates
    assert all(verdict.why for verdict in ruling.verdicts)
    if accepted(ruling):
        assert ruling.verdicts[0].accepted
    for verdict in ruling.verdicts:
        if verdict.accepted:
            assert verdict.candidate.distance <= bar.max_distance
        if verdict.probability is not None:
            assert verdict.accepted == (verdict.probability >= bar.min_probability)


STRICTER = st.tuples(st.floats(0.0, 0.3), st.floats(0.0, 0.3), st.floats(0.0, 0.3))


@given(LISTS, BARS, MAYBE_WEIGHTS, STRICTER)
def test_a_stricter_bar_never_lets_more_in(
    measured: list[tuple[float, float, float]],
    bar: Thresholds,
    weights: Weights | None,
    stricter: tuple[float, float, float],
) -> None:
    nearer, wider, likelier = stricter
    raised = Thresholds(
        bar.max_distance - nearer,
        bar.min_gap + wider,
        bar.sure_distance - nearer,
        bar.search_distance,
        "f",
        bar.min_probability + likelier,
    )
    candidates = listed(measured)
    few = accepted(policy.decide(candidates, raised, weights))
    assert set(few) <= set(accepted(policy.decide(candidates, bar, weights)))


@given(LISTS, BARS, MAYBE_WEIGHTS)
def test_a_rival_behind_another_changes_nothing(
    measured: list[tuple[float, float, float]], bar: Thresholds, weights: Weights | None
) -> None:
    candidates = [*listed(measured), candidate("rival", 1.9, 8, **{COVERAGE: 0.1})]
    before = policy.decide(candidates, bar, weights)
    after = policy.decide([*candidates, candidate("behind", 2.0, 9)], bar, weights)
    if measured:
        assert before.verdicts[0] == after.verdicts[0]
        assert (before.reason, before.gap) == (after.reason, after.gap)
