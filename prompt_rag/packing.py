"""Filling passages: units of text go in whole while they fit and are taken apart where one cannot.

A unit is a block at first. One that is too long for a passage of its own becomes its sentences,
lines, items or rows, those become parts cut between words or, at the very last, graphemes. Fences
and tables that had to be cut open and close again in each part.

Counting tokens is the expensive step. How many units fit is guessed from their bytes at the rate
of the last count, then counted, so that a passage costs one to three counts however long it is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from prompt_rag import segments
from prompt_rag.domain import Block, BlockKind

# English prose has about four bytes a token in WordPiece and BPE vocabularies alike; only the
# first guess depends on it.
_FIRST_RATE = 0.25
# WordPiece makes one unknown token of a word it cannot read, be it a megabyte long. No prose and no
# code has this many bytes a token, white space included, so only such words are held back by it.
_MOST_BYTES = 16
# A guess that fills this much of the room is not improved upon: another count costs more than the
# words are worth.
_FULL_ENOUGH = 0.85

_PROSE: frozenset[BlockKind] = frozenset({"paragraph", "list", "quote", "html"})
_PADDING = re.compile(r" {2,}|-{4,}")
# A frame with more than this share of the tokens is not worth repeating.
_FRAME_SHARE = 4  # one in four
_FENCE_MARK = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Frame:
    """What opens and closes each part of a fence or a table that was cut."""

    head: str
    tail: str


@dataclass(frozen=True, slots=True)
class Unit:
    """A stretch of text that is not cut while it fits; ``glue`` joins it to the one before."""

    text: str
    kind: BlockKind
    words: int
    size: int  # bytes in UTF-8
    glue: str = "\n\n"
    frame: Frame | None = None
    is_block: bool = True

    @classmethod
    def of(cls, block: Block) -> Unit:
        """Return a block as a unit; a heading gets its marks back, a table loses its padding."""
        text = block.text
        if block.kind == "heading":
            text = f"{'#' * block.level} {text}"
        elif block.kind == "table":  # aligned columns may be mostly padding
            text = _PADDING.sub(lambda run: "---" if run[0][0] == "-" else " ", text)
        return cls(text, block.kind, segments.word_count(text), _size(text))


@dataclass(frozen=True, slots=True)
class Words:
    """Bounds of a text in words: no fewer if that can be helped, no more, and repeated of it."""

    least: int
    most: int
    overlap: int


class Meter:
    """Counts tokens and remembers how many a byte made, so as to guess without counting."""

    def __init__(self, count_tokens: Callable[[str], int], max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._count_tokens = count_tokens
        self._rate = _FIRST_RATE

    def count(self, text: str) -> int:
        """Return the tokens of ``text``, no fewer than its bytes must stand for."""
        size = _size(text)
        tokens = max(self._count_tokens(text), size // _MOST_BYTES)
        self._rate = max(tokens, 1) / max(size, 1)
        return tokens

    @property
    def room(self) -> int:
        """Bytes that would make ``max_tokens`` at the rate of the last count."""
        return max(1, int(self.max_tokens / self._rate))


def joined(units: Iterable[Unit]) -> str:
    """Return the units as one text; a run of one frame is opened and closed once."""
    parts: list[str] = []
    frame: Frame | None = None
    for unit in units:
        if unit.frame is not frame and frame is not None:
            parts.append(frame.tail)
        if parts:
            parts.append(unit.glue if unit.frame is None or unit.frame is frame else "\n\n")
        if unit.frame is not frame and unit.frame is not None:
            parts.append(unit.frame.head)
        frame = unit.frame
        parts.append(unit.text)
    if frame is not None:
        parts.append(frame.tail)
    return "".join(parts).strip("\n").rstrip()


def packed(
    units: Sequence[Unit],
    front: Callable[[], str],
    words: Words,
    meter: Meter,
) -> Iterator[str]:
    """Yield texts that hold all of ``units`` in order, each a passage's body.

    ``front`` is asked before each for what will be embedded in front of it. A text has at most
    ``words.most`` words and together with its front at most the meter's tokens, unless a single
    grapheme has more. A text that goes on where prose was cut begins with the last sentences of the
    one before, up to ``words.overlap``, or with as many words of a longer sentence.
    """
    packer = _Packer(units, words, meter)
    while packer.queue:
        taken = packer.take(front())
        text = joined((*packer.carry, *taken))
        if text.strip():
            yield text
        packer.carry = []
        if packer.queue and packer.queue[0].kind != "heading":
            packer.carry = _overlap(taken, words.overlap, meter)


class _Packer:
    def __init__(self, units: Sequence[Unit], words: Words, meter: Meter) -> None:
        self.queue = deque(units)
        self.carry: list[Unit] = []
        self._front = ""
        self._words = words
        self._meter = meter

    def take(self, front: str) -> list[Unit]:
        """Take the units of the next text off the queue, at least one."""
        self._front = front
        while True:
            count = self._fitting()
            if count == 0 and self.carry:
                self.carry = []
            elif count == 0:
                if not self._explode(0):
                    return [self.queue.popleft()]
            elif not (self._is_poor(count) and self._explode(count)):
                break
        while count > 1 and self._leaves_crumbs(count):
            count -= 1
        # A heading leads what follows, unless headings are all there is.
        lead = count
        while 0 < lead < len(self.queue) and self.queue[lead - 1].kind == "heading":
            lead -= 1
        return [self.queue.popleft() for _ in range(lead or count)]

    def _explode(self, index: int) -> bool:
        """Replace the unit at ``index`` by its parts, if it has any."""
        parts = _parts(self.queue[index], self._meter)
        if len(parts) == 1:
            return False
        self.queue.rotate(-index)
        self.queue.popleft()
        self.queue.extendleft(reversed(parts))
        self.queue.rotate(index)
        return True

    def _is_poor(self, count: int) -> bool:
        """Whether the text would be less than half full and the next unit may be cut to fill it."""
        if count == len(self.queue):
            return False
        following = self.queue[count]
        units = [*self.carry, *islice(self.queue, count)]
        if 2 * _words(units) > self._words.most:
            return False
        if 2 * (_size(self._front) + _total(units)) > self._meter.room:
            return False
        if not following.is_block or following.kind == "heading":
            return False
        # A fence or a table is cut only if it does not fit a text of its own.
        return following.kind in _PROSE or not self._fits([following])

    def _leaves_crumbs(self, count: int) -> bool:
        """Whether the next text would be too short, nothing repeated in it, and this one not."""
        last = self.queue[count - 1]
        if count == len(self.queue) or last.kind in _PROSE:
            return False
        if _words(islice(self.queue, count - 1)) < self._words.least:
            return False
        left = 0
        for unit in islice(self.queue, count, None):
            left += unit.words
            if left >= self._words.least:
                return False
        return True

    def _fits(self, units: Sequence[Unit]) -> bool:
        if _words(units) > self._words.most:
            return False
        return self._tokens(units) <= self._meter.max_tokens

    def _tokens(self, units: Iterable[Unit]) -> int:
        return self._meter.count(f"{self._front}\n\n{joined(units)}")

    def _fitting(self) -> int:
        """Return how many units of the queue fit behind the carried ones."""
        sizes = self._window()
        fits, too_many = 0, len(sizes) + 1
        while too_many - fits > 1:
            guess = bisect_right(sizes, self._meter.room)
            # Where the rate is no guide, half the way is.
            count = guess if fits < guess < too_many else (fits + too_many) // 2
            tokens = self._tokens((*self.carry, *islice(self.queue, count)))
            if tokens > self._meter.max_tokens:
                too_many = count
                continue
            fits = count
            full = tokens >= _FULL_ENOUGH * self._meter.max_tokens
            if full or bisect_right(sizes, self._meter.room) <= fits:
                break
        return fits

    def _window(self) -> list[int]:
        """Return the bytes of the text with the first 1, 2, … units that may fit by their words."""
        words = _words(self.carry)
        size = _size(self._front) + _total(self.carry)
        sizes: list[int] = []
        for unit in self.queue:
            words += unit.words
            # Twice the guessed room is more than any later guess of this text will ask for.
            if words > self._words.most or (sizes and size > 2 * self._meter.room):
                break
            size += unit.size + len(unit.glue)
            sizes.append(size)
        return sizes


def _overlap(taken: Sequence[Unit], overlap_words: int, meter: Meter) -> list[Unit]:
    """Return the end of a text that the next one repeats: whole sentences or lines of prose."""
    carried: list[Unit] = []
    left = overlap_words
    waiting = list(taken)
    while waiting and left > 0:
        unit = waiting.pop()
        if unit.kind not in _PROSE or "```" in unit.text or "~~~" in unit.text:
            break
        if unit.words <= left:
            carried.insert(0, unit)
            left -= unit.words
        elif unit.is_block and len(parts := _at_ends(unit, meter)) > 1:
            waiting += parts
        elif carried:
            break
        else:
            text = segments.last_words(unit.text, left)
            carried.append(replace(unit, text=text, words=left, size=_size(text), is_block=False))
            break
    return carried


def _parts(unit: Unit, meter: Meter) -> list[Unit]:
    """Take a unit apart at the best places it has; itself alone where it is one grapheme."""
    parts = _at_ends(unit, meter)
    return parts if len(parts) > 1 else _cut(unit, meter.room)


def _at_ends(unit: Unit, meter: Meter) -> list[Unit]:
    """Take a unit apart behind its lines, items, rows or sentences."""
    if unit.kind in {"fence", "table"}:
        return _framed(unit, meter) if unit.is_block else [unit]
    if unit.kind in {"list", "quote", "html"}:
        for lines in (_line_groups(unit.text), unit.text.split("\n")):
            if len(lines) > 1:
                return _made(unit, lines, "\n")
    return _made(unit, segments.sentences(unit.text), "")


def _made(unit: Unit, texts: Sequence[str], glue: str, frame: Frame | None = None) -> list[Unit]:
    """Return ``texts``, the parts of ``unit``, as units."""
    return [
        replace(
            unit,
            text=text,
            words=segments.word_count(text),
            size=_size(text),
            glue=glue if index else unit.glue,
            frame=frame or unit.frame,
            is_block=False,
        )
        for index, text in enumerate(texts)
    ]


def _framed(unit: Unit, meter: Meter) -> list[Unit]:
    """Return the lines of a fence or the rows of a table, framed by what all of them need."""
    lines = unit.text.split("\n")
    head_lines, tail = 2, ""  # a table's names and the row of dashes
    if unit.kind == "fence":
        mark = _FENCE_MARK.match(lines[0])
        if mark is None:  # indented code
            return _made(unit, lines, "\n")
        head_lines = 1
        closed = len(lines) > 1 and lines[-1].strip().startswith(mark[1])
        tail = "\n" + (lines.pop() if closed else mark[1])
    head, body = lines[:head_lines], lines[head_lines:]
    frame = Frame("\n".join(head) + "\n", tail)
    if not body or _FRAME_SHARE * meter.count(frame.head + frame.tail) > meter.max_tokens:
        return _made(unit, unit.text.split("\n"), "\n")
    return _made(unit, body, "\n", frame)


def _line_groups(text: str) -> list[str]:
    """Split a list or a quote into lines, but leave a fence inside of it in one part."""
    groups: list[list[str]] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE_MARK.match(line)
        if fence:
            groups[-1].append(line)
            if mark and mark[1].startswith(fence) and line.strip(" \t>") == mark[1]:
                fence = ""
        else:
            groups.append([line])
            fence = mark[1] if mark is not None else ""
    return ["\n".join(group) for group in groups]


def _cut(unit: Unit, room: int) -> list[Unit]:
    """Cut a text that has no better places, into quarters of a passage or else in two."""
    length = len(unit.text)
    quarter = max(1, room // 4)  # bytes, so no more characters than that
    texts = segments.cut(unit.text, quarter if quarter < length else max(1, length // 2))
    if len(texts) < 2:
        return [unit]
    parts = _made(unit, texts, "")
    at = 0
    for index, text in enumerate(texts):
        begin = unit.text.index(text, at)
        if index:
            parts[index] = replace(parts[index], glue=unit.text[at:begin])
        at = begin + len(text)
    return parts


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _total(units: Iterable[Unit]) -> int:
    return sum(unit.size + len(unit.glue) for unit in units)


def _words(units: Iterable[Unit]) -> int:
    return sum(unit.words for unit in units)
