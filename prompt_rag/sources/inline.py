"""What stands inside a line of a note: comments, wiki links, images and tags.

A single walk from left to right over the text of one paragraph, heading or table row. It never
looks at a character more than a few times, whatever the text, so that a megabyte of brackets
costs no more than a megabyte of prose.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_MARK = re.compile(r"[\\`<!\[#%]")
_TICKS = re.compile(r"`+")
_WIKI = re.compile(r"!?\[\[([^\[\]\n|]{1,1000})(?:\|([^\[\]\n]{0,1000}))?\]\]")
_IMAGE = re.compile(
    r"""!\[ (?P<alt> (?: [^\[\]\\] | \\. | \[[^\[\]]*+\] )*+ ) \]
    (?: \( \s*+
          (?: <[^<>\n]*+> | (?: [^\s()\\] | \\. | \([^\s()]*+\) )*+ )
          (?: \s++ (?: "[^"]*+" | '[^']*+' ) )? \s*+
        \)
      | \[[^\[\]]*+\]
    )""",
    re.VERBOSE | re.DOTALL,
)
_HTML_IMAGE = re.compile(r"<img\b[^<>]*+>", re.IGNORECASE)
_HTML_MARK = re.compile(r"<!--|<img\b", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_SIZE = re.compile(r"\d+(?:x\d+)?")
# The image formats Obsidian embeds.
_PICTURES = (".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp")
# A tag ends at white space and at punctuation other than - _ and /; letters of any script and
# emoji are part of it. U+200D and U+FE0F hold emoji together and stay.
_TAG = re.compile(
    r"#([^\s!-,.:-@\[-^`{-~\u00a0-\u00bf\u2000-\u200c\u200e-\u206f"
    r"\u3000-\u3004\u3008-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]{1,100})"
)
# Bear closes a tag of several words with a second mark.
_SPACED_TAG = re.compile(r"#([^\s#][^#\n`\[\]<>\"]{0,98}[^\s#])#(?![\w#])")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters from ``start`` up to ``end`` by ``text``."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Reading:
    """What one text holds, by offset: what to replace, its tags, and comment marks left open."""

    edits: list[Edit] = field(default_factory=list)
    tags: list[tuple[int, str]] = field(default_factory=list)
    dangling: list[int] = field(default_factory=list)


def read(text: str) -> Reading:
    """Read the Markdown of one paragraph, heading or table row.

    HTML comments and ``%% comments %%`` are replaced by nothing, wiki links by their text, images
    by their alternative text; nothing inside a code span is touched. A ``%%`` alone on its line
    that finds no partner is dangling: the comment it opens or closes reaches beyond this text.
    """
    walk = _Walk(text)
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        at = walk.step(mark.group(), mark.start())
    return walk.reading


class _Walk:
    """One walk over a text; each method reads what begins at an offset and returns its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.reading = Reading()
        self._ticks: dict[int, list[int]] | None = None
        self._absent: set[str] = set()  # comment ends that do not follow any more

    def step(self, mark: str, begin: int) -> int:
        if mark == "`":
            return self._code(begin)
        if mark in "[!":
            return self._link(begin)
        if mark == "#" and (begin == 0 or self.text[begin - 1].isspace()):
            return self._tag(begin)
        if mark == "%" and self.text.startswith("%%", begin):
            return self._percent_comment(begin)
        if mark == "<":
            return self._angle(begin)
        return begin + (2 if mark == "\\" else 1)

    def _angle(self, begin: int) -> int:
        """Drop a comment, read an HTML image, pass over anything else."""
        if self.text.startswith("<!--", begin):
            # To CommonMark "<!-->" and "<!--->" are whole comments.
            short = self.text.startswith(("<!-->", "<!--->"), begin)
            return self._comment("-->", begin, begin + (2 if short else 4))
        image = _HTML_IMAGE.match(self.text, begin)
        if image is None:
            return begin + 1
        self.reading.edits.append(Edit(begin, image.end(), _alt(image[0])))
        return image.end()

    def _code(self, begin: int) -> int:
        """Pass over a code span, or over its backticks where none closes it."""
        if self._ticks is None:
            self._ticks = {}
            for run in _TICKS.finditer(self.text):
                self._ticks.setdefault(run.end() - run.start(), []).append(run.start())
        opener = _TICKS.match(self.text, begin)
        assert opener is not None  # there is one at ``begin``
        length = opener.end() - begin
        starts = self._ticks.get(length, [])  # none where a backslash takes the run's first
        closer = bisect_right(starts, begin)
        return starts[closer] + length if closer < len(starts) else opener.end()

    def _comment(self, mark: str, begin: int, search_from: int) -> int:
        """Drop what is between ``begin`` and the end of ``mark``, if it follows."""
        found = -1 if mark in self._absent else self.text.find(mark, search_from)
        if found < 0:
            self._absent.add(mark)
            return search_from
        end = found + len(mark)
        self.reading.edits.append(Edit(begin, end, ""))
        return end

    def _percent_comment(self, begin: int) -> int:
        if begin > 0 and self.text[begin - 1].isalnum():  # the "100%%" of a format
            return begin + 2
        end = self._comment("%%", begin, begin + 2)
        if end == begin + 2 and _alone(self.text, begin):
            self.reading.dangling.append(begin)
        return end

    def _link(self, begin: int) -> int:
        link = _WIKI.match(self.text, begin) or _IMAGE.match(self.text, begin)
        if link is None:
            return begin + 1
        self.reading.edits.append(Edit(begin, link.end(), _link_text(link)))
        return link.end()

    def _tag(self, begin: int) -> int:
        spaced = _SPACED_TAG.match(self.text, begin)
        if spaced is not None and any(char.isspace() for char in spaced[1]):
            self.reading.tags.append((begin, spaced[1].strip("/")))
            return spaced.end()
        plain = _TAG.match(self.text, begin)
        if plain is None:
            return begin + 1
        name = plain[1].strip("/")
        # "#123" is the number of an issue, "#-" is nothing.
        if any(not char.isdigit() and char not in "-_/" for char in name):
            self.reading.tags.append((begin, name))
        return plain.end()


def read_html(html: str) -> list[Edit]:
    """Return the edits for a block of HTML: comments go, one left open to the end; images too."""
    edits = []
    at = 0
    while (found := _HTML_MARK.search(html, at)) is not None:
        begin, at = found.span()
        if found[0] == "<!--":
            end = html.find("-->", begin + 2)  # "<!-->" is a whole comment
            at = len(html) if end < 0 else end + 3
            edits.append(Edit(begin, at, ""))
        elif image := _HTML_IMAGE.match(html, begin):
            at = image.end()
            edits.append(Edit(begin, at, _alt(image[0])))
    return edits


def _alt(tag: str) -> str:
    """Return the alternative text of an HTML image."""
    alt = _ALT.search(tag)
    return (alt[1] or alt[2] or "") if alt is not None else ""


def _alone(text: str, begin: int) -> bool:
    """Whether the two characters at ``begin`` are all there is on their line."""
    line_start = text.rfind("\n", 0, begin) + 1
    line_end = text.find("\n", begin)
    return text[line_start : len(text) if line_end < 0 else line_end].strip() == "%%"


def _link_text(link: re.Match[str]) -> str:
    """Return what a reader sees of a wiki link or an image."""
    if link.re is _IMAGE:
        alt, bar, size = link["alt"].rpartition("|")
        return alt if bar and _SIZE.fullmatch(size.strip()) else link["alt"]
    target, alias = link[1].rstrip("\\").strip(), (link[2] or "").strip()
    if link.group().startswith("!"):
        alias = "" if _SIZE.fullmatch(alias) else alias
        if target.lower().endswith(_PICTURES):
            return alias
    if alias:
        return alias
    page, *parts = (part.strip() for part in target.split("#"))
    return " > ".join(part for part in (page, *parts) if part and not part.startswith("^"))
