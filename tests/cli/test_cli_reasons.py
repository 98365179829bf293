"""``explain`` in words: the sentences alone say why a note is in or out, and add up."""

from __future__ import annotations

import math
import re

import pytest
from cli_world import FAR, QUESTION, CommandLine

from prompt_rag.cli import reasons
from prompt_rag.domain import Candidate, NoteHead, Passage, Thresholds, Verdict
from prompt_rag.policy import FEATURES, Weights

BAR = Thresholds(0.9, -1.0, 0.0, 0.9, "f", min_probability=0.6)


def verdict(probability: float | None, *, accepted: bool = True, **contributions: float) -> Verdict:
    passage = Passage("p", "n", 0, "section", (), "", "h")
    candidate = Candidate(passage, NoteHead("n", "s", "k", "t", "", None, ()), 0.4, 1)
    return Verdict(candidate, accepted, "why", probability, contributions)


def test_the_largest_comes_first_whatever_its_sign() -> None:
    found = reasons.sentences(verdict(0.5, distance=0.4, gap=-1.25, coverage=0.85), BAR)
    assert found == [
        "+0.0 where the first note of a typical prompt starts",
        f"-1.2 {FEATURES['gap']}",
        f"+0.8 {FEATURES['coverage']}",
        f"+0.4 {FEATURES['distance']}",
        "+0.0 in all, a probability of 50%: enough, 60% is needed",
    ]


def test_what_would_print_as_nothing_is_left_out() -> None:
    found = reasons.sentences(verdict(0.5, accepted=False, gap=0.049, distance=-0.05), BAR)
    assert [line for line in found if "lead" in line] == []
    assert len(found) == 3
    assert found[-1].endswith("not enough, 60% is needed")


@pytest.mark.parametrize("probability", [0.0, 1e-20, 0.3, 1.0])
def test_the_lines_add_up(probability: float) -> None:
    lines = reasons.sentences(verdict(probability, distance=1.0, gap=-3.0), BAR)
    *parts, total = [float(line.split()[0]) for line in lines]
    assert sum(parts) == pytest.approx(total, abs=0.1 * len(parts))


def test_only_what_was_weighed_is_taken_apart() -> None:
    best, second, copy = verdict(0.2, accepted=False), verdict(0.9), verdict(None)
    assert reasons.taken_apart([best, second, copy]) == [best, second]
    assert reasons.taken_apart([copy, verdict(0.3, accepted=False)]) == []
    assert reasons.sentences(copy, BAR) == []


def test_contributions_are_those_of_the_weights() -> None:
    weights = Weights(-1.0, {"distance": -4.0, "gap": 2.0}, {"distance": 0.5, "gap": 0.1})
    features = {"distance": 0.25, "gap": 0.3}
    lines = reasons.sentences(
        verdict(weights.probability(features), **weights.contributions(features)), BAR
    )
    start = -1.0 - 4.0 * 0.5 + 2.0 * 0.1
    assert lines[0].startswith(f"{start:+.1f} ")
    assert lines[-1].startswith(f"{-1.0 - 4.0 * 0.25 + 2.0 * 0.3:+.1f} ")
    assert f"{1 / (1 + math.exp(1.4)):.0%}" in lines[-1]


def explained(run: CommandLine, prompt: str) -> list[str]:
    lines = run("explain", prompt).out.splitlines()
    return [line for line in lines if re.match(r"  [+-]\d", line)]


def test_explain_in_words(built: CommandLine) -> None:
    lines = explained(built, QUESTION)
    assert lines[-1].strip().startswith(("+", "-"))
    assert "enough, 0% is needed" in lines[-1]
    words = set(FEATURES.values())
    named = [line.split(maxsplit=1)[1] for line in lines if line.split(maxsplit=1)[1] in words]
    assert len(named) >= 3
    amounts = [abs(float(line.split()[0])) for line in lines if line.split(maxsplit=1)[1] in words]
    assert amounts == sorted(amounts, reverse=True)
    document = built("explain", QUESTION, "--json").json["candidates"][0]
    assert document["probability"] > 0.5
    sizes = [abs(amount) for amount in document["contributions"].values()]
    assert sizes == sorted(sizes, reverse=True)
    assert set(document["contributions"]) <= set(FEATURES)


def test_explain_what_was_too_far_needs_no_odds(built: CommandLine) -> None:
    out = built("explain", FAR).out
    assert "is above max_distance 0.500" in out
    assert reasons.LEGEND not in out


def test_explain_what_is_not_likely_enough(built: CommandLine) -> None:
    config = built.home / "config.toml"
    config.write_text(config.read_text().replace("min_probability = 0.0", "min_probability = 1.0"))
    lines = explained(built, QUESTION)
    assert "not enough, 100% is needed" in lines[-1]
    assert built("explain", QUESTION).out.startswith("stay silent: the nearest note is not likely")
