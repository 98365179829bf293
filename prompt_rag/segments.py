"""Where text may be cut: words, sentences and graphemes, in any script, in linear time.

Whoever needs less of a text asks here, so that no emoji family and no accented letter is ever
halved. Every pattern starts at one place per run of its characters and gives nothing back
(possessive), which keeps a line of a megabyte a matter of milliseconds.
"""

from __future__ import annotations

import regex  # type: ignore[import-untyped]  # it ships no types

# Scripts that put no space between words. An ideograph or a kana letter carries about a word's
# worth of meaning; a word of the South-East Asian scripts is about five letters long.
_EACH = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}"
_RUNS = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SPACED = rf"[[\p{{L}}\p{{N}}_]--[{_EACH}{_RUNS}]]"
_WORD = regex.compile(
    rf"[{_EACH}]\p{{M}}*+"
    rf"|[[{_RUNS}]--\p{{M}}](?:\p{{M}}*+[[{_RUNS}]--\p{{M}}]){{0,4}}+\p{{M}}*+"
    # One apostrophe, hyphen or stop inside keeps a word whole: don't, e-mail, 3.14, fsio.py.
    rf"|{_SPACED}(?:{_SPACED}|\p{{M}}|['’\-.](?={_SPACED}))*+",
    regex.V1,
)

# Characters that belong to the grapheme before them (UAX #29, rules GB9 and GB9a).
_JOINS = r"[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]"
_GRAPHEME = regex.compile(r"\X")
_SPACE = regex.compile(rf"(?<!\s)\s++(?!{_JOINS})")
_BLANK_LINE = regex.compile(rf"\n[^\S\n]*+\n\s*+(?!{_JOINS})")
_SENTENCE_END = regex.compile(
    rf"""
      (?<![.!?…]) [.!?…]++ ["'”’»)\]*_`]*+ (?=\s) \s++ (?!{_JOINS})   # a space must follow
    | (?<![。！？｡]) [。！？｡]++ [」』）〕】”’"]*+ (?!{_JOINS}) \s*+ (?!{_JOINS})
    | {_BLANK_LINE.pattern}
    """,
    regex.VERBOSE | regex.V1,
)
# A stop after one of these, or after a single letter or a number that opens a line, ends nothing.
# Common abbreviations of English and German prose; a missing one costs a cut at a poorer place.
_ABBREVIATION = regex.compile(
    r"""(?:(?<![\w.])(?:\p{L}|\p{L}\.\p{L}|vs|etc|cf|ca|approx|dr|mr|mrs|ms|prof|st|nr|fig|eq"""
    r"""|sec|vol|inc|ltd|jr|sr|bzw|usw|evtl|ggf|vgl|bspw|[eE]\.g|[iI]\.e)|(?:^|\n)\s*+\d{1,3})\.$""",
    regex.IGNORECASE,
)
_ABBREVIATION_REACH = 12  # characters before the stop that the pattern above may need


def word_count(text: str) -> int:
    """Return the number of words; each ideograph and each kana letter is one."""
    return sum(1 for _ in _WORD.finditer(text))


def last_words(text: str, count: int) -> str:
    """Return the end of ``text`` that holds its last ``count`` words, all of it if it has fewer."""
    if count <= 0:
        return ""
    starts = [match.start() for match in _WORD.finditer(text)]
    return text if len(starts) <= count else text[starts[-count] :]


def sentences(text: str) -> list[str]:
    """Split ``text`` behind its sentences; joined again the parts are ``text``.

    White space behind a sentence stays with it. A blank line ends a sentence, a line break does
    not.
    """
    parts: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        end = match.end()
        if end == len(text):
            break
        if _ends_nothing(text, match.start(), end):
            continue
        parts.append(text[start:end])
        start = end
    if start < len(text):
        parts.append(text[start:])
    return parts


def _ends_nothing(text: str, stop: int, following: int) -> bool:
    """Whether the stop at ``stop`` belongs to an abbreviation, or prose goes on in lower case."""
    if text[stop] != ".":
        return False
    if text[following : following + 1].islower():
        return True
    before = text[max(0, stop - _ABBREVIATION_REACH) : stop + 1]
    return _ABBREVIATION.search(before) is not None


def cut(text: str, max_chars: int) -> list[str]:
    """Cut ``text`` into parts of at most ``max_chars`` characters, without its outer white space.

    A part ends at the last paragraph or else sentence that ends in the second half of the room
    there is, else at the last word, else at the last grapheme. Only a grapheme that is itself
    longer than ``max_chars`` makes a longer part. Joined, the parts lack nothing but white space.

    Raises ValueError where ``max_chars`` is below 1.
    """
    if max_chars < 1:
        raise ValueError(f"max_chars must be at least 1, not {max_chars}")
    parts: list[str] = []
    position, end = _trim(text, 0, len(text))
    while end - position > max_chars:
        border = _border(text, position, max_chars)
        start, stop = _trim(text, position, border)
        parts.append(text[start:stop])
        position, end = _trim(text, border, end)
    if position < end:
        parts.append(text[position:end])
    return parts


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of ``text[start:end]`` without outer white space."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _border(text: str, start: int, room: int) -> int:
    """Return the best place to cut within ``room`` characters after ``start``."""
    limit = start + room
    half = start + room // 2
    # White space at the limit costs the part nothing, and the character behind it may join it.
    reach = limit + 2
    for pattern in (_BLANK_LINE, _SENTENCE_END):
        best = 0
        for match in pattern.finditer(text, half, reach):
            visible_end = match.start() + len(match.group().rstrip())
            if half < visible_end <= limit and not _ends_nothing(text, *match.span()):
                best = int(match.end())
        if best:
            return best
    best = 0
    for match in _SPACE.finditer(text, start, reach):
        if match.start() <= limit:
            best = int(match.end())
    return best or _grapheme_border(text, start, limit)


def _grapheme_border(text: str, start: int, limit: int) -> int:
    """Return the last grapheme border in ``(start, limit]``, or the end of the first grapheme."""
    # Two ASCII characters never share a grapheme (but for a line end of two, which is white
    # space), so the walk starts at the last such pair instead of at ``start``.
    border = start
    for at in range(limit, start, -1):
        if text[at - 1].isascii() and text[at].isascii():
            border = at
            break
    # A copy, because at a flag the pattern counts all regional indicators before it. Whether
    # there is a border at ``limit`` shows in the one character behind it.
    reach = limit + 1 - border
    ends = [int(found.end()) for found in _GRAPHEME.finditer(text[border : border + reach])]
    within = [end for end in ends if border + end <= limit]
    if within:
        return border + within[-1]
    if border > start:
        return border
    end = ends[0]
    while end == reach:  # the first grapheme may be longer than what was looked at
        reach *= 2
        found = _GRAPHEME.match(text[start : start + reach])
        assert found is not None
        end = int(found.end())
    return start + end
