"""What other thresholds would have done with the decisions in the log.

A logged decision holds its candidates with all that was measured about them, so that the policy can
rule on them anew. What a session had been shown is not part of that: a note counts as injected
where the policy let it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prompt_rag import policy
from prompt_rag.domain import Candidate, NoteHead, Passage, Reason, Thresholds
from prompt_rag.policy import Weights

WIDENED = -2.0
"""The smallest gap of a decision whose prompt asked for the wider bar of a search."""


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that would fall otherwise. ``before`` and ``after`` are the keys of notes.

    ``why`` is what the policy would say about the best candidate, ``reason`` its word for it.
    """

    id: str
    time: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: Reason
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Replay:
    """``decisions`` were ruled on anew, ``passed_over`` are of another model or past ruling on.

    ``injected_before`` and ``injected_after`` count those that let a note in.
    """

    decisions: int
    passed_over: int
    injected_before: int
    injected_after: int
    changes: tuple[Change, ...]


def replay(
    records: Iterable[Mapping[str, Any]],
    bar: Thresholds,
    weights: Weights | None,
    *,
    max_excerpts: int,
) -> Replay:
    """Rule on ``records`` of the decision log, oldest first, with ``bar`` and ``weights``.

    Decisions without candidates (what nobody typed, failures) would fall as they did and are not
    counted.
    """
    changes = []
    ruled = passed_over = injected_before = injected_after = 0
    for record in records:
        if not record.get("candidates"):
            continue
        found = _candidates(record)
        if found is None or not _is_comparable(record, bar):
            passed_over += 1
            continue
        ruled += 1
        ruling = policy.decide(found, bar, weights)
        after = tuple(
            verdict.candidate.note.key
            for verdict in ruling.verdicts[: len(record["candidates"])]
            if verdict.accepted
        )[:max_excerpts]
        before = tuple(
            str(each.get("note", "")) for each in record["candidates"] if each.get("accepted")
        )[:max_excerpts]
        injected_before += bool(before)
        injected_after += bool(after)
        if before != after:
            changes.append(
                Change(
                    id=str(record.get("id", "")),
                    time=str(record.get("time", "")),
                    before=before,
                    after=after,
                    reason=ruling.reason,
                    why=ruling.verdicts[0].why,
                    text=str(record.get("text") or ""),
                )
            )
    return Replay(ruled, passed_over, injected_before, injected_after, tuple(changes))


def _is_comparable(record: Mapping[str, Any], bar: Thresholds) -> bool:
    """Whether the distances are of the model that ``bar`` is for, and the bar was the usual one."""
    used = record.get("thresholds")
    return (
        isinstance(used, dict)
        and used.get("calibrated_for") == bar.calibrated_for
        and used.get("min_gap") != WIDENED
    )


def _candidates(record: Mapping[str, Any]) -> list[Candidate] | None:
    """Return the candidates of a record, None where they do not parse.

    One more stands for those that were not listed.
    """
    try:
        found = [_candidate(each) for each in record["candidates"]]
        others = record.get("others")
        if others:
            rest = {policy.COVERAGE: others[policy.COVERAGE]}
            found.append(_candidate({"note": "", "distance": others["distance"], "evidence": rest}))
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    return found


def _candidate(raw: Mapping[str, Any]) -> Candidate:
    key = str(raw["note"])
    evidence = {str(name): float(value) for name, value in raw["evidence"].items()}
    return Candidate(
        Passage("", key, 0, "section", (), "", ""),
        NoteHead(key, "", key, "", "", None, ()),
        float(raw["distance"]),
        int(raw.get("rank", 0)),
        evidence,
    )


def bar_for(bars: Mapping[str, float], rate: float) -> tuple[float, float] | None:
    """Return rate and bar of the largest stored rate that is at most ``rate``; None without one."""
    kept: Sequence[tuple[float, float]] = [
        (float(stored), bar) for stored, bar in bars.items() if float(stored) <= rate + 1e-9
    ]
    return max(kept, default=None)
