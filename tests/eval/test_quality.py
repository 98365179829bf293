"""What the shipped calibration is worth on the fixtures' test split, which it has never seen.

Directions with room, not figures: those are in docs/evaluation.md. `pytest -m eval` runs it, in
about a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from prompt_rag import config as configuration
from prompt_rag import curves, evaluation, indexing
from prompt_rag.cli import fixtures
from prompt_rag.evaluation import SYSTEMS, Case
from prompt_rag.search import Reader

pytestmark = pytest.mark.eval

Figures = dict[str, float | None]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Case]]:
    """Each system's cases on the test split, all voices in one index."""
    home = tmp_path_factory.mktemp("quality")
    config = replace(configuration.load(home), sources=tuple(fixtures.sources(home)))
    indexing.rebuild(config)
    prompts = [prompt for prompt in fixtures.prompts() if prompt.split == "test"]
    with Reader.open(config) as reader:
        return {system: evaluation.run(system, reader, prompts) for system in SYSTEMS}


@pytest.fixture(scope="module")
def figures(judged: dict[str, list[Case]]) -> dict[str, Figures]:
    return {system: evaluation.figures(cases) for system, cases in judged.items()}


@pytest.fixture
def figure(figures: dict[str, Figures]) -> Callable[[str, str], float]:
    def known(system: str, name: str) -> float:
        value = figures[system][name]
        assert value is not None
        return value

    return known


Known = Callable[[str, str], float]


def test_there_is_enough_to_measure(judged: dict[str, list[Case]]) -> None:
    cases = judged["prompt-rag"]
    assert sum(case.answerable for case in cases) >= 100
    assert sum(not case.answerable for case in cases) >= 150


def test_it_finds_more_than_distance_and_gap_alone(figure: Known) -> None:
    """Each at the bar that was set for the same rate of false injections."""
    assert figure("prompt-rag", "coverage") >= 1.2 * figure("distance-gap", "coverage")


def test_it_is_surer_of_the_right_ones(judged: dict[str, list[Case]]) -> None:
    areas = {system: curves.area(evaluation.curve(cases)) for system, cases in judged.items()}
    ours = areas.pop("prompt-rag")
    assert ours is not None
    for system, area in areas.items():
        assert area is not None
        assert ours < area, system


# The shipped bar was set for 1 % on the tune split; three times that is the most that prompts it
# has never seen may show.
def test_few_prompts_that_no_note_answers_get_one(figure: Known) -> None:
    assert figure("prompt-rag", "false_injection_rate") <= 0.03


@pytest.mark.parametrize("kind", ["machine", "contentless", "nonsense", "other-language"])
def test_what_asks_nothing_of_the_notes_gets_nothing(
    judged: dict[str, list[Case]], kind: str
) -> None:
    members = [case for case in judged["prompt-rag"] if case.prompt.kind == kind]
    assert len(members) >= 5
    assert [case.prompt.prompt for case in members if case.injected] == []


def test_what_is_injected_is_mostly_right(figure: Known) -> None:
    assert figure("prompt-rag", "precision") >= 0.85
    assert figure("prompt-rag", "wrong_note_rate") <= 0.03


def test_the_ranking(figure: Known) -> None:
    assert figure("prompt-rag", "recall@5") >= 0.90
    assert figure("prompt-rag", "mrr") >= 0.80
    assert figure("prompt-rag", "recall@5") == figure("distance-gap", "recall@5")


@pytest.mark.parametrize("baseline", ["bm25", "like"])
def test_the_baselines_are_below(figure: Known, baseline: str) -> None:
    for name in ("recall@5", "mrr", "ndcg@10", "precision"):
        assert figure("prompt-rag", name) > figure(baseline, name) + 0.03, name
    for name in ("false_injection_rate", "wrong_note_rate"):
        assert figure("prompt-rag", name) < figure(baseline, name), name
