"""JSON with comments, edited as text: whatever an edit does not name stays as it is written.

Programs keep their settings in JSON, many of them with comments and trailing commas, and people
arrange those files by hand. So nothing here writes a document: the text is scanned into values that
know where they stand, and an edit inserts or cuts a span of it. What is inserted follows the line
breaks and the indentation around it; cutting what was inserted gives the text back.

Only what hosts read is accepted: JSON, ``//`` and ``/* */``, and a comma after the last item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Step = str | int
"""A member's key, or an item's position."""

DEFAULT_INDENT = "  "  # what the agent hosts write themselves

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*[\s\S]*?\*/)*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_SCALAR = re.compile(
    r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9.])"
)
_BLANK = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"(?:[ \t]*/\*(?:(?!\*/)[^\r\n])*\*/)*(?:[ \t]*//[^\r\n]*)?")
_LINE_END = re.compile(r"[ \t]*\r?\n")


class Malformed(ValueError):
    """The text is not what it should be; ``line`` and ``column`` count from 1."""

    def __init__(self, text: str, at: int, why: str) -> None:
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)
        super().__init__(f"line {self.line}, column {self.column}: {why}")


@dataclass(frozen=True, slots=True)
class Child:
    """A member or an item. ``start`` is that of its key, if it has one.

    ``comma`` is where the comma behind it stands, -1 where there is none.
    """

    key: str
    start: int
    node: Node
    comma: int


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the span ``text[start:end]`` that says it. Of equal keys the last one counts."""

    start: int
    end: int
    value: Any
    children: tuple[Child, ...] = ()


def parse(text: str) -> Node:
    """Return the value that ``text`` holds, and nothing beside it. Raises :class:`Malformed`."""
    try:
        start = _skip(text, 0)
        node = _value(text, start)
        end = _skip(text, node.end)
    except RecursionError:
        raise Malformed(text, 0, "it is nested too deep") from None
    if end < len(text):
        raise Malformed(text, end, "something follows the end of the document")
    return node


def append(text: str, path: Sequence[str], item: object) -> str:
    """Return ``text`` with ``item`` as the last of the array at ``path``.

    Objects and the array that are missing on the way are made.

    Raises :class:`Malformed`, also where something else stands in their place.
    """
    root = parse(text)
    node, missing = _walk(text, root, path)
    if not missing:
        if not isinstance(node.value, list):
            raise Malformed(text, node.start, f"{'.'.join(path)} is not an array")
        return _insert(text, root, node, "", item)
    made: object = [item]
    for name in reversed(missing[1:]):
        made = {name: made}
    return _insert(text, root, node, missing[0], made)


def set_missing(text: str, key: str, value: object) -> str:
    """Return ``text`` with the member ``key`` of the document, unless it has one already.

    Raises :class:`Malformed`.
    """
    root = parse(text)
    node, missing = _walk(text, root, [key])
    return _insert(text, root, node, key, value) if missing else text


def is_bare(text: str, path: Sequence[Step]) -> bool:
    """Whether nobody would miss what is at ``path``, which must be there, but for its values.

    That is so where no comment stands in what :func:`remove` would take away.
    """
    node = parse(text)
    for step in path[:-1]:
        node = node.children[_position(node, step)].node
    child = node.children[_position(node, path[-1])]
    return "/" not in _STRING.sub("", text[child.start : max(child.comma, child.node.end)])


def remove(text: str, path: Sequence[Step]) -> str:
    """Return ``text`` without the member or item at ``path``, which must be there."""
    node = parse(text)
    for step in path[:-1]:
        node = node.children[_position(node, step)].node
    return _cut(text, node, _position(node, path[-1]))


# --- scanning -----------------------------------------------------------------------------------


def _skip(text: str, at: int) -> int:
    match = _TRIVIA.match(text, at)
    assert match is not None  # it matches nothing too
    return match.end()


def _value(text: str, at: int) -> Node:
    opening = text[at : at + 1]
    if opening == "{":
        children = _children(text, at + 1, "}", keys=True)
        found = {child.key: child.node.value for child in children[0]}
        return Node(at, children[1], found, children[0])
    if opening == "[":
        children = _children(text, at + 1, "]", keys=False)
        return Node(at, children[1], [each.node.value for each in children[0]], children[0])
    if opening == '"':
        value, end = _string(text, at)
        return Node(at, end, value)
    match = _SCALAR.match(text, at)
    if match is None:
        raise Malformed(text, at, "a value is missing")
    # How many digits a number has is not our business; int() would refuse more than 4,300.
    return Node(at, match.end(), json.loads(match[0], parse_int=float))


def _children(text: str, at: int, closing: str, *, keys: bool) -> tuple[tuple[Child, ...], int]:
    """Return what stands before ``closing``, and where that ends."""
    found: list[Child] = []
    at = _skip(text, at)
    while not text.startswith(closing, at):
        start, key = at, ""
        if keys:
            key, end = _string(text, at)
            colon = _skip(text, end)
            if not text.startswith(":", colon):
                raise Malformed(text, colon, "a colon is missing")
            at = _skip(text, colon + 1)
        node = _value(text, at)
        at = _skip(text, node.end)
        comma = at if text.startswith(",", at) else -1
        found.append(Child(key, start, node, comma))
        if comma >= 0:
            at = _skip(text, at + 1)
        elif not text.startswith(closing, at):
            raise Malformed(text, at, f"a comma or {closing} is missing")
    return tuple(found), at + 1


def _string(text: str, at: int) -> tuple[str, int]:
    match = _STRING.match(text, at)
    if match is None:
        raise Malformed(text, at, "a string in double quotes is missing")
    try:
        return json.loads(match[0]), match.end()
    except ValueError:
        raise Malformed(text, at, "a string holds an escape that JSON does not know") from None


def _walk(text: str, root: Node, path: Sequence[str]) -> tuple[Node, Sequence[str]]:
    """Follow ``path`` as far as it exists; return where that is, and what is missing of it."""
    node = root
    for depth, name in enumerate(path):
        if not isinstance(node.value, dict):
            what = ".".join(path[:depth]) or "the document"
            raise Malformed(text, node.start, f"{what} is not an object")
        if name not in node.value:
            return node, path[depth:]
        node = node.children[_position(node, name)].node
    return node, ()


def _position(node: Node, step: Step) -> int:
    if isinstance(step, int):
        return step
    return max(place for place, child in enumerate(node.children) if child.key == step)


# --- inserting ----------------------------------------------------------------------------------


def _insert(text: str, root: Node, node: Node, key: str, value: object) -> str:
    """Return ``text`` with one more child at the end of ``node``, an object or an array."""
    name = f"{_said(key)}: " if isinstance(node.value, dict) else ""
    newline = "\r\n" if text.find("\n") == text.find("\r\n") + 1 > 0 else "\n"
    unit = _unit(text, root)
    base = _indent_at(text, node.start)
    if not node.children:
        inside = text[node.start + 1 : node.end - 1]
        at = node.end - 1
        said = f"{base}{unit}{name}{_laid_out(value, unit, base + unit, newline)}{newline}"
        if "\n" in inside and not inside[inside.rindex("\n") :].strip():
            at = node.start + 1 + inside.rindex("\n") + 1  # the closing bracket has its own line
            return text[:at] + said + text[at:]
        return text[:at] + newline + said + base + text[at:]
    last = node.children[-1]
    indent = _line_before(text, last.start)
    if indent is None:
        said = f" {name}{_said(value)}"
    else:
        said = f"{newline}{indent}{name}{_laid_out(value, unit, indent, newline)}"
    end = last.comma + 1 if last.comma >= 0 else last.node.end
    # A comment behind the last child stays with it; behind a whole line of them it ends the line.
    at = end if indent is None else _after_comments(text, end)
    if last.comma >= 0:  # whoever ends lists with a comma wants it there
        return text[:at] + said + "," + text[at:]
    return text[:end] + "," + text[end:at] + said + text[at:]


def _said(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _laid_out(value: object, unit: str, indent: str, newline: str) -> str:
    """Return ``value`` over several lines, the first of which stands at ``indent``."""
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return (newline + indent).join(lines)


def _unit(text: str, root: Node) -> str:
    """Return the white space by which the document's own members are indented."""
    indent = _line_before(text, root.children[0].start) if root.children else None
    return indent or DEFAULT_INDENT


def _line_before(text: str, at: int) -> str | None:
    """Return the white space between the line's start and ``at``, None where more stands there."""
    start = text.rfind("\n", 0, at) + 1
    before = text[start:at]
    return before if start and not before.strip(" \t") else None


def _indent_at(text: str, at: int) -> str:
    """Return the white space that the line of ``at`` starts with."""
    match = _BLANK.match(text, text.rfind("\n", 0, at) + 1)
    assert match is not None
    return match[0]


def _after_comments(text: str, at: int) -> int:
    """Return where the comments end that stand behind ``at`` on its line."""
    match = _REST_OF_LINE.match(text, at)
    assert match is not None
    return match.end()


# --- cutting ------------------------------------------------------------------------------------


def _cut(text: str, node: Node, position: int) -> str:
    """Return ``text`` without one child of ``node``, its comma, and the line it leaves empty."""
    child = node.children[position]
    start, end = child.start, child.comma + 1 if child.comma >= 0 else child.node.end
    around = text[node.start + 1 : start] + text[end : node.end - 1]
    if len(node.children) == 1 and not around.strip():
        return text[: node.start + 1] + text[node.end - 1 :]
    own_line = _line_before(text, start)
    if position and position + 1 == len(node.children):
        return _cut_last(text, node.children[position - 1].comma, child, own_line)
    line_end = _LINE_END.match(text, end)
    if own_line is not None and line_end:
        return text[: start - len(own_line)] + text[line_end.end() :]
    if position + 1 < len(node.children):
        following = node.children[position + 1].start
        end = following if not text[end:following].strip() else end
    return text[:start] + text[end:]


def _cut_last(text: str, comma: int, child: Child, own_line: str | None) -> str:
    """Return ``text`` without the last child; the comma before it stays if one was behind it."""
    start, end = child.start, child.comma + 1 if child.comma >= 0 else child.node.end
    # The closing bracket must not slip into a comment at the end of the line before.
    joins = "//" not in text[comma + 1 : start] or _LINE_END.match(text, _after_comments(text, end))
    if own_line is not None and joins:
        start -= len(own_line) + 1
        start -= text[start - 1] == "\r"
    elif not text[comma + 1 : start].strip():
        start = comma + 1
    kept = comma + 1 if child.comma >= 0 else comma
    return text[:kept] + text[comma + 1 : start] + text[end:]
