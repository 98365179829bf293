"""A note taken apart: what is a heading, a fence or a comment is CommonMark's word."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag.domain import Block
from prompt_rag.sources.structure import opening_title, parse, without_title


def kinds(text: str) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for block in parse(text).blocks]


def headings(text: str) -> list[tuple[int, str]]:
    return [(block.level, block.text) for block in parse(text).blocks if block.kind == "heading"]


# --- blocks ------------------------------------------------------------


def test_each_kind_of_block_with_its_line() -> None:
    text = """# One

para
goes on

- a
  - b

> quote

| a | b |
|---|---|
| 1 | 2 |

```py
x = 1
```

    indented

***

<div>html</div>
"""
    assert parse(text).blocks == (
        Block("heading", "One", 0, 1),
        Block("paragraph", "para\ngoes on", 2),
        Block("list", "- a\n  - b", 5),
        Block("quote", "> quote", 8),
        Block("table", "| a | b |\n|---|---|\n| 1 | 2 |", 10),
        Block("fence", "```py\nx = 1\n```", 14),
        Block("fence", "    indented", 18),
        Block("rule", "***", 20),
        Block("html", "<div>html</div>", 22),
    )


def test_fences_of_any_kind_hide_their_headings() -> None:
    text = """````
# no
```
# nor this
````
~~~py
## TL;DR
~~~
- item
  ```
  # not in a list
  ```

Real
====
```
# never closed
"""
    assert headings(text) == [(1, "Real")]
    assert [kind for kind, _ in kinds(text)] == ["fence", "fence", "list", "heading", "fence"]


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# Plain", (1, "Plain")),
        ("###### Six ##", (6, "Six")),
        ("Setext\n---", (2, "Setext")),
        ("Two\nlines\n===", (1, "Two lines")),
        ("##  **TL;DR**:", (2, "TL;DR:")),
        ("## `code` and *em* &amp; [text](http://x)", (2, "code and em & text")),
        ("## [[Page|Alias]] <!-- hidden -->", (2, "Alias")),
        ("## ![alt](x.png) word", (2, "alt word")),
        ("##", (2, "")),
        ("## ~~old~~ new", (2, "old new")),
    ],
)
def test_a_heading_is_its_plain_words(line: str, heading: tuple[int, str]) -> None:
    assert headings(line) == [heading]


def test_a_hash_without_space_is_no_heading_and_a_very_long_one_is_a_paragraph() -> None:
    assert headings("#tag\n") == []
    long = "word " * 200
    assert kinds(f"# {long}") == [("paragraph", f"# {long}".strip())]


def test_headings_inside_lists_and_quotes_belong_to_them() -> None:
    assert kinds("> # quoted\n\n- # listed") == [("quote", "> # quoted"), ("list", "- # listed")]


def test_text_that_a_list_or_quote_nests_too_deep_is_kept_and_its_comments_are_not() -> None:
    deep = "> " * 150
    (block,) = parse(f"{deep}word <!-- hidden --> [[Page|seen]]").blocks
    assert block.text.endswith("word  seen")


def test_link_definitions_go_and_footnotes_stay() -> None:
    assert kinds("[ref]: http://x 'T'\n[other]: <y>\ntext\n\n[a]: b\n\n[^1]: word") == [
        ("paragraph", "text"),
        ("paragraph", "[^1]: word"),
    ]


# --- comments ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a <!-- x --> b", "a  b"),
        ("a <!-- x\ny --> b", "a  b"),
        ("a <!--> b", "a  b"),
        ("a <!---> b", "a  b"),
        ("a `<!-- code -->` b", "a `<!-- code -->` b"),
        ("a \\<!-- x --> b", "a \\<!-- x --> b"),
        ("a <!-- left open", "a <!-- left open"),
        ("a %% x %% b", "a  b"),
        ("100%% of 50%%", "100%% of 50%%"),
        ("a %% left open", "a %% left open"),
        ("- a <!-- x -->\n  - b", "- a \n  - b"),
        ("> a <!-- x\n> y --> b", "> a  b"),
        ("| a | <!-- x --> b |\n|---|---|", "| a |  b |\n|---|---|"),
        ("<div><!-- x -->seen</div>", "<div>seen</div>"),
        ("<!-- a --> seen", "seen"),
        ("one\n%% x %%\ntwo", "one\ntwo"),
        ("- a\n\n  <!-- x -->\n\n  b", "- a\n\n  \n\n  b"),
    ],
)
def test_comments_are_dropped(text: str, left: str) -> None:
    assert [block.text for block in parse(text).blocks] == [left]


@pytest.mark.parametrize(
    "text",
    ["<!-- x -->", "<!-- a\n\n# b\n\nc", "%% x %%", "> <!-- x -->", "- <!-- x -->", "<!-->\n", ""],
)
def test_what_held_only_a_comment_is_no_block(text: str) -> None:
    assert parse(text).blocks == ()


def test_a_percent_comment_may_span_blocks() -> None:
    text = "before #a\n\n%%\n\n# Hidden #b\n\n- [[x]]\n\n```\ncode\n```\n\n%%\n\nafter #c\n\n%%\n"
    parsed = parse(text)
    # The last mark finds no partner and hides nothing.
    assert [block.text for block in parsed.blocks] == ["before #a", "after #c", "%%"]
    assert parsed.tags == ("a", "c")


# --- links, images, tags ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("see [[Page]] now", "see Page now"),
        ("[[Page|alias]] x", "alias x"),
        ("[[Page#Part]]", "Page > Part"),
        ("[[#Part]]", "Part"),
        ("[[Page#^block]]", "Page"),
        ("![[Note]] x", "Note x"),
        ("x ![[pic.PNG]]", "x"),
        ("![[pic.png|300]] x", "x"),
        ("![[pic.png|a cat]] x", "a cat x"),
        ("![[Note|300x200]]", "Note"),
        ("![alt text](a.png) x", "alt text x"),
        ("![alt|100](a.png 'title') x", "alt x"),
        ("![a|b](a_(1).png)", "a|b"),
        ("![alt][ref] x", "alt x"),
        ("![](<a b.png>) x", "x"),
        ("[![badge](b.svg)](http://x)", "[badge](http://x)"),
        ('a <img src="x" alt="two cats"> b', "a two cats b"),
        ("a <img src='x'> b", "a  b"),
        ("<p><img alt='cat' src=x></p>", "<p>cat</p>"),
        ("`[[code]]` and ``a ` [[b]]``", "`[[code]]` and ``a ` [[b]]``"),
        ("`` open [[Page]]", "`` open Page"),
        (r"\[[Page]]", r"\[[Page]]"),
        (r"\`[[Page]]`", r"\`Page`"),
        ("[text](http://x) ![broken", "[text](http://x) ![broken"),
        ("| [[A\\|b]] |\n|---|", "| b |\n|---|"),
        ("<b>bold</b> <imgx>", "<b>bold</b> <imgx>"),
    ],
)
def test_links_and_images_are_read(text: str, read: str) -> None:
    assert [block.text for block in parse(text).blocks] == [read]


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#one and #two/three, #two/three.", ("one", "two/three")),
        ("#123 #1a #-- #y1984", ("1a", "y1984")),
        ("# Heading #deep\n\n## Title ##", ("deep",)),
        ("`#no` http://x/#frag a#b (#c)", ()),
        ("```\n#no\n```\n\n    #nor", ()),
        ("#Ünïcode #日本 #🎉 #a-b_c", ("Ünïcode", "日本", "🎉", "a-b_c")),
        ("#multi word# then #single", ("multi word", "single")),
        ("#work/two words#", ("work/two words",)),
        ("#one#", ("one",)),
        ("#a and b#c", ("a",)),
        ("#Same #same", ("Same",)),
        ("- #in\n  - #list\n\n> #quote\n\n| #cell |\n|---|", ("in", "list", "quote", "cell")),
        ("#/ #a/", ("a",)),
        ("%% #hidden %% <!-- #too -->", ()),
        ("#!/bin/sh #", ()),
    ],
)
def test_tags(text: str, tags: tuple[str, ...]) -> None:
    assert parse(text).tags == tags


# --- frontmatter and odd input ------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "---\na: b\n---\n\n## TL;DR\n",
        "\ufeff---\na: b\n---\n\n## TL;DR\n",
        "\n  \n---\na: b\n---\n## TL;DR\n",
        "---\r\na: b\r\n---\r\n## TL;DR\r\n",
        "---\ra: b\r---\r\r## TL;DR\r",
        "---\na: b\n...\n## TL;DR\n",
    ],
)
def test_frontmatter_in_every_dress(text: str) -> None:
    parsed = parse(text)
    assert parsed.frontmatter == "a: b"
    assert parsed.body == "## TL;DR\n"
    assert parsed.blocks == (Block("heading", "TL;DR", 0, 2),)


def test_a_rule_is_no_frontmatter() -> None:
    assert parse("---\nnot closed").frontmatter is None
    assert parse("text\n\n---\na: b\n---").frontmatter is None
    assert kinds("---\nnot closed") == [("rule", "---"), ("paragraph", "not closed")]


def test_frontmatter_may_be_read_as_body() -> None:
    parsed = parse("---\n**NAME**\n---\nrest", frontmatter=False)
    assert parsed.frontmatter is None
    assert [block.text for block in parsed.blocks] == ["---", "NAME", "rest"]


def test_an_empty_frontmatter() -> None:
    parsed = parse("---\n---\ntext")
    assert (parsed.frontmatter, parsed.body) == ("", "text")


def test_nul_and_lone_surrogates_become_something_a_file_can_hold() -> None:
    parsed = parse("a\0b \ud83d c")
    assert parsed.blocks[0].text == "a\ufffdb \ufffd c"
    parsed.body.encode()


def test_the_title_is_taken_and_removed_once() -> None:
    blocks = parse("intro\n\n# The  Title\n\ntext\n\n# The Title\n").blocks
    assert opening_title(blocks) == "The Title"
    assert [b.text for b in without_title(blocks, "the title")] == ["intro", "text", "The Title"]
    assert without_title(blocks, "Other") == blocks
    assert opening_title(parse("## Two\n\n# One").blocks) == ""
    assert without_title(parse("## Two").blocks, "Two") == parse("## Two").blocks
    assert opening_title(()) == ""
    assert without_title((), "x") == ()


PARTS = [
    *(
        "# ",
        "## ",
        "---\n",
        "===\n",
        "```\n",
        "~~~",
        "> ",
        "- ",
        "1. ",
        "    ",
        "\t",
        "|",
        "|---|\n",
    ),
    *(
        "<!--",
        "-->",
        "%%",
        "[[",
        "]]",
        "![",
        "](",
        ")",
        "`",
        "``",
        "\\",
        "#tag",
        "#a b#",
        "<div>\n",
    ),
    *(
        "word",
        "漢",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\0",
        "\ufeff",
        "\x0c",
        "\u2028",
        "a: b\n",
        "...\n",
        " ",
    ),
]


@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join), st.booleans())
def test_nothing_raises_and_blocks_stand_where_they_say(text: str, frontmatter: bool) -> None:
    parsed = parse(text, frontmatter=frontmatter)
    lines = parsed.body.split("\n")
    numbers = [block.line for block in parsed.blocks]
    assert numbers == sorted(numbers)
    for block in parsed.blocks:
        assert 0 <= block.line < len(lines)
        assert block.text or block.kind == "heading"
        assert (1 <= block.level <= 6) == (block.kind == "heading")


@given(st.lists(st.sampled_from(["word", "漢字", " ", "\n", "- ", "> ", "*", "1. "]), max_size=30))
def test_no_word_is_lost(parts: list[str]) -> None:
    text = "".join(parts)
    kept = "".join(block.text for block in parse(text).blocks)
    assert kept.count("word") == text.count("word")
    assert kept.count("漢字") == text.count("漢字")


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "[" * 300_000,
        "![a](" * 60_000,
        "[[a" * 100_000,
        "x <!--" * 50_000,
        "".join("`" * n + " " for n in range(1, 700)),
        ">" * 50_000 + " x",
        "- " * 50_000 + "x",
        "![a|" + " " * 300_000 + "](x)",
        "\n".join("  " * n + "- x" for n in range(400)),
        "%%\n\n" * 20_000,
        "<img " * 60_000,
    ],
    ids=range(12),
)
def test_pathological_text_takes_bounded_time(text: str) -> None:
    began = time.perf_counter()
    parse(text)
    assert time.perf_counter() - began < 10
