"""Cutting a note into passages: its TL;DR first, then its sections.

A pure function of the note, the limits and the token counter: equal notes make equal passages, so
that whatever did not change keeps its text's hash and is not embedded again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from prompt_rag import segments, tldr
from prompt_rag.domain import Block, Note, Passage, PassageKind, note_id
from prompt_rag.packing import Meter, Unit, Words, packed

CHUNKER_VERSION = 1
"""Raise it when the same note would be cut differently than before; the index is built anew."""

_TLDR = "TL;DR"  # heads what a TL;DR's own passage cannot hold

# Title and heading path may take this share of what the model reads; the text is the point.
_FRONT_SHARE = 4  # one in four


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a passage may be.

    ``min_words``: a section with fewer joins the one above it. Below about 30 words (two
    sentences) an embedding mostly says what the heading says.
    ``max_words``: a section with more is split; 300 words are about what an excerpt can show.
    ``overlap_words``: words a part repeats of the one before it, two or three sentences.
    ``max_tokens``: what the model reads of the embedded text, title and heading path included;
    256 is the limit of the bundled MiniLM.
    """

    min_words: int = 30
    max_words: int = 300
    overlap_words: int = 40
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage and ``embedded``, the text its vector is made of."""

    passage: Passage
    embedded: str


def version(tiers: Collection[PassageKind]) -> str:
    """Return what the passages of a note depend on: the rules here, and the tiers."""
    return f"{CHUNKER_VERSION}:{'+'.join(sorted(tiers))}"


def pieces(
    note: Note,
    limits: Limits,
    count_tokens: Callable[[str], int],
    tiers: Collection[PassageKind] = ("tldr", "section"),
) -> list[Piece]:
    """Cut ``note`` into passages, in reading order, the TL;DR's first.

    ``count_tokens`` is called a few times for each passage. A note without a TL;DR has its
    sections whatever the ``tiers``; without the tier "tldr" a TL;DR is a section like others. A
    note without text has one section that holds its title, and none if it has no title either.
    """
    cutter = _Cutter(note, limits, count_tokens)
    found = tldr.find(note.blocks) if "tldr" in tiers else None
    if found is not None:
        cutter.add_tldr([Unit.of(block) for block in found.blocks], alone="section" not in tiers)
    if found is None or "section" in tiers:
        used = found.used if found is not None else frozenset()
        for section in _sections(note.blocks, used, limits.min_words):
            cutter.add_section(section.path, section.units)
    if not cutter.pieces:
        cutter.add_title()
    return cutter.pieces


class _Cutter:
    """Collects the pieces of one note."""

    def __init__(self, note: Note, limits: Limits, count_tokens: Callable[[str], int]) -> None:
        self.pieces: list[Piece] = []
        self._note_id = note_id(note.source, note.key)
        self._limits = limits
        self._count_tokens = count_tokens
        self._meter = Meter(count_tokens, limits.max_tokens)
        self._title = " ".join(note.title.split())
        self._aliases = ", ".join(note.aliases)
        self._fronts: dict[tuple[tuple[str, ...], bool], str] = {}

    def add_tldr(self, units: Sequence[Unit], *, alone: bool) -> None:
        """Make the TL;DR one passage; unless ``alone``, what it cannot hold follows in sections."""
        for text in self._packed(units, lambda: self._front((_TLDR,) if self.pieces else ())):
            if not self.pieces:
                self._add("tldr", (), text)
            elif alone:
                break
            else:
                self._add("section", (_TLDR,), text)

    def add_section(self, path: tuple[str, ...], units: Sequence[Unit]) -> None:
        """Make one or more passages of a section's units."""
        for text in self._packed(units, lambda: self._front(path)):
            self._add("section", path, text)

    def add_title(self) -> None:
        """Make a note without text findable by its title, if it has one."""
        if self._title:
            self._add("section", (), "")

    def _packed(self, units: Sequence[Unit], front: Callable[[], str]) -> Iterator[str]:
        limits = self._limits
        words = Words(limits.min_words, limits.max_words, limits.overlap_words)
        return packed(units, front, words, self._meter)

    def _add(self, kind: PassageKind, path: tuple[str, ...], text: str) -> None:
        front = self._front(path)
        embedded = "\n\n".join(filter(None, (front, text)))
        ordinal = len(self.pieces)
        passage = Passage(
            id=f"{self._note_id}-{ordinal}",
            note_id=self._note_id,
            ordinal=ordinal,
            kind=kind,
            heading_path=path,
            text=text or self._title,
            text_hash=sha256(embedded.encode()).hexdigest(),
        )
        self.pieces.append(Piece(passage, embedded))

    def _front(self, path: tuple[str, ...]) -> str:
        """Return title and heading path as they are embedded; the first passage has the aliases."""
        key = (path, not self.pieces)
        if key not in self._fronts:
            aliases = self._aliases if not self.pieces else ""
            self._fronts[key] = self._trimmed_front(self._title, aliases, path)
        return self._fronts[key]

    def _trimmed_front(self, title: str, aliases: str, path: tuple[str, ...]) -> str:
        """Trim the parts until together they take at most their share of the tokens."""
        most = self._limits.max_tokens // _FRONT_SHARE
        chars = max(len(title), len(aliases), *map(len, path), 0)
        while chars > 0:
            named = _first(title, chars)
            also = _first(aliases, chars)
            # The innermost headings say most about the text; the outer ones go first.
            places = [_first(place, chars) for place in path]
            for outermost in range(len(places) + 1):
                under = " > ".join(places[outermost:])
                front = "\n".join(filter(None, (f"{named} ({also})" if also else named, under)))
                if self._count_tokens(front) <= most:
                    return front
            chars //= 2
        return ""


def _first(text: str, chars: int) -> str:
    return next(iter(segments.cut(text, chars)), "")


@dataclass(slots=True)
class _Node:
    """A heading and what stands under it; the note itself is the node of level 0."""

    path: tuple[str, ...]
    level: int
    line: int
    heading: list[Unit]
    units: list[Unit] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)


@dataclass(slots=True)
class _Section:
    """What becomes one passage or more; ``line`` is where it begins in the note."""

    path: tuple[str, ...]
    line: int
    heading: list[Unit]
    units: list[Unit]


def _sections(blocks: Sequence[Block], used: Collection[int], min_words: int) -> list[_Section]:
    """Return the note's sections in reading order, small ones merged; ``used`` blocks left out."""
    root = _tree(blocks, used)
    own, sections = _settled(root, min_words)
    if own:
        units = [unit for section in own for unit in section.units]
        sections.insert(0, _Section((), 0, [], units))
    return sections


def _tree(blocks: Sequence[Block], used: Collection[int]) -> _Node:
    root = _Node((), 0, 0, [])
    above = [root]
    for index, block in enumerate(blocks):
        if block.kind == "heading":
            while above[-1].level >= block.level:
                above.pop()
            if index in used:  # the TL;DR's: it ends the section before and begins none
                continue
            parent = above[-1]
            path = (*parent.path, block.text) if block.text else parent.path
            node = _Node(path, block.level, block.line, [Unit.of(block)])
            parent.children.append(node)
            above.append(node)
        elif index not in used and block.kind != "rule":
            above[-1].units.append(Unit.of(block))
    return root


def _settled(node: _Node, min_words: int) -> tuple[list[_Section], list[_Section]]:
    """Return what of a node joins one text, in parts, and the sections below it.

    A child with fewer than ``min_words`` joins the node. If the node with all that joined it is
    still too small, its parts join the sections below it: each the one it follows in the note, or
    the first if it follows none. Only a node without sections below is handed up as a whole.
    """
    own = [_Section(node.path, node.line, [], node.units)] if node.units else []
    below: list[_Section] = []
    for child in node.children:
        parts, sections = _settled(child, min_words)
        units = [unit for part in parts for unit in part.units]
        if _words(units) >= min_words:
            below.append(_Section(child.path, child.line, child.heading, units))
        elif units or not sections:
            own.append(_Section(child.path, child.line, [], [*child.heading, *units]))
        below += sections
    if below and _words([unit for part in own for unit in part.units]) < min_words:
        first = below[0]
        before = [unit for part in own if part.line < first.line for unit in part.units]
        if before:
            first.units = [*before, *first.heading, *first.units]
        for part in own:
            if part.line > first.line:
                last = next(s for s in reversed(below) if s.line < part.line)
                last.units = [*last.units, *part.units]
        own = []
    return own, below


def _words(units: Sequence[Unit]) -> int:
    return sum(unit.words for unit in units)
