"""Risk against coverage: by hand, and what holds for every order of prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import curves
from prompt_rag.curves import Point

JUDGED = st.lists(st.tuples(st.none() | st.integers(0, 5).map(float), st.booleans()), max_size=30)


def test_by_hand() -> None:
    points = curves.risk_coverage([0.2, 0.9, None, 0.5], [True, False, False, True])
    assert points == [Point(0.9, 0.25, 0.0), Point(0.5, 0.5, 0.5), Point(0.2, 0.75, 2 / 3)]
    assert curves.area(points) == pytest.approx((0.0 + 0.5 + 2 / 3) / 3)


def test_equal_ones_share_a_bar() -> None:
    points = curves.risk_coverage([0.5, 0.5, 0.1], [True, False, False])
    assert points == [Point(0.5, 2 / 3, 0.5), Point(0.1, 1.0, 1 / 3)]
    assert curves.area(points) == pytest.approx(2 / 3 * 0.5 + 1 / 3 * 1 / 3)


def test_without_a_prompt_there_is_no_curve() -> None:
    assert curves.risk_coverage([], []) == []
    assert curves.risk_coverage([None], [True]) == []
    assert curves.area([]) is None


@given(JUDGED)
def test_for_every_order(judged: list[tuple[float | None, bool]]) -> None:
    points = curves.risk_coverage([sure for sure, _ in judged], [bad for _, bad in judged])
    backwards = judged[::-1]
    assert points == curves.risk_coverage(
        [sure for sure, _ in backwards], [bad for _, bad in backwards]
    )
    spoken = [bad for sure, bad in judged if sure is not None]
    assert [point.coverage for point in points] == sorted({point.coverage for point in points})
    assert [point.confidence for point in points] == sorted(
        {sure for sure, _ in judged if sure is not None}, reverse=True
    )
    if spoken:
        assert points[-1].coverage == pytest.approx(len(spoken) / len(judged))
        assert points[-1].risk == pytest.approx(sum(spoken) / len(spoken))
        assert 0.0 <= (curves.area(points) or 0.0) <= 1.0


@given(st.integers(1, 20), st.integers(1, 20))
def test_the_better_order_has_the_smaller_area(right: int, wrong: int) -> None:
    labels = [False] * right + [True] * wrong
    falling = [float(-place) for place in range(right + wrong)]
    best = curves.area(curves.risk_coverage(falling, labels))
    worst = curves.area(curves.risk_coverage([-each for each in falling], labels))
    assert best is not None
    assert worst is not None
    assert best < worst
