"""Text to terms: what a prompt and a note can have literally in common.

Dense vectors are weakest where people are most precise: identifiers, product names, error codes.
Terms are case-folded, freed of accents and English inflections; words that say nothing about the
subject are no terms. A run of ideographs or kana counts as its overlapping pairs, because it has no
spaces to cut at.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

# Function words, and what people say to an agent whatever the subject is. IDF alone does not
# remove them: in a small collection of terse notes even "how" is rare.
_STOP = frozenset(
    """
    a about after again all also am an and another any anyone are as at be because been before
    being between both but by can cannot cause could did do does doing done down each either
    else even ever every few for from get gets getting give go goes going got had has have
    having he hello help her here hers hey hi him his how i if in instead into is it its
    itself just keep know last let lets like look looking made make makes may maybe me might
    mine more most much must my need needs never next no nor not nothing now of off old on
    once one only onto or other our out over own please put quite really right same say see
    seem seems set shall she should show since so some somehow someone something sometimes
    somewhere still such sure take tell than that the their them then there these they thing
    things think this those though through time to today too try trying two under until up us
    use used using very via want wants was way we well went were what when where which while
    who whole whom why will with without wont work working works would yes yet you your yours
    ain aren couldn didn doesn don hadn hasn haven isn ll mustn re shan shouldn ve wasn weren
    won wouldn der die das und oder ein eine einen ist sind war wie wo wann warum ich du er
    sie es wir ihr mit von zu den dem des auf für im nicht auch noch nur aber wenn dass bei
    aus nach le la les un une et ou est sont comment quoi dans pour pas avec sur que qui el
    los las una uno y o son como para con por de en se
    """.split()  # noqa: SIM905  words read more easily than a list of strings
)
_WORD = re.compile(r"[^\W_]+")
# Hiragana, Katakana, Hangul and the ideographs: scripts that are written without spaces, or whose
# words carry their particles.
_SPACELESS = re.compile(r"[぀-ヿ㐀-鿿가-힯豈-﫿]+")
_LONGEST_TERM = 40  # a longer run of letters is a key, a hash or base64, and nobody types it


@functools.cache
def _stemmer() -> Any:
    from py_rust_stemmers import SnowballStemmer  # needed once a process has text to look at

    return SnowballStemmer("english")


def words(text: str) -> list[tuple[str, str]]:
    """Return ``(word, term)`` for each word of ``text`` that says something, in reading order.

    ``word`` is as it stands in the text, ``term`` is what it is compared by.
    """
    found: list[tuple[str, str]] = []
    for word in _WORD.findall(text):
        found += _said(word)
    return found


def _read(word: str) -> tuple[tuple[str, str], ...]:
    """Return ``(word, term)`` for what one run of letters and digits says: mostly one, or none."""
    if _SPACELESS.search(word):
        return tuple((pair, pair) for pair in _pairs(word))
    plain = _plain(word)
    if len(plain) < 2 or len(plain) > _LONGEST_TERM or plain in _STOP:
        return ()
    return ((word, str(_stemmer().stem_word(plain)) if plain.isascii() else plain),)


# Notes and prompts use the same words over and over: ten times as quick, for some 3 MB.
_recalled = functools.lru_cache(maxsize=8192)(_read)


def _said(word: str) -> tuple[tuple[str, str], ...]:
    """Return what :func:`_read` does, without keeping in mind what nobody types twice."""
    return _recalled(word) if len(word) <= _LONGEST_TERM else _read(word)


def terms(text: str) -> frozenset[str]:
    """Return the different terms of ``text``."""
    return frozenset([term for word in set(_WORD.findall(text)) for _, term in _said(word)])


def _plain(word: str) -> str:
    folded = word.casefold()
    if folded.isascii():
        return folded
    return "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))


def _pairs(word: str) -> list[str]:
    pairs = []
    for run in _SPACELESS.findall(word):
        pairs += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return pairs
