"""Thresholds to decision: which candidates are confident enough to enter a prompt, and why.

Two hard limits that a person can read and set come first: the distance of the best candidate and
its gap, which is the distance of the nearest *other* note minus its own. A note that says nearly
the same as the best one is agreement and no rival.

Where the model has fitted :class:`Weights`, what passes the limits is also weighed: all that was
measured about a candidate gives the probability that it helps, and that must reach the bar. Without
weights distance and gap decide alone, and a candidate within ``sure_distance`` needs no gap.

Beside the best go its near-copies, and others that would pass if the ones before were not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prompt_rag.domain import Candidate, Reason, Thresholds, Verdict

WHOLE_NOTE = "whole_note"
"""Evidence: cosine distance between the query and the mean of the note's passages."""
COVERAGE = "coverage"
"""Evidence: share of the query's words, weighted by rarity, that stand in the note; in [0, 1]."""
TITLE_COVERAGE = "title_coverage"
"""Evidence: the same share for the note's title."""
TO_BEST = "to_best"
"""Evidence: cosine distance between a candidate's passage and the best candidate's passage."""
PASSAGE_COVERAGE = "passage_coverage"
"""Evidence: the same share for the passage alone, its headings and the title included."""
PASSAGE_WORDS = "passage_words"
"""Evidence: how many different words of the query stand in the passage."""

# Passages of different notes that are closer than this say the same. Near copies in the fixtures
# measure 0.02 to 0.10 with the default model, two notes on one subject 0.25 and more.
NEAR_COPY_DISTANCE = 0.12
# The gap of a candidate without any rival: farther than two unrelated notes ever are apart.
NO_RIVAL = 0.5

FEATURES: Mapping[str, str] = {
    "distance": "how near the passage is",
    "gap": "how far it leads over the next note",
    "whole_note": "how near the whole note is",
    "coverage": "how many of the prompt's words the note has",
    "coverage_lead": "how many more of them than other notes have",
    "title_coverage": "how many of them its title has",
    "passage_coverage": "how many of them the passage has",
    "words_found": "how many words that is",
}
"""What the probability is made of, each in a person's words."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A fitted logistic model: ``p = 1 / (1 + exp(-(intercept + sum of weight × feature)))``.

    ``terms`` has a weight for each of :data:`FEATURES` that is used; ``typical`` the mean of that
    feature over the prompts it was fitted on, against which a contribution is told.
    """

    intercept: float
    terms: Mapping[str, float]
    typical: Mapping[str, float]

    def probability(self, features: Mapping[str, float]) -> float:
        """Return the probability that the candidate helps, in (0, 1)."""
        total = self.intercept + sum(self.terms[name] * features[name] for name in self.terms)
        # In this order a feature that is not a number makes 0, not 1.
        return 1.0 / (1.0 + math.exp(-min(60.0, max(-60.0, total))))

    def contributions(self, features: Mapping[str, float]) -> dict[str, float]:
        """Return what each feature adds to the log-odds against a typical prompt."""
        return {
            name: weight * (features[name] - self.typical[name])
            for name, weight in self.terms.items()
        }


@dataclass(frozen=True, slots=True)
class Ruling:
    """The policy's word on a whole list: verdicts in the order of the candidates.

    ``best_distance`` and ``gap`` are those of the first candidate.
    """

    reason: Reason
    verdicts: tuple[Verdict, ...]
    best_distance: float | None
    gap: float | None


def features_of(candidate: Candidate, rivals: Sequence[Candidate]) -> dict[str, float]:
    """Return the :data:`FEATURES` of a candidate among ``rivals``, which do not contain it."""
    gap = gap_of(candidate, rivals)
    coverage = candidate.evidence.get(COVERAGE, 0.0)
    others = [each.evidence.get(COVERAGE, 0.0) for each in rivals if not is_near_copy(each)]
    return {
        "distance": candidate.distance,
        "gap": NO_RIVAL if gap is None else min(gap, NO_RIVAL),
        "whole_note": candidate.evidence.get(WHOLE_NOTE, candidate.distance),
        "coverage": coverage,
        "coverage_lead": coverage - max(others, default=0.0),
        "title_coverage": candidate.evidence.get(TITLE_COVERAGE, 0.0),
        "passage_coverage": candidate.evidence.get(PASSAGE_COVERAGE, 0.0),
        # The first words found say more than the tenth.
        "words_found": math.log1p(candidate.evidence.get(PASSAGE_WORDS, 0.0)),
    }


def gap_of(candidate: Candidate, rivals: Sequence[Candidate]) -> float | None:
    """Return how far behind ``candidate`` its nearest rival is; None where there is none.

    Negative where a rival is nearer. Near-copies of the best candidate are no rivals.
    """
    distances = [
        each.distance for each in rivals if each is not candidate and not is_near_copy(each)
    ]
    return min(distances) - candidate.distance if distances else None


def is_near_copy(candidate: Candidate) -> bool:
    """Whether a candidate says nearly the same as the best one, which is one itself."""
    return candidate.evidence.get(TO_BEST, 2.0) <= NEAR_COPY_DISTANCE


def decide(
    candidates: Sequence[Candidate], thresholds: Thresholds, weights: Weights | None = None
) -> Ruling:
    """Rule on ``candidates``, at most one for each note, in the order of the search.

    The reason is ``confident`` if and only if a verdict is accepted.
    """
    if not candidates:
        return Ruling(Reason.NO_NOTES, (), None, None)
    best, *others = candidates
    reason, first = _rule(best, others, thresholds, weights)
    verdicts = [first]
    last = first  # the last one that went in
    for position, candidate in enumerate(others):
        if reason is not Reason.CONFIDENT:
            verdicts.append(Verdict(candidate, accepted=False, why="the note before it is out"))
        elif is_near_copy(candidate) and candidate.distance <= thresholds.max_distance:
            why = "it says nearly the same as the best note"
            verdicts.append(Verdict(candidate, accepted=True, why=why))
        elif not last.accepted:
            verdicts.append(Verdict(candidate, accepted=False, why="the note before it is out"))
        else:
            _, last = _rule(candidate, others[position + 1 :], thresholds, weights)
            verdicts.append(last)
    return Ruling(reason, tuple(verdicts), best.distance, gap_of(best, others))


def _rule(
    candidate: Candidate,
    rivals: Sequence[Candidate],
    bar: Thresholds,
    weights: Weights | None,
) -> tuple[Reason, Verdict]:
    """Rule on one candidate as if it were the first of what is left."""
    distance, gap = candidate.distance, gap_of(candidate, rivals)
    near = f"distance {distance:.3f}"
    if not distance <= bar.max_distance:  # a distance that is not a number is not near either
        why = f"{near} is above max_distance {bar.max_distance:.3f}"
        return Reason.TOO_FAR, Verdict(candidate, accepted=False, why=why)
    if distance <= bar.sure_distance:
        why = f"{near} is within sure_distance {bar.sure_distance:.3f}"
        return Reason.CONFIDENT, Verdict(candidate, accepted=True, why=why)
    if gap is not None and gap < bar.min_gap:
        why = f"its lead over the next note, {gap:.3f}, is below min_gap {bar.min_gap:.3f}"
        return Reason.GAP_TOO_SMALL, Verdict(candidate, accepted=False, why=why)
    if weights is None:
        why = f"{near} is near enough and " + (
            "no other note comes close" if gap is None else f"it leads by {gap:.3f}"
        )
        return Reason.CONFIDENT, Verdict(candidate, accepted=True, why=why)
    features = features_of(candidate, rivals)
    probability = weights.probability(features)
    accepted = probability >= bar.min_probability
    word = "reaches" if accepted else "is below"
    return (
        Reason.CONFIDENT if accepted else Reason.LOW_PROBABILITY,
        Verdict(
            candidate,
            accepted=accepted,
            why=f"probability {probability:.2f} {word} {bar.min_probability:.2f}",
            probability=probability,
            contributions=weights.contributions(features),
        ),
    )
