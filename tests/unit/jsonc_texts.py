"""JSON with comments as people and programs write it, for properties: text and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Text = tuple[str, Any]
"""A piece of a document, and its value."""

GAPS = [
    "",
    " ",
    "\n",
    "\n  ",
    "\r\n\t",
    " // one, [two\n",
    '\n// "hooks": {\r\n',
    "/* a */",
    " /* b\n  c */ ",
    "/**/",
    "/*/ d, */",
]
gaps = st.sampled_from(GAPS) | st.just("\n  ") | st.just("")
numbers = st.sampled_from(["0", "-1", "12.5e-3", "1E+2"])
words = st.sampled_from(["true", "false", "null"])
strings = st.text(max_size=8).flatmap(
    lambda text: st.sampled_from([json.dumps(text), json.dumps(text, ensure_ascii=False)])
)
plain: st.SearchStrategy[Text] = (numbers | words | strings).map(
    lambda text: (text, json.loads(text, parse_int=float))
)
keys = st.sampled_from(["a", "b // c", 'd"', "hooks", "UserPromptSubmit", "é", "version"])


def joined(opening: str, closing: str, parts: Sequence[str], ends: str, comma: bool) -> str:
    trailing = "," + ends if comma and parts else ""
    return opening + ends + ",".join(parts) + trailing + closing


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[Text], least: int = 0) -> Text:
    found = draw(st.lists(items, min_size=least, max_size=3))
    parts = [draw(gaps) + text + draw(gaps) for text, _ in found]
    text = joined("[", "]", parts, draw(gaps), draw(st.booleans()))
    return text, [value for _, value in found]


@st.composite
def objects(
    draw: st.DrawFn,
    values: st.SearchStrategy[Text],
    names: st.SearchStrategy[str] = keys,
    most: int = 3,
) -> Text:
    found = draw(st.lists(st.tuples(names, values), max_size=most, unique_by=lambda each: each[0]))
    parts = [
        f"{draw(gaps)}{json.dumps(name)}{draw(gaps)}:{draw(gaps)}{text}{draw(gaps)}"
        for name, (text, _) in found
    ]
    text = joined("{", "}", parts, draw(gaps), draw(st.booleans()))
    return text, {name: value for name, (_, value) in found}


values: st.SearchStrategy[Text] = st.recursive(
    plain, lambda inner: arrays(inner) | objects(inner), max_leaves=8
)
groups = arrays(objects(values, st.sampled_from(["matcher", "type", "a"])))
hooks = objects(groups, st.sampled_from(["UserPromptSubmit", "PostToolUse", "Stop", "BeforeAgent"]))


@st.composite
def settings(draw: st.DrawFn) -> Text:
    """A settings file of a host, in which somebody else's hooks may be."""
    others = st.tuples(st.sampled_from(["a", "model", 'd"']), values)
    own = st.tuples(st.just("hooks"), hooks)
    found = draw(st.lists(others | own, max_size=4, unique_by=lambda each: each[0]))
    parts = [
        f"{draw(gaps)}{json.dumps(name)}{draw(gaps)}:{draw(gaps)}{text}{draw(gaps)}"
        for name, (text, _) in found
    ]
    text = joined("{", "}", parts, draw(gaps), draw(st.booleans()))
    return draw(gaps) + text + draw(gaps), {name: value for name, (_, value) in found}


documents = st.tuples(gaps, values, gaps).map(
    lambda parts: (parts[0] + parts[1][0] + parts[2], parts[1][1])
)

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*[\s\S]*?\*/')


def comments(text: str) -> list[str]:
    """Return the comments of a document in their order."""
    return [each for each in _TOKENS.findall(text) if not each.startswith('"')]


def is_part(old: str, new: str) -> bool:
    """Whether ``new`` is ``old`` with something put in between."""
    rest = iter(new)
    return all(letter in rest for letter in old)
