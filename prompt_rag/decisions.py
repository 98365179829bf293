"""The decision log: one line for each prompt, enough to say why and to replay it.

``decisions.jsonl`` holds hashes, distances and reasons. The text of a prompt is in it only where
the person has asked for that. The hook appends lines of its own for what never reached an index;
their keys are a part of those that :func:`record` gives.

Keys of a line: ``time`` (UTC, ISO 8601), ``id``, ``host``, ``session`` and ``prompt`` (digests),
``chars``, ``outcome``, ``reason``, ``best_distance``, ``gap``, ``excerpts`` (``note``, ``text``
(a key of :func:`prompt_rag.sessions.text_key`), ``distance``), ``candidates`` (the first five:
``note``, ``distance``, ``rank``, ``evidence``, ``accepted``, ``why``, ``probability``), ``others``
(what the rest of them has to do with a decision, see :func:`_others`), ``injected_chars``,
``repeats``, ``timings_ms``, ``thresholds``, ``version``, ``model``, ``generation``, and ``text`` on
request.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from prompt_rag import __version__, fsio, policy, wire
from prompt_rag.domain import Decision

ROTATE_BYTES = 5_000_000  # some 10,000 decisions: months of one person, kept twice
MOST_CANDIDATES = 5  # a gap is measured against the second; the rest is for other rules
LOCK_SECONDS = 0.2

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a number of decisions came to.

    ``typed`` leaves out what nobody typed; ``injection_rate`` is over those, None where there are
    none. ``total_ms`` holds the percentiles 50, 95 and 99 of the whole time of typed prompts.
    """

    decisions: int
    typed: int
    injected: int
    injection_rate: float | None
    reasons: dict[str, int]
    total_ms: dict[str, float]
    chars_injected: int
    repeats_avoided: int
    first: str
    last: str


UNTYPED = frozenset({"empty", "machine-prompt", "command"})
"""Reasons of what no person asked."""


def new_id() -> str:
    """Return a fresh id of a decision, 12 hex digits."""
    return secrets.token_hex(6)


def record(
    decision: Decision,
    request: Mapping[str, object],
    *,
    text_keys: Mapping[str, str] | None = None,
    repeats: int = 0,
    now: datetime | None = None,
) -> Record:
    """Return the line for ``decision`` about ``request`` (prompt, session, host; see the hook).

    ``text_keys`` maps ids of passages to the keys by which a session knows their text;
    ``repeats`` counts candidates that were left out because the session has been shown them.
    The prompt's own text is under ``text``; :class:`DecisionLog` drops it unless it may stay.
    """
    prompt, session = str(request.get("prompt", "")), str(request.get("session", ""))
    instant = (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="milliseconds")
    keys = text_keys or {}
    return {
        "time": instant.replace("+00:00", "Z"),
        "id": new_id(),
        "host": str(request.get("host", "")),
        "session": wire.digest(session) if session else "",
        "prompt": wire.digest(prompt),
        "chars": len(prompt),
        "outcome": decision.outcome,
        "reason": decision.reason.value,
        "best_distance": _rounded(decision.best_distance),
        "gap": _rounded(decision.gap),
        "excerpts": [
            {
                "note": excerpt.candidate.note.key,
                "text": keys.get(excerpt.candidate.passage.id, ""),
                "distance": _rounded(excerpt.candidate.distance),
            }
            for excerpt in decision.excerpts
        ],
        "candidates": [
            {
                "note": verdict.candidate.note.key,
                "distance": _rounded(verdict.candidate.distance),
                "rank": verdict.candidate.rank,
                "evidence": {k: _rounded(v) for k, v in verdict.candidate.evidence.items()},
                "accepted": verdict.accepted,
                "why": verdict.why,
                "probability": _rounded(verdict.probability),
            }
            for verdict in decision.verdicts[:MOST_CANDIDATES]
        ],
        "others": _others(decision),
        "injected_chars": len(decision.block) if decision.outcome == "inject" else 0,
        "repeats": repeats,
        "timings_ms": {key: round(value, 3) for key, value in decision.timings_ms.items()},
        "thresholds": asdict(decision.thresholds) if decision.thresholds else None,
        "version": __version__,
        "model": decision.model,
        "generation": decision.generation,
        "text": prompt,
    }


def _others(decision: Decision) -> dict[str, float | None] | None:
    """Return what candidates that are not listed are to those that are: rivals.

    Their smallest ``distance`` makes a gap, their largest ``coverage`` a lead. None without any.
    """
    rivals = [
        verdict.candidate
        for verdict in decision.verdicts[MOST_CANDIDATES:]
        if not policy.is_near_copy(verdict.candidate)
    ]
    if not rivals:
        return None
    coverage = max(each.evidence.get(policy.COVERAGE, 0.0) for each in rivals)
    return {
        "distance": _rounded(min(each.distance for each in rivals)),
        policy.COVERAGE: _rounded(coverage),
    }


class DecisionLog:
    """The log at ``path`` and its predecessor ``<path>.1``.

    ``keep_text`` says whether the text of prompts may be stored.
    """

    def __init__(self, path: Path, *, keep_text: bool = False) -> None:
        self.path = path
        self.keep_text = keep_text
        self._before = path.with_name(path.name + ".1")

    def append(self, line: Mapping[str, object]) -> None:
        """Append ``line``, without its ``text`` unless that may be stored. Raises OSError."""
        kept = {k: v for k, v in line.items() if k != "text" or self.keep_text}
        self._rotate()
        fsio.append_line(str(self.path), orjson.dumps(kept, default=str))

    def __iter__(self) -> Iterator[Record]:
        """Yield all records, oldest first; what does not parse is skipped."""
        for path in (self._before, self.path):
            for line in reversed(list(_lines_backwards(path))):
                yield from _parsed(line)

    def last(self, count: int) -> list[Record]:
        """Return the last ``count`` records, newest first."""
        found: list[Record] = []
        for path in (self.path, self._before):
            for line in _lines_backwards(path):
                if len(found) >= count:
                    return found
                found += _parsed(line)
        return found[:count]

    def _rotate(self) -> None:
        """Begin a new file where this one is full, once, however many processes find it so."""
        if self._size() <= ROTATE_BYTES:
            return
        lock = fsio.Lock(str(self.path) + ".lock")
        if lock.acquire(LOCK_SECONDS):
            try:
                if self._size() > ROTATE_BYTES:
                    self.path.replace(self._before)
            finally:
                lock.release()

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


def _lines_backwards(path: Path) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    yield from reversed(data.split(b"\n"))


def _parsed(line: bytes) -> list[Record]:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return []
    return [found] if isinstance(found, dict) else []


def summarise(records: Iterable[Record]) -> Summary:
    """Return what ``records``, oldest first, come to."""
    reasons: Counter[str] = Counter()
    totals: list[float] = []
    injected = chars = repeats = 0
    first = last = ""
    for each in records:
        reason = str(each.get("reason", ""))
        reasons[reason] += 1
        first = first or str(each.get("time", ""))
        last = str(each.get("time", "")) or last
        injected += each.get("outcome") == "inject"
        chars += _whole(each.get("injected_chars"))
        repeats += _whole(each.get("repeats"))
        timings = each.get("timings_ms")
        total = timings.get("total") if isinstance(timings, dict) else None
        if isinstance(total, int | float) and reason not in UNTYPED:
            totals.append(float(total))
    typed = reasons.total() - sum(reasons[reason] for reason in UNTYPED)
    totals.sort()
    return Summary(
        decisions=reasons.total(),
        typed=typed,
        injected=injected,
        injection_rate=injected / typed if typed else None,
        reasons=dict(reasons.most_common()),
        total_ms={f"p{p}": percentile(totals, p) for p in (50, 95, 99)} if totals else {},
        chars_injected=chars,
        repeats_avoided=repeats,
        first=first,
        last=last,
    )


def percentile(ordered: list[float], percent: float) -> float:
    """Return the smallest of ``ordered`` (not empty) that ``percent`` of them do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _rounded(value: float | None) -> float | None:
    """Return ``value`` with six decimals: a distance in float32 has no more."""
    return None if value is None else round(float(value), 6)
