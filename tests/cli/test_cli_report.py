"""The report: what it shows is what was measured, and no prompt or note gets out of its text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from prompt_rag import evaluation, tuning
from prompt_rag.calibration import Calibration
from prompt_rag.cli import plots, report
from prompt_rag.cli.plots import Mark, Series
from prompt_rag.domain import Candidate, LabelledPrompt, NoteHead, Passage
from prompt_rag.evaluation import Case
from prompt_rag.policy import COVERAGE, TO_BEST

EVIL = """</title><script>alert('x')</script>"><img src=x onerror='a()'>&amp;\u202e\x00{{7*7}}"""
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """All tags with their attributes, and the text; fails where tags do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def candidate(key: str, distance: float, rank: int, coverage: float) -> Candidate:
    passage = Passage(key, key, 0, "section", (), EVIL, key)
    note = NoteHead(key, EVIL, key, f"{EVIL} {key}", EVIL, None, ())
    evidence = {TO_BEST: 0.0 if rank == 1 else 1.0, COVERAGE: coverage}
    return Candidate(passage, note, distance, rank, evidence)


def cases(count: int = 120) -> list[Case]:
    """Prompts whose first note is right where it is near; every third one nobody answers."""
    chance = np.random.default_rng(3)
    made = []
    for number in range(count):
        distance = float(chance.uniform(0.2, 0.8))
        answerable = number % 3 != 0
        right = answerable and chance.random() < 1.2 - distance
        key = f"{EVIL}{number}"
        relevant = (key,) if right else (f"other{number}",) if answerable else ()
        prompt = LabelledPrompt(
            f"p{number}", f"{EVIL} prompt {number}", relevant, EVIL if number % 2 else "", "tune"
        )
        found = [
            candidate(key, distance, 1, 0.9 - distance if right else 0.1),
            candidate(f"other{number}", distance + 0.05, 2, 0.1),
        ]
        made.append(
            Case(
                prompt,
                "abstain",
                "",
                tuple((each.note.key,) for each in found),
                (),
                candidates=tuple(found),
                confidence=-distance,
            )
        )
    untyped = LabelledPrompt("u", "<task>", (), "machine", "tune")
    return [*made, Case(untyped, "abstain", "machine-prompt", (), (), searched=False)]


@pytest.fixture(scope="module")
def judged() -> list[Case]:
    return cases()


@pytest.fixture(scope="module")
def fitted(judged: list[Case]) -> Calibration:
    found = tuning.fit(tuning.rows(judged), 0.1, model=EVIL, fingerprint="f")
    drawn = {"own-title": {"queries": 8, "found_first": 0.5, "injected": 0.25}}
    alone = tuning.Thresholds(0.5, 0.1, 0.3, 0.7, "f")
    return Calibration(
        EVIL, found.thresholds, found.weights, {**found.facts, "own_notes": drawn}, alone
    )


@pytest.fixture(scope="module")
def text(judged: list[Case], fitted: Calibration) -> str:
    systems = {
        "prompt-rag": judged,
        "distance-gap": evaluation.at_distance_and_gap(judged),
        "like": [Case(each.prompt, "abstain", "", (), ()) for each in judged],
    }
    return report.page(systems, fitted, 0.1)


def test_nothing_untrusted_gets_out_of_its_text(text: str) -> None:
    page = Page(text)
    assert not {"script", "img", "iframe", "link", "a"} & set(page.tags)
    assert page.tags.count("title") - text.count("<circle") == 1
    assert "alert('x')" in page.text  # it is there, as text
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "\u202e" not in text
    assert "\x00" not in text


def test_nothing_comes_from_outside(text: str) -> None:
    page = Page(text)
    assert not [name for name, _ in page.attributes if name in {"src", "href", "xlink:href"}]
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text


def test_every_picture_is_well_formed(text: str) -> None:
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 7
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("aria-label")
        numbers = re.findall(r' (?:x|y|x1|y1|x2|y2|width|height|points|cx|cy)="([^"]*)"', picture)
        assert numbers
        assert not re.search(r"[a-z]", "".join(numbers))  # no nan, no inf


def test_the_worst_mistakes_are_explained(
    text: str, judged: list[Case], fitted: Calibration
) -> None:
    page = Page(text)
    assert page.tags.count("article") == 2 * report.WORST
    false, misses = text.split("The worst misses")
    assert "wanted:" not in false
    assert misses.count("wanted:") == report.WORST
    assert "found at rank 2" in misses
    assert fitted.weights is not None
    surest = max(
        (case for case in judged if not case.answerable and case.searched),
        key=lambda case: fitted.weights.probability(  # type: ignore[union-attr]
            report.policy.features_of(case.candidates[0], case.candidates[1:])
        ),
    )
    first = false.split("<blockquote>")[1]
    assert f"prompt {surest.prompt.id[1:]}<" in first
    assert "in all, a probability of" in first


def test_without_own_notes_or_limits_of_distance_alone(
    judged: list[Case], fitted: Calibration
) -> None:
    bare = Calibration("m", fitted.thresholds, fitted.weights, {}, None)
    text = report.page({"prompt-rag": judged}, bare, 0.1)
    Page(text)
    assert "Lines of your own notes" not in text
    assert "max_distance of distance-gap" not in text


# --- curves -------------------------------------------------------------------------------------


def test_a_sweep_by_hand(judged: list[Case]) -> None:
    four = [each for each in judged if each.searched][:4]
    table = tuning.rows(four)
    sure = np.array([0.9, 0.5, -np.inf, 0.5])
    points = report.sweep(table, sure)
    unanswerable, answerable = int((~table.answerable).sum()), int(table.answerable.sum())
    assert points[0] == (0.0, 0.0)
    assert points[1] == (1 / unanswerable, 0.0)  # the first prompt is one nobody answers
    right = int(table.right[1]) + int(table.right[3])
    false = 1 + int(table.wrong[3] and not table.answerable[3])
    assert points[2:] == [(false / unanswerable, right / answerable)]


def test_curves_end_where_the_axis_ends() -> None:
    series = [Series("<one>", [(0.0, 0.0), (0.05, 0.31), (0.5, 0.9)]), Series("none", [])]
    picture = plots.curves(series, "t", ("x", "y"), x_to=0.1, used=Mark(0.02, "bar"))
    root = ET.fromstring(picture)
    lines = [each for each in root if each.tag == "polyline"]
    assert [len((each.get("points") or "").split()) for each in lines] == [0, 2]
    words = [each.text for each in root if each.tag == "text"]
    assert "40%" in words
    assert "50%" not in words
    assert "<one>" in words


def places(picture: str, css: str, name: str) -> list[float]:
    root = ET.fromstring(picture)
    return [float(each.get(name) or "nan") for each in root if each.get("class") == css]


def test_histograms_are_shares_of_their_own_prompts() -> None:
    picture = plots.mirrored(
        ("up", [0.05, 0.05, 0.95, 2.0]), ("down", [0.05]), "t", "x", marks=[], bins=10
    )
    up, down = places(picture, "c0", "height"), places(picture, "c1", "height")
    up, down = up[:-1], down[:-1]  # the last one is the legend's square
    assert up == pytest.approx([up[0], up[0]])  # two and two
    assert down == pytest.approx([2 * up[0]], abs=0.2)
    empty = plots.mirrored(("up", []), ("down", []), "t", "x", marks=[Mark(0.99, "a mark")])
    assert len(places(empty, "c0", "height")) == 1
    assert 'text-anchor="end">a mark' in empty


def test_bars() -> None:
    picture = plots.bars([("<kind>", 1, 4), ("other", 2, 4), ("none", 0, 3)], "t", "c0")
    long = places(picture, "c0", "width")
    assert long[1] == pytest.approx(2 * long[0], abs=0.2)
    assert long[2] == 0.0
    assert "25.0% (1 of 4)" in picture
    assert "&lt;kind&gt;" in picture
    ET.fromstring(plots.bars([], "t", "c0"))
    ET.fromstring(plots.bars([("none", 0, 3)], "t", "c0"))


def test_calibration_lies_on_the_line_where_it_is_right() -> None:
    bins: Sequence[tuple[float, float, int]] = [(0.0, 0.0, 3), (0.5, 0.5, 3), (1.0, 1.0, 3)]
    picture = plots.calibration(bins, "t")
    xs, ys = places(picture, "c0", "cx"), places(picture, "c0", "cy")
    steps: Any = np.diff(xs) / -np.diff(ys)
    assert steps[0] == pytest.approx(steps[1])
    assert "50% predicted, 50% observed, 3 prompts" in picture


def test_the_colours_of_every_line_and_bar_are_in_the_page() -> None:
    style = report.STYLE
    for css in ("l0", "l1", "l2", "l3", "c0", "c1", "c2", "c3", "mark", "grid", "even", "track"):
        assert f".{css}{{" in style
