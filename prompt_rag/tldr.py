"""The TL;DR that opens a note, in the spellings people use.

A heading of any level (``## TL;DR``, ``TLDR:``, ``tl;dr``, ``TL；DR``, ``1. TL;DR (short)``), a
paragraph that begins with the label (``**TL;DR:** text``, ``TL;DR - text``, or the label alone
above what it means), a quote that does, or a callout (``> [!tldr]``, ``[!summary]``,
``[!abstract]``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from prompt_rag.domain import Block

# A few lines on context may come first; what is further down sums up something else.
_FIRST_HEADINGS = 5

_LABEL = r"[tｔ][lｌ]\s*[;；\u037e:：,，、./／_\-‐-―]?\s*[dｄ][rｒ](?![^\W_])"
_HEADING = re.compile(
    rf"[^\w]*(?:\d{{1,2}}[.)]\s*)?{_LABEL}\s*"
    r"(?:(?:\([^()]*\))?[\W_]*|[:：\-‐-―|/]\s*(?P<rest>.+))",
    re.IGNORECASE | re.DOTALL,
)
_PARAGRAPH = re.compile(
    rf"(?P<open>[*_]{{1,3}})?{_LABEL}[ \t]*(?P<colon>[:：\-‐-―])?[ \t]*(?P<close>[*_]{{1,3}})?"
    r"[ \t]*(?P<after>[:：\-‐-―])?(?P<space>\s*)",
    re.IGNORECASE,
)
_CALLOUT = re.compile(
    r">\s*\[!(?:tl;?dr|summary|abstract)\][+-]?[ \t]*(?P<title>[^\n]*)", re.IGNORECASE
)
_QUOTE_MARK = re.compile(r"^ {0,3}> ?", re.MULTILINE)
_EMPTY_TITLE = re.compile(rf"(?:{_LABEL}|summary|abstract)?\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TlDr:
    """A note's TL;DR.

    ``blocks`` are what it says, without the label; ``used`` are the positions of the note's blocks
    it was made from, the label's among them.
    """

    blocks: tuple[Block, ...]
    used: frozenset[int]


def find(blocks: Sequence[Block]) -> TlDr | None:
    """Return the first TL;DR with text that opens the note, None where there is none.

    It opens the note if it stands under one of the first headings and under no heading that has
    others beside it: a TL;DR below one of several sections sums up that section.
    """
    for index in _openings(blocks):
        block = blocks[index]
        found = None
        if block.kind == "heading":
            found = _section(blocks, index)
        elif block.kind == "quote":
            found = _quote(blocks, index)
        elif block.kind == "paragraph":
            found = _after_label(blocks, index, block)
        if found is not None and any(each.text.strip() for each in found.blocks):
            return found
    return None


def is_label(heading: str) -> bool:
    """Whether a heading's plain words are a TL;DR's label."""
    return _HEADING.fullmatch(heading) is not None


def _openings(blocks: Sequence[Block]) -> Iterator[int]:
    """Yield the positions at which a TL;DR would open the note."""
    sections = Counter(b.level for b in blocks if b.kind == "heading" and not is_label(b.text))
    above: list[int] = []
    headings = 0
    for index, block in enumerate(blocks):
        if block.kind == "heading":
            headings += 1
            if headings > _FIRST_HEADINGS:
                return
            above = [level for level in above if level < block.level]
        if all(sum(sections[other] for other in range(level + 1)) == 1 for level in above):
            yield index
        if block.kind == "heading" and not is_label(block.text):
            above.append(block.level)


def _section(blocks: Sequence[Block], index: int) -> TlDr | None:
    """Read the blocks from the heading at ``index`` to the next heading."""
    heading = _HEADING.fullmatch(blocks[index].text)
    if heading is None:
        return None
    end = index + 1
    while end < len(blocks) and blocks[end].kind != "heading":
        end += 1
    said = [block for block in blocks[index + 1 : end] if block.kind != "rule"]
    if heading["rest"]:
        said.insert(0, Block("paragraph", heading["rest"], blocks[index].line))
    return TlDr(tuple(said), frozenset(range(index, end)))


def _quote(blocks: Sequence[Block], index: int) -> TlDr | None:
    """Read a callout, or a quote that begins with the label."""
    block = blocks[index]
    callout = _CALLOUT.match(block.text)
    if callout is None:
        text = _QUOTE_MARK.sub("", block.text)
        return _after_label(blocks, index, replace(block, kind="paragraph", text=text))
    title = "" if _EMPTY_TITLE.fullmatch(callout["title"]) else callout["title"].strip()
    text = _QUOTE_MARK.sub("", block.text[callout.end() :]).strip()
    said = replace(block, kind="paragraph", text="\n".join(filter(None, (title, text))))
    return TlDr((said,), frozenset({index}))


def _after_label(blocks: Sequence[Block], index: int, block: Block) -> TlDr | None:
    """Read what stands behind the label a paragraph begins with."""
    label = _PARAGRAPH.match(block.text)
    if label is None:
        return None
    rest = block.text[label.end() :].strip()
    emphasised = label["open"] and label["close"]
    parted = label["colon"] or label["after"] or "\n" in label["space"] or not rest
    if not emphasised and not parted:
        return None
    if label["open"] and not label["close"]:  # the marks close behind the text
        rest = rest.removesuffix(label["open"])
    said = [replace(block, text=rest)] if rest else []
    used = {index}
    following = blocks[index + 1] if index + 1 < len(blocks) else None
    goes_on = not rest or (rest.endswith((":", "：")) and following and following.kind == "list")
    if goes_on and following is not None and following.kind not in {"heading", "rule"}:
        said.append(following)
        used.add(index + 1)
    return TlDr(tuple(said), frozenset(used))
