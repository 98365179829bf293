"""Queries drawn from a person's own notes: the answerable side for who has no labelled prompts.

A heading, a line of a TL;DR or a title is put as a query, with the passages it comes from held out:
the rest of the note has to be found by it. For a heading those are its whole section, for a line
the TL;DR, for a title the note's first passage; a title also stands before every other passage that
is embedded, so that what titles find is more than what prompts will.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from prompt_rag import candidates, lexical, policy, prompts
from prompt_rag.calibration import Calibration
from prompt_rag.catalog import Catalog
from prompt_rag.domain import Embedder, LabelledPrompt, NoteHead, Passage, Reason
from prompt_rag.evaluation import Case
from prompt_rag.neighbours import ExactIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prompt_rag.domain import Matrix, Vector

MOST = 150  # a share of 0.6 is then known to within 0.08, and embedding them takes a second or two
FEWEST_WORDS = 2  # "Steps" and "Notes" stand above anything
LONGEST = 200  # characters; a longer line is a paragraph and no query
TITLE, TLDR, HEADING = "own-title", "own-tldr", "own-heading"
KINDS = (TITLE, TLDR, HEADING)
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+(?:\[[ xX]\]\s+)?")
_MARKS = re.compile(r"[*`]{1,3}")  # an underscore is more often a part of a name


@dataclass(frozen=True, slots=True)
class Draw:
    """A query, and the labels of the passages that must not help to find its note."""

    prompt: LabelledPrompt
    owner: str
    hidden: frozenset[int]


Filed = Mapping[int, tuple[Passage, NoteHead]]
"""Passages and their notes by label."""


def draw(catalog: Catalog, most: int = MOST) -> list[Draw]:
    """Return at most ``most`` queries from the notes in ``catalog``, the same ones each time.

    As many of each kind as there are, and spread over the notes: a second one of a note comes after
    the first of every other. What stands in several notes is left out, and so are notes of a single
    passage, which would leave nothing to find.
    """
    filed = catalog.passages(catalog.live_labels().tolist())
    notes: dict[str, list[int]] = {}
    for label, (_, note) in filed.items():
        notes.setdefault(note.id, []).append(label)
    found = [each for labels in notes.values() for each in _of_note(sorted(labels), filed)]
    times = Counter(text.casefold() for text, *_ in found)
    turns: Counter[tuple[str, str]] = Counter()
    ordered: dict[str, list[tuple[int, str, Draw]]] = {kind: [] for kind in KINDS}
    for text, kind, owner, hidden in sorted(found, key=lambda each: _hash(*each[:3])):
        if times[text.casefold()] == 1 and hidden < set(notes[owner]) and _is_query(text):
            key = filed[notes[owner][0]][1].key
            name = _hash(text, kind, owner)[:12]
            prompt = LabelledPrompt(f"{kind}-{name}", text, (key,), kind, "tune")
            ordered[kind].append((turns[kind, owner], name, Draw(prompt, owner, hidden)))
            turns[kind, owner] += 1
    by_kind = [sorted(each, key=lambda one: one[:2]) for each in ordered.values()]
    in_turn = [one for row in zip_longest(*by_kind) for one in row if one is not None]
    return [each for *_, each in in_turn[:most]]


Found = tuple[str, str, str, frozenset[int]]
"""Text, kind, id of the note, labels held out."""


def _of_note(labels: Sequence[int], filed: Filed) -> Iterable[Found]:
    by_place = sorted(labels, key=lambda label: filed[label][0].ordinal)
    note = filed[by_place[0]][1]
    yield note.title, TITLE, note.id, frozenset(by_place[:1])
    short = frozenset(label for label in by_place if filed[label][0].kind == "tldr")
    for label in sorted(short):
        for line in filed[label][0].text.splitlines():
            text = _MARKS.sub("", _BULLET.sub("", line, count=1)).strip()
            yield text, TLDR, note.id, short
    paths = {filed[label][0].heading_path[: depth + 1] for label in by_place for depth in range(6)}
    for path in sorted(path for path in paths if path):
        below = [label for label in by_place if filed[label][0].heading_path[: len(path)] == path]
        yield path[-1], HEADING, note.id, frozenset(below)


def _is_query(text: str) -> bool:
    return (
        len(text) <= LONGEST
        and len({term for _, term in lexical.words(text)}) >= FEWEST_WORDS
        and not prompts.question(text).reason
    )


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def measure(
    draws: Sequence[Draw],
    catalog: Catalog,
    work: Embedder,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Case]:
    """Put each query to the notes without what it comes from; nothing is decided yet."""
    filed = catalog.passages(catalog.live_labels().tolist())
    labels, matrix = catalog.matrix()
    vectors = dict(zip(labels.tolist(), matrix, strict=True))
    keys = {note.uri: note.key for _, note in filed.values()}
    cases = []
    for number, each in enumerate(draws, start=1):
        query = prompts.question(each.prompt.prompt).query
        rest = _Without(catalog, each, filed, vectors)
        index = _index(labels, matrix, each.hidden)
        with catalog.snapshot():
            # All that a search asks of a catalog is answered by it or passed on to the real one.
            found = candidates.find(query, work.embed_query(query), cast("Catalog", rest), index)
        ranked = tuple(
            (one.note.key, *[keys[uri] for uri in one.note.also if uri in keys]) for one in found
        )
        cases.append(Case(each.prompt, "abstain", "", ranked, (), candidates=tuple(found)))
        if progress is not None:
            progress("own notes", number, len(draws))
    return cases


def _index(labels: NDArray[np.int64], matrix: Matrix, hidden: Collection[int]) -> ExactIndex:
    kept = ~np.isin(labels, list(hidden))
    return ExactIndex(labels[kept], matrix[kept])


class _Without:
    """A catalog that does not know the hidden passages of one note."""

    def __init__(
        self, catalog: Catalog, drawn: Draw, filed: Filed, vectors: Mapping[int, Vector]
    ) -> None:
        self._catalog = catalog
        self._owner, self._hidden = drawn.owner, drawn.hidden
        left = [
            (label, passage)
            for label, (passage, note) in filed.items()
            if note.id == drawn.owner and label not in drawn.hidden
        ]
        title = filed[left[0][0]][1].title if drawn.prompt.kind != TITLE else ""
        self._terms = lexical.terms(
            "\n".join([title, *["\n".join([*each.heading_path, each.text]) for _, each in left]])
        )
        self._mean: Vector = np.stack([vectors[label] for label, _ in left]).mean(axis=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def full_text(self, query: str, limit: int) -> list[tuple[int, float]]:
        found = self._catalog.full_text(query, limit + len(self._hidden))
        return [each for each in found if each[0] not in self._hidden][:limit]

    def note_vectors(self, note_ids: Iterable[str]) -> dict[str, Vector]:
        found = self._catalog.note_vectors(note_ids)
        return found | ({self._owner: self._mean} if self._owner in found else {})

    def terms_shared(
        self, note_ids: Iterable[str], terms: Collection[str]
    ) -> dict[str, frozenset[str]]:
        found = self._catalog.terms_shared(note_ids, terms)
        return found | ({self._owner: self._terms & set(terms)} if self._owner in found else {})


def summary(cases: Sequence[Case], fitted: Calibration) -> dict[str, dict[str, float | int]]:
    """Return by kind, and for "all", how many queries found their note.

    ``queries``; ``found_first``: the share whose first candidate is their note; ``injected``: the
    share that gets their note at the bar of ``fitted``.
    """
    judged: dict[str, list[tuple[bool, bool]]] = {}
    for case in cases:
        ruling = policy.decide(case.candidates, fitted.thresholds, fitted.weights)
        row = (case.first_is_right, case.first_is_right and ruling.reason is Reason.CONFIDENT)
        for kind in (case.prompt.kind, "all"):
            judged.setdefault(kind, []).append(row)
    return {
        kind: {
            "queries": len(judged[kind]),
            "found_first": round(sum(first for first, _ in judged[kind]) / len(judged[kind]), 4),
            "injected": round(sum(spoke for _, spoke in judged[kind]) / len(judged[kind]), 4),
        }
        for kind in (*KINDS, "all")
        if kind in judged
    }
