"""JSON with comments: what is read, and edits that leave everything else alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonc_texts import Text, arrays, comments, documents, is_part, settings, values

from prompt_rag import jsonc

ITEM = {"command": "x", "args": ["é", 'quo"te'], "timeout": 10}


# --- reading ------------------------------------------------------------------------------------


@given(documents)
def test_a_document_is_read(document: Text) -> None:
    text, value = document
    assert jsonc.parse(text).value == value


def test_a_number_may_be_long() -> None:
    assert jsonc.parse(f"[{'9' * 5000}]").value == [float("inf")]


def test_of_equal_keys_the_last_one_counts() -> None:
    text = '{"a": [1], "a": [2]}'
    assert jsonc.parse(text).value == {"a": [2]}
    assert jsonc.append(text, ["a"], 3) == '{"a": [1], "a": [2, 3]}'


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("", 1, 1, "a value is missing"),
        ("{\n  'a': 1}", 2, 3, "a string in double quotes is missing"),
        ("{a: 1}", 1, 2, "a string in double quotes is missing"),
        ('{"a" 1}', 1, 6, "a colon is missing"),
        ('{"a": 1 "b": 2}', 1, 9, "a comma or } is missing"),
        ("[1 2]", 1, 4, "a comma or ] is missing"),
        ("[1,,2]", 1, 4, "a value is missing"),
        ("[,]", 1, 2, "a value is missing"),
        ("{} {}", 1, 4, "something follows the end of the document"),
        ("[01]", 1, 2, "a value is missing"),
        ("[1.]", 1, 2, "a value is missing"),
        ("[+1]", 1, 2, "a value is missing"),
        ("[NaN]", 1, 2, "a value is missing"),
        ("[truest]", 1, 6, "a comma or ] is missing"),
        ('["a\n"]', 1, 2, "a string in double quotes is missing"),
        (r'["\x"]', 1, 2, "a string holds an escape that JSON does not know"),
        ("[1 /* open", 1, 4, "a comma or ] is missing"),
        ("{", 1, 2, "a string in double quotes is missing"),
        ("[" * 100_000, 1, 1, "it is nested too deep"),
        ("\ufeff{}", 1, 1, "a value is missing"),
    ],
)
def test_what_is_no_document(text: str, line: int, column: int, why: str) -> None:
    with pytest.raises(jsonc.Malformed, match="line") as caught:
        jsonc.parse(text)
    assert str(caught.value) == f"line {line}, column {column}: {why}"


# --- appending ----------------------------------------------------------------------------------

GROUP = {"hooks": [1]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "h": {\n    "E": [\n      1\n    ]\n  }\n}'),
        ("{\n}\n", '{\n  "h": {\n    "E": [\n      1\n    ]\n  }\n}\n'),
        ('{"a":1}', '{"a":1, "h": {"E": [1]}}'),
        ('{"a":1,}', '{"a":1, "h": {"E": [1]},}'),
        ('{"a":1 // c\n}', '{"a":1, "h": {"E": [1]} // c\n}'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"h": {\n\t\t"E": [\n\t\t\t1\n\t\t]\n\t}\n}'),
        (
            '{\r\n "a": 1 // c\r\n}\r\n',
            '{\r\n "a": 1, // c\r\n "h": {\r\n  "E": [\r\n   1\r\n  ]\r\n }\r\n}\r\n',
        ),
        (
            '{\n  "a": 1, /* b */ // c\n  // last\n}',
            '{\n  "a": 1, /* b */ // c\n  "h": {\n    "E": [\n      1\n    ]\n  },\n  // last\n}',
        ),
        ("{ // c\n}", '{ // c\n  "h": {\n    "E": [\n      1\n    ]\n  }\n}'),
        ('{"h": {"E": [0]}}', '{"h": {"E": [0, 1]}}'),
        ('{"h": {"E": [{\n  "x": 0\n}]}}', '{"h": {"E": [{\n  "x": 0\n}, 1]}}'),
        ('{\n    "h": {}\n}', '{\n    "h": {\n        "E": [\n            1\n        ]\n    }\n}'),
        (
            '{\n  "h": {\n    "E": [\n    ]\n  }\n}',
            '{\n  "h": {\n    "E": [\n      1\n    ]\n  }\n}',
        ),
    ],
)
def test_an_item_is_appended_in_the_style_of_the_document(before: str, after: str) -> None:
    assert jsonc.append(before, ["h", "E"], 1) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "the document is not an object"),
        ('{"h": 1}', "h is not an object"),
        ('{"h": null}', "h is not an object"),
        ('{"h": {"E": {}}}', "h.E is not an array"),
        ("{", "a string in double quotes is missing"),
    ],
)
def test_what_stands_in_the_way_stays(text: str, why: str) -> None:
    with pytest.raises(jsonc.Malformed, match=why):
        jsonc.append(text, ["h", "E"], 1)


@given(settings())
def test_appending_only_adds(document: Text) -> None:
    text, value = document
    new = jsonc.append(text, ["hooks", "UserPromptSubmit"], ITEM)
    assert is_part(text, new)
    assert comments(new) == comments(text)
    events = dict(value.get("hooks", {}))
    events["UserPromptSubmit"] = [*events.get("UserPromptSubmit", []), ITEM]
    assert jsonc.parse(new).value == {**value, "hooks": events}


@given(arrays(values, least=1), st.sampled_from(["", "\n", "\r\n\t", " /* c */\n  "]))
def test_what_was_appended_can_be_taken_away_again(array: Text, gap: str) -> None:
    listed, items = array
    text = f'{{{gap}"hooks":{listed}{gap}}}'
    new = jsonc.append(text, ["hooks"], ITEM)
    assert jsonc.remove(new, ["hooks", len(items)]) == text


def test_a_missing_member() -> None:
    assert jsonc.set_missing("{}\n", "version", 1) == '{\n  "version": 1\n}\n'
    assert jsonc.set_missing('{"version": 2}', "version", 1) == '{"version": 2}'


# --- removing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "place", "after"),
    [
        ("[1]", 0, "[]"),
        ("[\n  1,\n]", 0, "[]"),
        ("[ // c\n  1\n]", 0, "[ // c\n]"),
        ("[1 /* c */]", 0, "[ /* c */]"),
        ("[1, 2]", 0, "[2]"),
        ("[1, 2]", 1, "[1]"),
        ("[1, 2,]", 1, "[1,]"),
        ("[1, /* c */ 2]", 1, "[1 /* c */ ]"),
        ("[1, /* c */ 2,]", 1, "[1, /* c */ ]"),
        ("[1, /* c */ 2]", 0, "[ /* c */ 2]"),
        ("[\n  1,\n  2\n]", 0, "[\n  2\n]"),
        ("[\n  1,\n  2\n]", 1, "[\n  1\n]"),
        ("[\r\n  1,\r\n  2\r\n]", 1, "[\r\n  1\r\n]"),
        ("[\n  1, // one\n  2 // two\n]", 1, "[\n  1 // one // two\n]"),
        ("[\n  1, // one\n  2]", 1, "[\n  1 // one\n  ]"),
        ("[\n  1,\n  2]", 1, "[\n  1]"),
        ("[\n  1, // one\n  2,\n]", 1, "[\n  1, // one\n]"),
        ("[\n  1, // one\n  2\n]", 0, "[\n   // one\n  2\n]"),
        ("[1,\n  2\n]", 0, "[2\n]"),
        ("[\n  1,\n  2, // two\n]", 1, "[\n  1, // two\n]"),
    ],
)
def test_an_item_goes_with_its_comma_and_line(before: str, place: int, after: str) -> None:
    assert jsonc.remove(before, [place]) == after


@given(documents, st.data())
def test_removing_takes_nothing_else(document: Text, data: st.DataObject) -> None:
    text, value = document
    path: list[jsonc.Step] = []
    inner: Any = value
    while isinstance(inner, dict | list) and inner:
        places = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        path.append(data.draw(st.sampled_from(places)))
        inner, parent = inner[path[-1]], inner
        if data.draw(st.booleans()):
            break
    assume(path)
    new = jsonc.remove(text, path)
    del parent[path[-1]]
    assert jsonc.parse(new).value == value
    assert is_part(new, text)
    # Two comments to the end of the line may become one.
    assert is_part("".join(comments(new)), "".join(comments(text)))


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ('{"a": []}', True),
        ('{"a // b": ["/*"]}', True),
        ('{"a": /* c */ []}', False),
        ('{"a": [ // c\n]}', False),
        ('{"a": [] /* c */, "b": 1}', False),
        ('{"a": [], // c\n "b": 1}', True),
    ],
)
def test_what_carries_a_comment_is_not_bare(text: str, bare: bool) -> None:
    key = next(iter(jsonc.parse(text).value))
    assert jsonc.is_bare(text, [key]) is bare
