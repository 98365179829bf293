"""The structure of a note: frontmatter, blocks and tags, read off the CommonMark token stream.

What is a heading, a fence or a list is the Markdown parser's word alone; only what stands inside
a paragraph, a heading or a table row is read here (:mod:`prompt_rag.sources.inline`), because the
parser does not say where in the note its inline tokens stand and may take quadratic time on them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from prompt_rag.domain import Block, BlockKind
from prompt_rag.sources import inline

# Deeper than any outline a person writes, and far from the interpreter's recursion limit: the
# parser takes about one frame a level. What is nested deeper is still in its block's text.
_MAX_NESTING = 100
# A "heading" longer than this is a paragraph that lost its line breaks.
_MAX_HEADING_CHARS = 500

_KINDS: dict[str, BlockKind] = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "fence": "fence",
    "code_block": "fence",
    "table_open": "table",
    "blockquote_open": "quote",
    "html_block": "html",
    "hr": "rule",
}
_SURROGATE = re.compile("[\0\ud800-\udfff]")
_LINK_DEFINITION = re.compile(r" {0,3}\[[^\]\[^][^\[\]]*\]:\s*\S+(?:\s+[\"'(].*)?\s*")
_INLINE_MARKS = re.compile(r"[\\`*_~\[\]<>&]")
_LEFT_BLANK = re.compile(r"\n(?:[ \t]*\n)+")
_BARE_MARKS = " \t\n>-*+0123456789.)"  # what is left of a list or a quote that held a comment


@dataclass(frozen=True, slots=True)
class Structure:
    """A note taken apart.

    ``frontmatter`` is the text between its marks, None where there is none. ``body`` is the rest
    from its first line that is not blank; the blocks' lines count in it. ``tags`` come in the
    order of their first use, without ``#`` and each once whatever its case.
    """

    frontmatter: str | None
    body: str
    blocks: tuple[Block, ...]
    tags: tuple[str, ...]


@dataclass(slots=True)
class _Span:
    """A top-level block before its text is put together; lines count in the whole text."""

    kind: BlockKind
    first: int
    after: int
    level: int = 0
    title: str = ""
    deepest: int = 0
    leaves: list[Token] = field(default_factory=list)


def parse(text: str, *, frontmatter: bool = True) -> Structure:
    """Take a note's Markdown apart. Never raises, whatever ``text`` holds.

    Blocks come in the note's order: CommonMark with tables and strikethrough. Dropped are HTML
    comments, ``%% comments %%``, link definitions, and blocks that held nothing else.
    With ``frontmatter`` false a leading ``---`` block is part of the body.
    """
    lines = normalised(text).split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    tokens: list[Token] = []
    parser = _parser(frontmatter=frontmatter)
    parser.block.parse("\n".join(lines), parser, {}, tokens)

    raw: str | None = None
    body_line = 0
    if tokens and tokens[0].type == "front_matter":
        raw = tokens[0].content
        body_line = _lines_of(tokens[0])[1]
        while body_line < len(lines) and not lines[body_line].strip():
            body_line += 1
    page = _Page(lines)
    spans = _spans(tokens)
    for span in spans:
        page.read(span)
    page.close_comments()
    blocks = [block for span in spans if (block := page.block(span, body_line)) is not None]
    return Structure(raw, "\n".join(lines[body_line:]), tuple(blocks), page.unique_tags())


def opening_title(blocks: tuple[Block, ...]) -> str:
    """Return the note's first heading if it is one of level one, else ""."""
    first = next((block for block in blocks if block.kind == "heading"), None)
    return first.text if first is not None and first.level == 1 else ""


def without_title(blocks: tuple[Block, ...], title: str) -> tuple[Block, ...]:
    """Return ``blocks`` without the level-one heading that repeats the note's title.

    Only the first heading counts: heading paths must not lead with the title, but a later section
    may well be named like the note.
    """
    for index, block in enumerate(blocks):
        if block.kind == "heading":
            same = block.level == 1 and block.text.casefold() == " ".join(title.split()).casefold()
            return blocks[:index] + blocks[index + 1 :] if same else blocks
    return blocks


def normalised(text: str) -> str:
    """Return ``text`` with one kind of line end and without a byte order mark.

    NUL and lone surrogates, which no file and no hash takes, become U+FFFD.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return _SURROGATE.sub("\ufffd", text)


@cache
def _parser(*, frontmatter: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    # A footnote of one word would count as a link definition and vanish; see _without_definitions.
    parser.disable("reference")
    return parser.use(front_matter_plugin) if frontmatter else parser


def _lines_of(token: Token) -> tuple[int, int]:
    """Return the first line of a block token and the line after its last."""
    assert token.map is not None  # the parser maps every token that opens a block
    return token.map[0], token.map[1]


def _spans(tokens: list[Token]) -> list[_Span]:
    """Group the token stream by its top-level blocks."""
    spans: list[_Span] = []
    in_cell = False
    for token in tokens:
        if token.level == 0 and token.type in _KINDS:
            first, after = _lines_of(token)
            level = int(token.tag[1]) if token.type == "heading_open" else 0
            spans.append(_Span(_KINDS[token.type], first, after, level))
        if token.type == "front_matter":
            continue
        span = spans[-1]
        span.deepest = max(span.deepest, token.level)
        in_cell = token.type in {"th_open", "td_open"} or (in_cell and token.type == "inline")
        # The cells of a row share one source line, so the row is read as a whole.
        if token.type in {"tr_open", "html_block"} or (token.type == "inline" and not in_cell):
            span.leaves.append(token)
    return spans


class _Page:
    """The lines of one text, and what is to be replaced in it."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        # One line break too many, so that every line ends inside the text.
        self.text = "\n".join(lines) + "\n"
        self.starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self.edits: list[inline.Edit] = []
        self.tags: list[tuple[int, str]] = []
        self.dangling: list[int] = []

    def read(self, span: _Span) -> None:
        """Read the leaves of a block: paragraphs, headings, table rows and HTML inside it."""
        if span.deepest >= _MAX_NESTING - 1:
            # The parser left out what is nested deeper; read the block as one text.
            self._read_text(self.text[self.starts[span.first] : self.starts[span.after]], span)
            return
        for leaf in span.leaves:
            first, after = _lines_of(leaf)
            if leaf.type == "html_block":
                begin = self.starts[first]
                for edit in inline.read_html(self.text[begin : self.starts[after] - 1]):
                    moved = inline.Edit(edit.start + begin, edit.end + begin, edit.text)
                    self.edits.append(moved)
            elif leaf.type == "tr_open":
                self._read_text(self.lines[first], span, first)
            else:
                self._read_text(leaf.content, span, first)

    def _read_text(self, content: str, span: _Span, first: int | None = None) -> None:
        """Read ``content``, whose lines are ends of the source's lines from ``first`` on."""
        line = span.first if first is None else first
        offsets: list[tuple[int, int]] = []  # where a line starts in ``content``, where in the text
        start = 0
        for number, part in enumerate(content.split("\n"), line):
            offsets.append((start, self._find(part, number)))
            start += len(part) + 1

        def to_text(offset: int) -> int:
            index = bisect_left(offsets, (offset + 1,)) - 1
            return offsets[index][1] + offset - offsets[index][0]

        reading = inline.read(content)
        self.edits.extend(
            # The end is exclusive and may stand on the line after: map the last character.
            inline.Edit(to_text(edit.start), to_text(edit.end - 1) + 1, edit.text)
            for edit in reading.edits
        )
        self.tags.extend((to_text(offset), tag) for offset, tag in reading.tags)
        self.dangling.extend(to_text(offset) for offset in reading.dangling)
        if span.kind == "heading":
            span.title = _plain(_edited(content, 0, len(content), reading.edits))

    def _find(self, part: str, number: int) -> int:
        """Return where in the text ``part``, the content of line ``number``, begins."""
        source = self.lines[min(number, len(self.lines) - 1)]
        begin = self.starts[min(number, len(self.lines) - 1)]
        # The parser strips marks before the content and, of a heading, behind it too; a tab in
        # front of it may have become spaces.
        visible = part.strip()
        column = source.rfind(visible)
        if column < 0:
            return begin
        return begin + column - (len(part) - len(part.lstrip()))

    def close_comments(self) -> None:
        """Drop what stands between two ``%%`` lines, whatever blocks that is."""
        begins = self.dangling[: len(self.dangling) // 2 * 2 : 2]
        stops = [end + 2 for end in self.dangling[1::2]]

        def hidden(at: int) -> bool:
            index = bisect_right(begins, at) - 1
            return index >= 0 and at < stops[index]

        self.edits = [edit for edit in self.edits if not hidden(edit.start)]
        self.edits += [inline.Edit(b, s, "") for b, s in zip(begins, stops, strict=True)]
        self.edits.sort(key=lambda edit: edit.start)
        self.tags = [(at, tag) for at, tag in self.tags if not hidden(at)]

    def block(self, span: _Span, body_line: int) -> Block | None:
        """Put a block's text together; None where nothing is left of it."""
        kind, level = span.kind, span.level
        begin, end = self.starts[span.first], self.starts[span.after]
        text = _edited(self.text, begin, end, self.edits)
        if kind == "heading":
            if not text.strip():  # inside a comment
                return None
            if len(span.title) <= _MAX_HEADING_CHARS:
                return Block("heading", span.title, span.first - body_line, level)
            kind, level = "paragraph", 0
        if kind == "paragraph":
            text = _without_definitions(_LEFT_BLANK.sub("\n", text.strip()))
        elif kind in {"list", "quote"} and text.strip(_BARE_MARKS) == "":
            text = ""
        # The indent of the first line carries meaning in indented code and in lists.
        text = text.strip("\n").rstrip() if kind in {"fence", "list"} else text.strip()
        return Block(kind, text, span.first - body_line, level) if text else None

    def unique_tags(self) -> tuple[str, ...]:
        """Return each tag once, as it was first spelled."""
        tags: dict[str, str] = {}
        for _, tag in sorted(self.tags):
            tags.setdefault(tag.casefold(), tag)
        return tuple(tags.values())


def _edited(text: str, begin: int, end: int, edits: list[inline.Edit]) -> str:
    """Return ``text[begin:end]`` with the edits that touch it; ``edits`` are in order."""
    index = bisect_left(edits, begin, key=lambda edit: edit.end)
    parts: list[str] = []
    at = begin
    while index < len(edits) and edits[index].start < end:
        edit = edits[index]
        parts += (text[at : max(at, edit.start)], edit.text)
        at = max(at, min(edit.end, end))
        index += 1
    parts.append(text[at:end])
    return "".join(parts)


def _plain(markdown: str) -> str:
    """Return the words of a heading without marks, on one line."""
    if len(markdown) > _MAX_HEADING_CHARS or not _INLINE_MARKS.search(markdown):
        return " ".join(markdown.split())
    words: list[str] = []
    for token in _parser(frontmatter=False).parseInline(markdown):
        for child in token.children or ():
            if child.type in {"text", "code_inline", "image"}:
                words.append(child.content)
            elif child.type in {"softbreak", "hardbreak"}:
                words.append(" ")
    return " ".join("".join(words).split())


def _without_definitions(paragraph: str) -> str:
    """Drop the link definitions a paragraph opens with; footnotes stay."""
    lines = paragraph.split("\n")
    kept = next((i for i, line in enumerate(lines) if not _LINK_DEFINITION.fullmatch(line)), None)
    return "" if kept is None else "\n".join(lines[kept:])
