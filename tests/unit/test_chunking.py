"""A note cut into passages: its TL;DR, its sections, and nothing lost or halved on the way."""

from __future__ import annotations

import re
import time
from hashlib import sha256
from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import segments
from prompt_rag.chunking import Limits, Piece, pieces, version
from prompt_rag.domain import Note, PassageKind, note_id
from prompt_rag.sources.structure import parse

FAMILY = "👩‍👩‍👧"
WIDE = Limits(max_tokens=10_000)


def count_tokens(text: str) -> int:
    """Words and marks, long words in parts, two special tokens: the shape of WordPiece."""
    return 2 + sum(1 + len(word) // 6 for word in re.findall(r"\w+|[^\w\s]", text))


def note(body: str, title: str = "The title", aliases: tuple[str, ...] = ()) -> Note:
    parsed = parse(body)
    return Note(
        source="notes",
        key="a.md",
        title=title,
        text=parsed.body,
        blocks=parsed.blocks,
        modified_at=None,
        created_at=None,
        tags=(),
        uri="",
        aliases=aliases,
    )


def cut(
    body: str,
    limits: Limits = WIDE,
    tiers: tuple[PassageKind, ...] = ("tldr", "section"),
    **fields: object,
) -> list[Piece]:
    return pieces(note(body, **fields), limits, count_tokens, tiers)  # type: ignore[arg-type]


def words(count: int, name: str = "word") -> str:
    """Return ``count`` words in sentences of ten, each word its own."""
    return " ".join(
        f"{name.title() if n % 10 == 0 else name}{n}{'.' if n % 10 == 9 else ''}"
        for n in range(count)
    )


def shape(found: list[Piece]) -> list[tuple[str, tuple[str, ...], str]]:
    return [(p.passage.kind, p.passage.heading_path, p.passage.text) for p in found]


# --- the TL;DR ------------------------------------------------------------


@pytest.mark.parametrize(
    "opening",
    [
        "## TL;DR\n\nShort.",
        "# TL;DR\n\nShort.",
        "###### tl;dr\n\nShort.",
        "## TLDR\n\nShort.",
        "## TL;DR:\n\nShort.",
        "## TL;DR：\n\nShort.",
        "##  **TL;DR**\n\nShort.",
        "## __TLDR:__\n\nShort.",
        "## TL；DR\n\nShort.",
        "## ＴＬ；ＤＲ\n\nShort.",
        "## TL DR\n\nShort.",
        "## tl,dr\n\nShort.",
        "## TL/DR\n\nShort.",
        "## TL-DR\n\nShort.",
        "## 1. TL;DR\n\nShort.",
        "## 📌 TL;DR (for the impatient)\n\nShort.",
        "## TL;DR ##\n\nShort.",
        "## TL;DR: Short.",
        "## TL;DR — Short.",
        "TL;DR\n-----\n\nShort.",
        "TL;DR\n=====\nShort.",
        "## TL;DR\n\n---\n\nShort.\n\n---",
        "> [!tldr]\n> Short.",
        "> [!TLDR]- TL;DR\n> Short.",
        "> [!summary]\n> Short.",
        "> [!abstract]+ Summary\n>\n> Short.",
        "> [!tl;dr] Short.",
        "> **TL;DR:** Short.",
        "> TL;DR: Short.",
        "**TL;DR:** Short.",
        "**TL;DR**: Short.",
        "**TL;DR** Short.",
        "__TLDR__ Short.",
        "*tl;dr* - Short.",
        "***TL;DR*** Short.",
        "**TL;DR: Short.**",
        "TL;DR: Short.",
        "tldr: Short.",
        "TL；DR：Short.",
        "TL;DR - Short.",
        "TL;DR\nShort.",
        "**TL;DR**\n\nShort.",
        "TL;DR:\n\nShort.",
    ],
)
def test_every_spelling_of_the_tldr(opening: str) -> None:
    rest = words(40)
    first, second = cut(f"{opening}\n\n## Rest\n\n{rest}")
    assert first.embedded == "The title\n\nShort."
    assert shape([first, second]) == [("tldr", (), "Short."), ("section", ("Rest",), rest)]


@pytest.mark.parametrize(
    "body",
    [
        "```\n## TL;DR\n\nShort.\n```",
        "TLDRs are short.",
        "TL;DR pages are a project",
        "## TLDR pages\n\nShort.",
        "> [!note]\n> Short.",
        "> Short.",
        "- TL;DR: Short.",
        "## TL;DR\n",
        "## TL;DR\n\n---\n\n## Next\n\ntext",
        "**TL;DR:**",
        "TL;DR:\n\n## Next\n\ntext",
        "> [!tldr]",
        "> [!summary] Summary",
        "text",
        "",
    ],
)
def test_what_is_no_tldr_or_an_empty_one(body: str) -> None:
    assert {piece.passage.kind for piece in cut(body)} <= {"section"}


def test_the_fenced_example_is_not_it() -> None:
    (first, *_) = cut("```md\n## TL;DR\n\nExample.\n```\n\n## TL;DR\n\nReal.")
    assert first.passage.text == "Real."


def test_of_two_the_first_with_text() -> None:
    found = cut(f"## TL;DR\n\n## Context\n\n{words(40)}\n\n## TLDR\n\nReal.\n\n## TL;DR\n\nLate.")
    assert shape(found)[0] == ("tldr", (), "Real.")
    assert "Late." in found[-1].passage.text


def test_the_tldr_may_come_after_some_context_but_opens_the_note() -> None:
    context = f"Intro.\n\n## Context\n\n{words(40)}\n\n"
    assert (
        cut(context + "### TL;DR\n\nOf the context.\n\n## More\n\nx")[0].passage.kind == "section"
    )
    assert cut(context + "## TL;DR\n\nOf the note.")[0].passage.text == "Of the note."
    # A single top heading stands for the note.
    assert cut("# Other title\n\n### TL;DR\n\nYes.\n\n## More\n\nx")[0].passage.text == "Yes."
    many = "".join(f"## Part {n}\n\nx\n\n" for n in range(9))
    assert cut(many + "## TL;DR\n\nToo late.")[0].passage.kind == "section"
    meetings = "".join(f"## Meeting {n}\n\n> [!summary]\n> Of it.\n\n" for n in range(2))
    assert cut(meetings)[0].passage.kind == "section"


def test_the_tldr_ends_at_the_next_heading_whatever_its_level() -> None:
    body = f"# TL;DR\n\nShort.\n\n- a\n- b\n\n## Deeper\n\n{words(40)}"
    assert shape(cut(body)) == [
        ("tldr", (), "Short.\n\n- a\n- b"),
        ("section", ("Deeper",), words(40)),
    ]


def test_a_label_above_a_list() -> None:
    assert cut("**TL;DR:**\n\n- a\n- b\n\nrest")[0].passage.text == "- a\n- b"
    assert (
        cut("TL;DR: three things:\n\n- a\n- b\n\nx")[0].passage.text == "three things:\n\n- a\n- b"
    )
    assert cut("TL;DR: one thing\n\n- a")[0].passage.text == "one thing"


def test_a_callout_keeps_a_title_that_says_something() -> None:
    assert cut("> [!tldr] Use locks\n> They work.")[0].passage.text == "Use locks\nThey work."


def test_the_tiers() -> None:
    body = f"## TL;DR\n\nShort.\n\n## Rest\n\n{words(40)}"
    assert [k for k, _, _ in shape(cut(body, tiers=("tldr",)))] == ["tldr"]
    assert shape(cut(f"## Rest\n\n{words(40)}", tiers=("tldr",)))[0][1] == ("Rest",)
    (only,) = cut(body, tiers=("section",))
    assert only.passage.text == f"## TL;DR\n\nShort.\n\n## Rest\n\n{words(40)}"


def test_a_tldr_that_is_too_long_goes_on_in_sections() -> None:
    body = f"## TL;DR\n\n{words(500)}\n\n## Rest\n\n{words(40, 'rest')}"
    found = cut(body)
    assert [(p.passage.kind, p.passage.heading_path) for p in found] == [
        ("tldr", ()),
        ("section", ("TL;DR",)),
        ("section", ("Rest",)),
    ]
    assert len(cut(body, tiers=("tldr",))) == 1


# --- sections ------------------------------------------------------------


def test_ids_ordinals_and_hashes() -> None:
    found = cut(f"## TL;DR\n\nShort.\n\n## A\n\n{words(40)}\n\n## B\n\n{words(40, 'b')}")
    identity = note_id("notes", "a.md")
    for ordinal, piece in enumerate(found):
        passage = piece.passage
        assert (passage.ordinal, passage.note_id) == (ordinal, identity)
        assert passage.id == f"{identity}-{ordinal}"
        assert passage.text_hash == sha256(piece.embedded.encode()).hexdigest()
    assert len(found) == 3


def test_each_section_carries_its_path() -> None:
    a, b, c, d = (words(30, name) for name in "abcd")
    body = f"{a}\n\n## B\n\n{b}\n\n### C\n\n{c}\n\n## D\n\n{d}"
    found = cut(body)
    assert [p.passage.heading_path for p in found] == [(), ("B",), ("B", "C"), ("D",)]
    assert found[2].embedded == f"The title\nB > C\n\n{words(30, 'c')}"
    assert found[0].embedded == f"The title\n\n{words(30, 'a')}"


def test_skipped_levels_and_empty_headings() -> None:
    body = f"#### Deep\n\n{words(30)}\n\n##\n\n{words(30, 'b')}\n\n### Under\n\n{words(30, 'c')}"
    assert [p.passage.heading_path for p in cut(body)] == [("Deep",), (), ("Under",)]


def test_small_sections_join_the_one_above() -> None:
    large = words(30, "l")
    body = (
        f"## A\n\n{words(30)}\n\n### Small\n\nfew words\n\n### Large\n\n{large}\n\n### Tail\n\nend"
    )
    assert shape(cut(body)) == [
        ("section", ("A",), f"{words(30)}\n\n### Small\n\nfew words\n\n### Tail\n\nend"),
        ("section", ("A", "Large"), words(30, "l")),
    ]


def test_small_siblings_make_one_passage() -> None:
    body = "## A\n\nsome words\n\n## B\n\nmore words\n\n### C\n\ndeep words"
    assert shape(cut(body)) == [("section", (), body)]


def test_a_small_beginning_joins_the_first_section() -> None:
    body = f"#tag\n\n## A\n\n{words(30)}\n\n## Small\n\nend\n\n## B\n\n{words(30, 'b')}"
    assert shape(cut(body)) == [
        ("section", ("A",), f"#tag\n\n## A\n\n{words(30)}\n\n## Small\n\nend"),
        ("section", ("B",), words(30, "b")),
    ]


def test_headings_without_text_are_words_too() -> None:
    assert shape(cut("## One\n\n## Two\n\n### Three")) == [
        ("section", (), "## One\n\n## Two\n\n### Three")
    ]
    # A heading with sections below it lives on in their paths.
    assert shape(cut(f"## One\n\n### Two\n\n{words(30)}")) == [
        ("section", ("One", "Two"), words(30))
    ]


def test_a_note_without_text_is_found_by_its_title() -> None:
    (only,) = cut("", aliases=("Other",))
    assert only.passage.text == "The title"
    assert only.embedded == "The title (Other)"
    assert only.passage.kind == "section"
    assert cut("---\n\n***", title="T")[0].embedded == "T"
    assert cut("", title=" ") == []


def test_aliases_stand_in_front_of_the_first_passage_only() -> None:
    found = cut(f"{words(30)}\n\n## B\n\n{words(30, 'b')}", aliases=("One", "Two"))
    assert found[0].embedded.startswith("The title (One, Two)\n\n")
    assert found[1].embedded.startswith("The title\nB\n\n")


def test_a_title_and_path_without_end_leave_room_for_the_text() -> None:
    limits = Limits(max_tokens=64)
    heading = "heading " * 60
    found = cut(f"## {heading}\n\n### Inner\n\n{words(40)}", limits, title="title " * 500)
    for piece in found:
        front = piece.embedded.removesuffix(piece.passage.text)
        assert count_tokens(front) <= 64 // 4
        assert "Inner" in front  # the innermost says most
        assert count_tokens(piece.embedded) <= 64
    assert found[0].passage.heading_path == (heading.strip(), "Inner")


def test_a_model_that_reads_next_to_nothing_gets_text_without_a_title() -> None:
    found = cut("a b c", Limits(max_tokens=4), title="long " * 9)
    assert [piece.embedded for piece in found] == ["a b", "c"]


# --- splitting ------------------------------------------------------------


def test_prose_is_split_at_sentences_with_overlap() -> None:
    found = cut(words(1000))
    texts = [piece.passage.text for piece in found]
    assert len(texts) == 4
    for before, after in pairwise(texts):
        assert segments.word_count(before) <= 300
        assert before.endswith(".")
        overlap = segments.last_words(before, 40)
        assert after.startswith(overlap)
        assert overlap.startswith("Word")  # the start of a sentence


def test_paragraph_ends_come_first() -> None:
    body = "\n\n".join(words(90, name) for name in ("a", "b", "c", "d"))
    texts = [piece.passage.text for piece in cut(body)]
    assert texts[0].endswith("c89.")
    assert texts[1].endswith("d89.")
    assert "d0" not in texts[0]


def test_a_long_sentence_gives_its_last_words() -> None:
    endless = " ".join(f"w{n}" for n in range(400))
    first, second = cut(endless)
    assert second.passage.text.startswith(segments.last_words(first.passage.text, 40) + " ")


def test_without_overlap_each_word_stands_once() -> None:
    found = cut(words(1000), Limits(overlap_words=0, max_tokens=10_000))
    assert " ".join(piece.passage.text for piece in found) == words(1000)


def test_no_overlap_into_a_new_subject() -> None:
    small = "\n\n".join(f"### S{n}\n\n{words(25, f's{n}x')}" for n in range(14))
    found = cut(f"## A\n\n{words(40)}\n\n{small}")
    assert len(found) == 2
    assert found[1].passage.text.startswith("### S")
    assert not found[0].passage.text.splitlines()[-1].startswith("#")  # it leads what follows


def test_a_fence_is_whole_where_it_fits() -> None:
    code = "```py\n" + "\n".join(f"line_{n} = {n}" for n in range(60)) + "\n```"
    found = cut(f"{words(200)}\n\n{code}\n\n{words(200, 'after')}")
    assert sum(code in piece.passage.text for piece in found) == 1
    assert all(piece.passage.text.count("```") in {0, 2} for piece in found)


def test_a_fence_that_is_too_long_is_opened_and_closed_in_each_part() -> None:
    code = "````py\n" + "\n".join(f"line_{n} = {n}" for n in range(400)) + "\n````"
    for body in (code, f"Do this:\n\n{code}", code.removesuffix("\n````")):
        texts = [piece.passage.text for piece in cut(body)]
        assert len(texts) > 2
        for text in texts:
            assert "\n````py\n" in f"\n{text}"
            assert text.endswith("\n````")
        assert re.findall(r"line_\d+", "\n".join(texts)) == [f"line_{n}" for n in range(400)]


def test_indented_code_is_cut_at_its_lines() -> None:
    code = "\n".join(f"    line_{n} = {n}" for n in range(400))
    texts = [piece.passage.text for piece in cut(code)]
    assert "\n".join(texts) == code


def test_a_fence_whose_opening_is_most_of_it_is_not_repeated() -> None:
    opener = "```" + "x" * 300
    found = cut(
        f"{opener}\n" + "\n".join(f"l{n}" for n in range(100)) + "\n```", Limits(max_tokens=64)
    )
    joined = "\n".join(piece.passage.text for piece in found)
    assert joined.count("l99") == 1
    assert all(count_tokens(piece.embedded) <= 64 for piece in found)


def test_a_table_repeats_its_names() -> None:
    rows = "\n".join(f"| a{n} | b{n} |" for n in range(300))
    texts = [piece.passage.text for piece in cut(f"| one | two |\n|-----|-----|\n{rows}")]
    assert len(texts) > 1
    for text in texts:
        assert text.startswith("| one | two |\n|---|---|\n| a")
    assert re.findall(r"a\d+", "\n".join(texts)) == [f"a{n}" for n in range(300)]


def test_padding_of_a_table_is_not_embedded() -> None:
    (only,) = cut("| a" + " " * 400 + "| b |\n|" + "-" * 400 + "|---|\n| c | d |")
    assert only.passage.text == "| a | b |\n|---|---|\n| c | d |"


def test_a_list_is_cut_between_its_lines_and_not_in_its_fences() -> None:
    items = "\n".join(
        f"- item {n}\n  ```sh\n  run {n}\n  # and\n  stop {n}\n  ```\n  done {n}" for n in range(60)
    )
    found = cut(items, Limits(max_tokens=120))
    assert len(found) > 5
    for piece in found:
        assert piece.passage.text.count("```") % 2 == 0
        assert count_tokens(piece.embedded) <= 120
    one_fence = "- item\n\n  ```\n" + "\n".join(f"  line {n}" for n in range(200)) + "\n  ```"
    assert len(cut(one_fence)) > 1  # alone too long


def test_one_endless_item_is_cut_at_its_sentences() -> None:
    first, second = cut(f"- {words(400)}")
    assert first.passage.text.endswith(".")
    assert segments.word_count(first.passage.text) == 300
    assert second.passage.text.endswith("word399.")


def test_a_last_crumb_takes_company() -> None:
    code = ["```\n" + "\n".join(f"{name}{n} = {n}" for n in range(60)) + "\n```" for name in "ab"]
    found = cut(f"{words(59)}\n\n{code[0]}\n\n{code[1]}\n\nSee there.")
    assert [piece.passage.text for piece in found] == [
        f"{words(59)}\n\n{code[0]}",
        f"{code[1]}\n\nSee there.",
    ]


def test_a_megabyte_without_a_space() -> None:
    began = time.perf_counter()
    found = cut("x" * 1_000_000, Limits(), title="T")
    assert "".join(piece.passage.text for piece in found) == "x" * 1_000_000
    assert time.perf_counter() - began < 20


def test_what_a_tokenizer_folds_into_one_unknown_token_is_cut_all_the_same() -> None:
    found = pieces(note("x" * 100_000), Limits(), lambda text: 2 + len(text.split()))
    assert "".join(piece.passage.text for piece in found) == "x" * 100_000
    assert max(len(piece.embedded) for piece in found) <= 17 * Limits().max_tokens


def test_an_outline_of_headings_fills_its_passages() -> None:
    found = cut("\n\n".join(f"# H{n}" for n in range(1000)))
    assert len(found) == 4
    assert re.findall(r"H\d+", "".join(p.passage.text for p in found)) == [
        f"H{n}" for n in range(1000)
    ]


def test_one_grapheme_too_long_for_the_model_is_not_cut() -> None:
    # One token for each mark, as a byte-level tokenizer would count.
    zalgo = "a" + "\u0301" * 500
    found = pieces(note(f"before {zalgo} after", title="T"), Limits(max_tokens=100), len)
    assert zalgo in [piece.passage.text for piece in found]


def test_counting_is_the_exception() -> None:
    calls = 0

    def counted(text: str) -> int:
        nonlocal calls
        calls += 1
        return count_tokens(text)

    found = pieces(note("\n\n".join(words(80, f"p{n}x") for n in range(100))), Limits(), counted)
    assert len(found) > 30
    assert calls < 4 * len(found)


BLOCKS = st.one_of(
    st.integers(1, 120).map(words),
    st.integers(1, 40).map(lambda n: FAMILY * n),
    st.integers(1, 60).map(lambda n: "漢字かな。" * n),
    st.integers(1, 30).map(
        lambda n: "```py\n" + "\n".join(f"c{i} = {i}" for i in range(n)) + "\n```"
    ),
    st.integers(1, 30).map(lambda n: "\n".join(f"- item{i} text" for i in range(n))),
    st.integers(1, 20).map(lambda n: "\n".join(f"> quote{i} goes on" for i in range(n))),
    st.integers(1, 20).map(
        lambda n: "| h1 | h2 |\n|---|---|\n" + "\n".join(f"| r{i} | s{i} |" for i in range(n))
    ),
    st.integers(1, 6).map(lambda n: "#" * n + f" Heading level{n}"),
    st.sampled_from(["## TL;DR\n\nShort one.", "---", "x" * 300, "e\u0301" * 200, "<b>html</b>"]),
)


def plain_words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@given(
    st.lists(BLOCKS, max_size=12),
    st.integers(40, 200),
    st.sampled_from([count_tokens, lambda t: 2 + len(t) // 3, lambda t: 2 + len(t.split())]),
)
def test_nothing_is_too_long_lost_or_halved(blocks: list[str], most: int, counter: object) -> None:
    source = note("\n\n".join(blocks))
    limits = Limits(max_tokens=most)
    found = pieces(source, limits, counter)  # type: ignore[arg-type]  # one of three counters
    for piece in found:
        assert counter(piece.embedded) <= most  # type: ignore[operator]
        assert segments.word_count(piece.passage.text) <= limits.max_words
        assert piece.passage.text.strip()
    kept = {word for piece in found for word in plain_words(piece.embedded)}
    long = {word for word in plain_words(source.text) if len(word) < 30 and "漢" not in word}
    # The label of a TL;DR says nothing; a heading is in a path, or in a text.
    assert long - kept - {"TL", "DR"} <= {w for w in long if w.startswith(("Heading", "level"))}
    text = "".join(piece.passage.text for piece in found)
    assert text.count("漢字かな") >= source.text.count("漢字かな")
    graphemes = set(regex.findall(r"\X", text))
    assert not {g for g in graphemes if "\u200d" in g} - {FAMILY}
    assert text.count("👧") >= source.text.count("👧")
    assert "\u0301" not in graphemes
    for block in source.blocks:
        alone = f"The title\n{'Heading level > ' * 6}\n\n{block.text}"
        if block.kind == "fence" and counter(alone) <= most:  # type: ignore[operator]
            assert any(block.text in piece.passage.text for piece in found)


@given(st.lists(BLOCKS, max_size=8))
def test_equal_notes_make_equal_passages(blocks: list[str]) -> None:
    body = "\n\n".join(blocks)
    assert cut(body) == cut(body)
    assert [p.passage.ordinal for p in cut(body)] == list(range(len(cut(body))))


def test_the_version_depends_on_the_tiers_and_not_on_their_order() -> None:
    assert version(("tldr", "section")) == version(("section", "tldr"))
    assert version(("tldr",)) != version(("tldr", "section"))
