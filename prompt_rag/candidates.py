"""Query to candidates: the nearest notes with all that is measured about each.

Dense vectors find what means the same; the rare words of a query find what is named the same. Both
kinds of finds become candidates, and each candidate carries the same measurements, so that the
policy compares like with like.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from prompt_rag import lexical, policy
from prompt_rag.catalog import MOST_KEPT, Catalog
from prompt_rag.domain import Candidate, NoteHead, Passage, VectorIndex

if TYPE_CHECKING:
    from prompt_rag.domain import Vector

# Passages looked at for one query. A note has about five (docs/evaluation.md), so that these are
# some dozen notes: enough for every rival that can matter to the gap, and for `search -k 20`.
PASSAGES_PER_QUERY = 60
# Passages that the rare words of a query may add, and what counts as rare: a word in more notes
# than this is found by the vectors anyway, and its list is long to walk.
PASSAGES_BY_WORD = 12
RARE_NOTES = 50
RARE_WORDS = 6

# Candidates whose passage is read word by word: those that the policy may weigh, because no more
# than three are injected and each needs the one before it.
PASSAGES_READ = 4

# Weights of the order, chosen by MRR and recall@5 on the fixtures' tune split
# (benchmarks/ranking.py): the best passage, the whole note, the share of the query's words that the
# note has, and that its title has.
BEST_PASSAGE, WHOLE_NOTE, WORDS, TITLE_WORDS = 0.6, 0.4, 0.4, 0.2


def find(
    query: str, vector: Vector, catalog: Catalog, index: VectorIndex, *, by_word: bool = True
) -> list[Candidate]:
    """Return the notes nearest to ``query``, best first, each with its best passage.

    ``vector`` is the query's, ``(dim,)`` float32. Notes that hold the same passage are one
    candidate that names the others in ``note.also``. ``by_word`` lets the query's rare words add
    notes that ``index`` does not find.
    """
    near, distances = index.knn(vector, PASSAGES_PER_QUERY)
    measured = dict(zip(near.tolist(), distances.tolist(), strict=True))
    words = lexical.words(query)
    known = catalog.notes_with(term for _, term in words)
    if by_word:
        measured |= _found_by_word(words, known, measured, vector, catalog)
    best = _best_of_each_note(measured, catalog.passages(measured))
    best = _merge_origins(best, catalog)
    return _in_order(best, vector, _Words(words, known, catalog.notes()), catalog)


Best = tuple[int, float, Passage, NoteHead]
"""Label, distance, passage and note."""


def _found_by_word(
    words: Sequence[tuple[str, str]],
    known: Mapping[str, int],
    measured: Mapping[int, float],
    vector: Vector,
    catalog: Catalog,
) -> dict[int, float]:
    """Return label and distance of passages that have the query's rarest words."""
    rare = sorted(
        {word: known[term] for word, term in words if 0 < known.get(term, 0) <= RARE_NOTES}.items(),
        key=lambda each: (each[1], each[0]),
    )
    if not rare:
        return {}
    names = " ".join(word for word, _ in rare[:RARE_WORDS])
    found = catalog.full_text(names, PASSAGES_BY_WORD)
    vectors = catalog.vectors_of(label for label, _ in found if label not in measured)
    distances = _cosine_distances(vector, list(vectors.values()))
    return dict(zip(vectors, distances, strict=True))


def _best_of_each_note(
    measured: Mapping[int, float], found: Mapping[int, tuple[Passage, NoteHead]]
) -> list[Best]:
    """Return each note's nearest passage, nearest first."""
    best: dict[str, Best] = {}
    for label, distance in sorted(measured.items(), key=lambda each: (each[1], each[0])):
        if label in found:  # a label that was removed meanwhile is passed over
            passage, note = found[label]
            best.setdefault(note.id, (label, distance, passage, note))
    return list(best.values())


def _merge_origins(best: Sequence[Best], catalog: Catalog) -> list[Best]:
    """Make one candidate of notes whose best passage is the same text."""
    origins = catalog.origins([label for label, *_ in best])
    merged: list[Best] = []
    taken: set[str] = set()
    for label, distance, passage, note in best:
        if note.id in taken:
            continue
        others = origins.get(label, ())
        taken.update(other.id for other in others)
        also = tuple(other.uri for other in others)
        merged.append((label, distance, passage, replace(note, also=also) if also else note))
    return merged


class _Words:
    """The words of a query, weighted by how few notes have them."""

    def __init__(
        self, words: Sequence[tuple[str, str]], known: Mapping[str, int], notes: int
    ) -> None:
        # The inverse document frequency of BM25 (Robertson and Spärck Jones), with 1 inside the
        # logarithm so that it is never negative.
        self._weights = {
            term: math.log(1 + (notes - known.get(term, 0) + 0.5) / (known.get(term, 0) + 0.5))
            for _, term in words
        }
        self._total = sum(self._weights.values())

    @property
    def terms(self) -> Collection[str]:
        """The different words as terms."""
        return self._weights.keys()

    def count(self, terms: frozenset[str]) -> int:
        """Return how many of the query's words are among ``terms``."""
        return sum(term in terms for term in self._weights)

    def share(self, terms: frozenset[str]) -> float:
        """Return which share of the query's words, by weight, is among ``terms``."""
        if self._weights.keys().isdisjoint(terms):  # so it is with most
            return 0.0
        return sum(w for term, w in self._weights.items() if term in terms) / self._total


def _in_order(
    best: Sequence[Best], vector: Vector, words: _Words, catalog: Catalog
) -> list[Candidate]:
    if not best:
        return []
    ids = [note.id for *_, note in best]
    means, shared = catalog.note_vectors(ids), catalog.terms_shared(ids, words.terms)
    vector_of = catalog.vectors_of(label for label, *_ in best)
    wholes = _cosine_distances(vector, [means[owner] for owner in ids])
    ordered = []
    for (label, distance, passage, note), whole in zip(best, wholes, strict=True):
        coverage = words.share(shared.get(note.id, frozenset()))
        evidence = {
            policy.WHOLE_NOTE: whole,
            policy.COVERAGE: coverage,
            policy.TITLE_COVERAGE: words.share(_terms_of_title(note.title)),
        }
        order = (
            BEST_PASSAGE * distance
            + WHOLE_NOTE * whole
            - WORDS * coverage
            - TITLE_WORDS * evidence[policy.TITLE_COVERAGE]
        )
        ordered.append((order, note.source, note.key, (label, distance, passage, note), evidence))
    ordered.sort(key=lambda each: each[:3])
    rows = [vector_of[label] for *_, (label, *_), _ in ordered]
    to_best = _cosine_distances(rows[0], rows)
    return [
        Candidate(
            passage,
            note,
            distance,
            rank,
            {
                **evidence,
                policy.TO_BEST: to_best[rank - 1],
                **(_of_passage(passage, note, words) if rank <= PASSAGES_READ else {}),
            },
        )
        for rank, (*_, (_, distance, passage, note), evidence) in enumerate(ordered, start=1)
    ]


@functools.lru_cache(maxsize=1024)  # a session stays with its subject, and so with its passages
def _terms_of_passage(text: str) -> frozenset[str]:
    return lexical.terms(text)


def _of_passage(passage: Passage, note: NoteHead, words: _Words) -> dict[str, float]:
    """Return what the query's words say about one passage."""
    terms = _terms_of_passage("\n".join([note.title, *passage.heading_path, passage.text]))
    return {
        policy.PASSAGE_COVERAGE: words.share(terms),
        policy.PASSAGE_WORDS: float(words.count(terms)),
    }


def _cosine_distances(one: Vector, others: Sequence[Vector]) -> list[float]:
    """Return the distance of ``one`` to each of ``others``; 1 where there is no direction."""
    if not others:
        return []
    rows = np.concatenate(others).reshape(len(others), -1)
    # Row by row, so that equal vectors are equally far; a product with the matrix rounds by blocks.
    products = np.einsum("ij,j->i", rows, one).astype(np.float64)
    lengths = np.einsum("ij,ij->i", rows, rows).astype(np.float64) * float(one @ one)
    cosines = np.divide(
        products, np.sqrt(lengths), out=np.zeros_like(products), where=lengths > 0.0
    )
    return [float(each) for each in 1.0 - cosines]


@functools.lru_cache(maxsize=MOST_KEPT)
def _terms_of_title(title: str) -> frozenset[str]:
    return lexical.terms(title)
