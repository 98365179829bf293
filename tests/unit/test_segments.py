"""Words, sentences and cuts: nothing is lost, no grapheme is halved, and a megabyte is quick."""

from __future__ import annotations

import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import segments

FAMILY = "👩‍👩‍👧"

# Text with the things that break cutting: joined emoji, marks, flags, wide stops, white space.
WORDS = ("word", "a", "漢", "か\u3099", FAMILY, "👍🏽", "🇩🇪", "é", "e\u0301", "`x.y`", "x" * 40)
BETWEEN = (" ", "\n", "\n\n", "\t", ". ", "! ", "。", "…", "e.g. ", "3.14 ", "- ", "\u0301")
texts = st.lists(st.sampled_from(WORDS + BETWEEN), max_size=60).map("".join)


def without_space(text: str) -> str:
    return "".join(text.split())


def graphemes(text: str) -> list[str]:
    return regex.findall(r"\X", text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("   \n", 0),
        ("one two", 2),
        ("don't re-read fsio.py 3.14", 4),
        ("-- !! 🎉 ❤️", 0),
        ("漢字かな", 4),
        ("か\u3099く", 2),
        ("한국어 단어", 2),
        ("mixed 漢字 text", 4),
        ("สวัสดีครับ", 2),
        ("snake_case_name", 1),
    ],
)
def test_words_are_counted_in_any_script(text: str, count: int) -> None:
    assert segments.word_count(text) == count


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("One.", ["One."]),
        ("One. Two! Three?", ["One. ", "Two! ", "Three?"]),
        ('He said "stop." Then left.', ['He said "stop." ', "Then left."]),
        ("Use e.g. Postgres. Or vs. MySQL.", ["Use e.g. Postgres. ", "Or vs. MySQL."]),
        ("Ask Dr. Who. J. Doe knows.", ["Ask Dr. Who. ", "J. Doe knows."]),
        ("See v1.2 and fsio.py now. ok then", ["See v1.2 and fsio.py now. ok then"]),
        (
            "今日は。明日も！はい？「うん。」え",
            ["今日は。", "明日も！", "はい？", "「うん。」", "え"],
        ),
        ("one line\nstill the same\n\nnext", ["one line\nstill the same\n\n", "next"]),
        ("1. First. 2nd thing", ["1. First. ", "2nd thing"]),
        ("Trailing. \n", ["Trailing. \n"]),
    ],
)
def test_sentences(text: str, parts: list[str]) -> None:
    assert segments.sentences(text) == parts


@given(texts)
def test_sentences_join_to_the_text(text: str) -> None:
    parts = segments.sentences(text)
    assert "".join(parts) == text
    assert all(parts)


@given(texts, st.integers(1, 80))
def test_cut_loses_only_space_and_halves_no_grapheme(text: str, max_chars: int) -> None:
    parts = segments.cut(text, max_chars)
    assert without_space("".join(parts)) == without_space(text)
    for part in parts:
        assert part.strip() == part != ""
        assert len(part) <= max_chars or len(graphemes(part)) == 1
    # A mark may stand on white space, which a cut drops.
    whole = [g.strip() for g in graphemes(text) if not g.isspace()]
    assert [g.strip() for part in parts for g in graphemes(part) if not g.isspace()] == whole


@given(texts, st.integers(0, 12))
def test_last_words_is_an_end_of_the_text(text: str, count: int) -> None:
    end = segments.last_words(text, count)
    assert text.endswith(end)
    assert segments.word_count(end) == min(count, segments.word_count(text))


def test_cut_prefers_paragraph_then_sentence_then_word() -> None:
    assert segments.cut("aaa bbb.\n\nccc. ddd", 14) == ["aaa bbb.", "ccc. ddd"]
    assert segments.cut("Aaa bbb ccc. Ddd eee", 16) == ["Aaa bbb ccc.", "Ddd eee"]
    assert segments.cut("A. Long words here", 12) == ["A. Long", "words here"]
    assert segments.cut("see e.g. Berlin today", 15) == ["see e.g. Berlin", "today"]
    assert segments.cut("abc " + "x" * 12, 8) == ["abc", "x" * 8, "x" * 4]


def test_cut_falls_exactly_on_the_limit() -> None:
    assert segments.cut("abcd efgh", 4) == ["abcd", "efgh"]
    assert segments.cut("abcd.   Efgh", 5) == ["abcd.", "Efgh"]
    assert segments.cut("abcd", 4) == ["abcd"]
    assert segments.cut("  \n ", 4) == []


def test_a_grapheme_longer_than_the_limit_stays_whole() -> None:
    zalgo = "a" + "\u0301" * 50
    assert segments.cut(FAMILY * 3, 3) == [FAMILY] * 3
    assert segments.cut("xy" + zalgo + "z", 4) == ["xy", zalgo, "z"]


def test_cut_refuses_a_limit_below_one() -> None:
    with pytest.raises(ValueError, match="max_chars"):
        segments.cut("abc", 0)


@pytest.mark.parametrize(
    "line",
    [
        "a" * 1_000_000,
        "." * 1_000_000,
        "x" + " " * 1_000_000 + "\u0301",
        "\n " * 500_000 + "x",
        "🇩🇪" * 100_000,
        "a" + "\u0301" * 1_000_000,
        "e.g. " * 200_000,
        "a'b-" * 250_000,
        "。」" * 300_000,
    ],
    ids=["letters", "stops", "spaces", "lines", "flags", "marks", "abbreviations", "joins", "cjk"],
)
def test_a_long_line_takes_linear_time(line: str) -> None:
    """Quadratic work on these takes minutes; the bound leaves a slow machine its air."""
    began = time.perf_counter()
    segments.word_count(line)
    segments.sentences(line)
    segments.cut(line, 1000)
    segments.last_words(line, 40)
    assert time.perf_counter() - began < 15
