"""Measuring a system on labelled prompts: retrieval over the answerable, injection over all.

Answerable and unanswerable prompts are never averaged together: an empty answer to an unanswerable
prompt is right, and would otherwise raise a mean it has no part in. Retrieval measures come from
ir-measures, which counts prompts without results as 0.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import orjson
from ir_measures import RR, R, nDCG

from prompt_rag import curves, policy
from prompt_rag.catalog import Catalog
from prompt_rag.domain import (
    Candidate,
    ConfigError,
    Decision,
    LabelledPrompt,
    NoteHead,
    Reason,
)
from prompt_rag.search import Reader

MEASURES = {"recall@5": R @ 5, "mrr": RR, "ndcg@10": nDCG @ 10}
GROUNDED_IN = 5
"""Notes that a keyword may stand in: as many as recall@5 looks at."""
RESAMPLES = 1000
INTERVAL = (2.5, 97.5)
SEED = 20261201


@dataclass(frozen=True, slots=True)
class Case:
    """What a system did with one prompt. ``ranked`` and ``injected`` hold note keys, best first.

    A note that stands for several origins appears with all their keys as one tuple.
    """

    prompt: LabelledPrompt
    outcome: str
    reason: str
    ranked: tuple[tuple[str, ...], ...]
    injected: tuple[tuple[str, ...], ...]
    best_distance: float | None = None
    gap: float | None = None
    grounded: float | None = None
    milliseconds: float = 0.0
    candidates: tuple[Candidate, ...] = field(default=(), repr=False)
    searched: bool = True
    """Whether the prompt was looked up at all; what nobody typed is not."""
    confidence: float | None = None
    """How sure the system is of its first candidate, on a scale of its own; None without one."""

    @property
    def answerable(self) -> bool:
        """Whether some note answers the prompt."""
        return bool(self.prompt.relevant)

    @property
    def hit(self) -> bool:
        """Whether a relevant note was injected."""
        return any(set(keys) & set(self.prompt.relevant) for keys in self.injected)

    @property
    def first_is_right(self) -> bool:
        """Whether the first candidate is relevant."""
        return bool(self.ranked) and bool(set(self.ranked[0]) & set(self.prompt.relevant))

    @property
    def first_is_borderline(self) -> bool:
        """Whether the first candidate is neither right nor wrong."""
        return (
            bool(self.ranked)
            and not self.first_is_right
            and bool(set(self.ranked[0]) & set(self.prompt.also_ok))
        )

    @property
    def false(self) -> bool:
        """Whether a note was injected that is neither relevant nor borderline, and none that is."""
        allowed = {*self.prompt.relevant, *self.prompt.also_ok}
        return bool(self.injected) and not any(set(keys) & allowed for keys in self.injected)


# --- prompts ------------------------------------------------------------------------------------


def load_prompts(file: Path) -> list[LabelledPrompt]:
    """Read labelled prompts, JSON lines as docs/cli.md describes them.

    Raises :class:`ConfigError` that names file and line.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    prompts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompts.append(_prompt(orjson.loads(line)))
        except ValueError as error:
            raise ConfigError(f"{file}, line {number}: {error}", f"edit {file}") from error
    ids = [prompt.id for prompt in prompts]
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ConfigError(f"{file}: the id {twice} occurs twice", f"edit {file}")
    if not prompts:
        raise ConfigError(f"{file} holds no prompts")
    return prompts


def _prompt(raw: Any) -> LabelledPrompt:
    if not isinstance(raw, dict) or not isinstance(raw.get("prompt"), str):
        raise ValueError("not an object with a prompt")  # noqa: TRY004  # one kind for the caller
    if not isinstance(raw.get("id"), str | int):
        raise ValueError("id must be a string or a number")  # noqa: TRY004
    if "relevant" not in raw:
        raise ValueError("relevant is missing; [] means that nothing may be injected")
    lists: dict[str, tuple[str, ...]] = {}
    for name in ("relevant", "also_ok", "keywords"):
        value = raw.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError(f"{name} must be a list of strings")
        lists[name] = tuple(dict.fromkeys(value))  # a note named twice is one note
    return LabelledPrompt(
        id=str(raw["id"]),
        prompt=raw["prompt"],
        kind=str(raw.get("kind", "")),
        split=str(raw.get("split", "")),
        voice=str(raw.get("voice", "")),
        relevant=lists["relevant"],
        also_ok=lists["also_ok"],
        keywords=lists["keywords"],
    )


def require_known_notes(prompts: Iterable[LabelledPrompt], catalog: Catalog) -> None:
    """Raise :class:`ConfigError` where the prompts are about notes that are not in the index.

    A table of zeros because of a wrong folder looks like a bad system.
    """
    known = {key for source in catalog.sources() for key in catalog.fingerprints(source)}
    wanted = {key for prompt in prompts for key in prompt.relevant}
    if wanted and not wanted & known:
        raise ConfigError(
            f"none of the {len(wanted)} notes that the prompts name is in the index"
            f" (for example {min(wanted)})",
            "prompt-rag eval --notes DIR --prompts FILE",
        )


# --- systems ------------------------------------------------------------------------------------

System = Callable[[Reader, str], tuple[Decision | None, Sequence[Candidate], Sequence[Candidate]]]
"""Reader and prompt to decision (None: the system has none), ranked and injected candidates."""

INJECTED_BY_BASELINES = 3


def prompt_rag(
    reader: Reader, prompt: str
) -> tuple[Decision | None, Sequence[Candidate], Sequence[Candidate]]:
    """Rank and decide as the hook does."""
    decision = reader.decide(prompt)
    ranked = [verdict.candidate for verdict in decision.verdicts]
    if not ranked:
        ranked = reader.candidates(decision.query or prompt)
    spoken = decision.excerpts if decision.outcome == "inject" else ()
    return decision, ranked, [excerpt.candidate for excerpt in spoken]


def distance_gap(
    reader: Reader, prompt: str
) -> tuple[Decision | None, Sequence[Candidate], Sequence[Candidate]]:
    """Rank as the hook does; decide by distance and gap alone, at their own best limits.

    Raises :class:`ConfigError` where none were fitted for the model.
    """
    bar = reader.distance_gap
    if bar is None:
        raise ConfigError(
            f"no limits of distance and gap alone are known for {reader.embedder.identity.name}",
            "prompt-rag tune --apply",
        )
    decision, ranked, _ = prompt_rag(reader, prompt)
    assert decision is not None
    if not decision.query:
        return decision, ranked, ()
    ruling = policy.decide(ranked, bar)
    accepted = [verdict.candidate for verdict in ruling.verdicts if verdict.accepted]
    decision = replace(decision, reason=ruling.reason, thresholds=bar)
    return decision, ranked, accepted[: reader.config.settings.max_excerpts]


def like(
    reader: Reader, prompt: str
) -> tuple[Decision | None, Sequence[Candidate], Sequence[Candidate]]:
    """Rank notes by how many of the prompt's words they contain, as SQL's LIKE finds them.

    Injects the best three that contain at least half of the words of four letters and more.
    """
    wanted = {word.casefold() for word in re.findall(r"\w{4,}", prompt)}
    counted = []
    for text, candidate in _whole_notes(reader.catalog):
        found = sum(word in text for word in wanted)
        if found:
            strength = replace(candidate, distance=1.0 - found / len(wanted))
            counted.append((-found, candidate.note.key, strength))
    counted.sort(key=lambda each: each[:2])
    ranked = [candidate for *_, candidate in counted]
    enough = [each[2] for each in counted if -each[0] * 2 >= len(wanted)]
    return None, ranked, enough[:INJECTED_BY_BASELINES]


def bm25(
    reader: Reader, prompt: str
) -> tuple[Decision | None, Sequence[Candidate], Sequence[Candidate]]:
    """Rank notes by SQLite's BM25 of their best passage; inject the best three found."""
    found = reader.catalog.full_text(prompt, 200)
    records = reader.catalog.passages([label for label, _ in found])
    best: dict[str, Candidate] = {}
    for label, rank in found:
        passage, note = records[label]
        # BM25 has no scale of its own; falling towards 0 it orders as a distance does.
        best.setdefault(note.id, Candidate(passage, note, 1.0 / (1.0 - rank), len(best) + 1))
    ranked = list(best.values())
    return None, ranked, ranked[:INJECTED_BY_BASELINES]


SYSTEMS: Mapping[str, System] = {
    "prompt-rag": prompt_rag,
    "distance-gap": distance_gap,
    "bm25": bm25,
    "like": like,
}

# Distance and gap in one number, to compare prompts by: of 0.25, 0.5, 1 and 2 the weight that
# finds most at 1 and 2 % false injections on the fixtures' tune split. (The distance alone, 0,
# finds more.)
GAP_WEIGHT = 0.25


def confidence(system: str, reader: Reader, ranked: Sequence[Candidate]) -> float | None:
    """Return how sure ``system`` is of its first candidate; larger is surer, None without one."""
    if not ranked:
        return None
    first, *rivals = ranked
    if system not in {"prompt-rag", "distance-gap"}:
        return -first.distance  # the number they rank by
    if system == "prompt-rag" and reader.weights is not None:
        return reader.weights.probability(policy.features_of(first, rivals))
    return _distance_and_gap(ranked)


def _distance_and_gap(ranked: Sequence[Candidate]) -> float:
    first, *rivals = ranked
    return GAP_WEIGHT * policy.features_of(first, rivals)["gap"] - first.distance


def at_distance_and_gap(cases: Iterable[Case]) -> list[Case]:
    """Return cases of prompt-rag with the confidence that distance and gap alone would have.

    What was injected stays as it was; the ranking is the same.
    """
    return [
        replace(case, confidence=_distance_and_gap(case.candidates))
        if case.searched and case.candidates
        else replace(case, confidence=None)
        for case in cases
    ]


def _whole_notes(catalog: Catalog) -> list[tuple[str, Candidate]]:
    """Return each note's whole text, folded, with a candidate that stands for it."""
    notes: dict[str, tuple[list[str], Candidate]] = {}
    for passage, note in catalog.passages(catalog.live_labels().tolist()).values():
        texts, _ = notes.setdefault(note.id, ([note.title], Candidate(passage, note, 2.0, 0)))
        texts.append(passage.text)
    return [("\n".join(texts).casefold(), candidate) for texts, candidate in notes.values()]


# --- running ------------------------------------------------------------------------------------


def run(
    system: str,
    reader: Reader,
    prompts: Sequence[LabelledPrompt],
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Case]:
    """Give every prompt to ``system`` (a name of :data:`SYSTEMS`) and return what it did."""
    keys = _Keys(reader.catalog)
    cases = []
    for number, prompt in enumerate(prompts, start=1):
        started = time.perf_counter()
        decision, ranked, injected = SYSTEMS[system](reader, prompt.prompt)
        spent = (time.perf_counter() - started) * 1000
        if decision is not None and "total" in decision.timings_ms:
            spent = decision.timings_ms["total"]
        searched = decision is None or bool(decision.query)
        cases.append(
            Case(
                prompt=prompt,
                outcome="inject" if injected else "abstain",
                reason=str(decision.reason if decision else Reason.CONFIDENT if injected else ""),
                ranked=tuple(keys.of(each.note) for each in ranked),
                injected=tuple(keys.of(each.note) for each in injected),
                best_distance=decision.best_distance if decision else None,
                gap=decision.gap if decision else None,
                grounded=grounded(prompt.keywords, ranked[:GROUNDED_IN], reader.catalog),
                milliseconds=spent,
                candidates=tuple(ranked),
                searched=searched,
                confidence=confidence(system, reader, ranked) if searched else None,
            )
        )
        if progress is not None:
            progress("ask", number, len(prompts))
    return cases


class _Keys:
    """The keys a candidate answers to: its note's, and those of the other origins of its text."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def of(self, note: NoteHead) -> tuple[str, ...]:
        others = [head.key for uri in note.also for head in self._catalog.find_notes(uri)]
        return (note.key, *others)


def grounded(
    keywords: Sequence[str], candidates: Sequence[Candidate], catalog: Catalog
) -> float | None:
    """Return the share of ``keywords`` that stand in the candidates' notes; None without keywords.

    Whole notes, as a keyword baseline is measured too: what passages a system cuts is its own
    affair.
    """
    if not keywords:
        return None
    texts = [each.note.title for each in candidates]
    for each in candidates:
        texts += [passage.text for passage in catalog.passages_of(each.note.id)]
    text = "\n".join(texts).casefold()
    return sum(word.casefold() in text for word in keywords) / len(keywords)


# --- figures ------------------------------------------------------------------------------------


def retrieval_rows(cases: Sequence[Case]) -> dict[str, list[float]]:
    """Return each retrieval measure's value for each answerable prompt, in their order.

    A candidate with several origins counts once, as the relevant note it stands for.
    """
    qrels = []
    ranked = []
    for case in cases:
        relevant = set(case.prompt.relevant)
        qrels += [ir_measures.Qrel(case.prompt.id, key, 1) for key in case.prompt.relevant]
        for position, keys in enumerate(case.ranked):
            named = [key for key in keys if key in relevant] or [keys[0]]
            # Ranks become falling numbers, because that is what the library sorts by.
            ranked += [
                ir_measures.ScoredDoc(case.prompt.id, key, -float(position)) for key in named
            ]
    rows: dict[str, dict[str, float]] = {name: {} for name in MEASURES}
    names = {str(measure): name for name, measure in MEASURES.items()}
    for metric in ir_measures.iter_calc(list(MEASURES.values()), qrels, ranked):
        rows[names[str(metric.measure)]][metric.query_id] = float(metric.value)
    return {name: [rows[name][case.prompt.id] for case in cases] for name in MEASURES}


def figures(cases: Sequence[Case]) -> dict[str, float | None]:
    """Return every figure of retrieval and injection over ``cases``; None where undefined."""
    return {name: _ratio(*pair) for name, pair in _sums(_table(cases)).items()}


def intervals(cases: Sequence[Case]) -> dict[str, list[float]]:
    """Return the 95 % interval of each figure: bootstrap over prompts, fixed seed."""
    table = _table(cases)
    chance = np.random.default_rng(SEED)
    draws: dict[str, list[float]] = {}
    for _ in range(RESAMPLES):
        rows = chance.integers(0, len(cases), len(cases))
        for name, pair in _sums(table, rows).items():
            value = _ratio(*pair)
            if value is not None:
                draws.setdefault(name, []).append(value)
    return {
        name: [round(float(bound), 4) for bound in np.percentile(values, INTERVAL)]
        for name, values in draws.items()
    }


def _table(cases: Sequence[Case]) -> dict[str, tuple[Any, Any]]:
    """Return, for each figure, numerator and denominator of each case as arrays."""
    answerable = [case for case in cases if case.answerable]
    rows = retrieval_rows(answerable)
    values = {name: dict(zip(map(id, answerable), row, strict=True)) for name, row in rows.items()}
    counted: dict[str, list[tuple[float, float]]] = {
        name: [(row.get(id(case), 0.0), float(case.answerable)) for case in cases]
        for name, row in values.items()
    }
    counted["groundedness"] = [
        (case.grounded or 0.0, float(case.answerable and case.grounded is not None))
        for case in cases
    ]
    injected = [case.outcome == "inject" for case in cases]
    counted["precision"] = [(float(case.hit), float(case.hit or case.false)) for case in cases]
    counted["coverage"] = [(float(case.hit), float(case.answerable)) for case in cases]
    counted["false_injection_rate"] = [
        (float(spoke and case.false), float(not case.answerable))
        if not case.answerable
        else (0.0, 0.0)
        for case, spoke in zip(cases, injected, strict=True)
    ]
    counted["wrong_note_rate"] = [
        (float(case.answerable and case.false), float(case.answerable)) for case in cases
    ]
    return {
        name: (np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
        for name, pairs in counted.items()
    }


def _sums(table: Mapping[str, tuple[Any, Any]], rows: Any = None) -> dict[str, tuple[float, float]]:
    return {
        name: (
            float((top if rows is None else top[rows]).sum()),
            float((bottom if rows is None else bottom[rows]).sum()),
        )
        for name, (top, bottom) in table.items()
    }


def _ratio(top: float, bottom: float) -> float | None:
    return round(top / bottom, 4) if bottom else None


RETRIEVAL = (*MEASURES, "groundedness")
INJECTION = ("precision", "coverage", "false_injection_rate", "wrong_note_rate")


def report(system: str, reader: Reader, cases: Sequence[Case]) -> dict[str, Any]:
    """Return the document that ``eval --json`` prints.

    Raises :class:`ConfigError` where there are no cases.
    """
    if not cases:
        raise ConfigError("there are no prompts to measure with", "prompt-rag eval --prompts FILE")
    whole = figures(cases)
    identity = reader.embedder.identity
    bar = reader.distance_gap if system == "distance-gap" else reader.thresholds
    points = curve(cases)
    times = [case.milliseconds for case in cases if case.best_distance is not None]
    times = times or [case.milliseconds for case in cases]
    return {
        "system": system,
        "model": {"name": identity.name, "fingerprint": identity.fingerprint},
        "notes": sum(count.notes for count in reader.catalog.counts()),
        "passages": reader.catalog.live(),
        "prompts": {
            "answerable": sum(case.answerable for case in cases),
            "unanswerable": sum(not case.answerable for case in cases),
        },
        "retrieval": {name: whole[name] for name in RETRIEVAL},
        "injection": {name: whole[name] for name in INJECTION},
        "intervals": intervals(cases),
        "by_kind": _by(cases, lambda case: case.prompt.kind),
        "by_voice": _by(cases, lambda case: case.prompt.voice),
        "curve": [
            {"coverage": round(point.coverage, 4), "risk": round(point.risk, 4)} for point in points
        ],
        "aurc": None if not points else round(curves.area(points) or 0.0, 4),
        "thresholds": bar,
        "latency_ms": {
            "p50": round(float(np.percentile(times, 50)), 3),
            "p95": round(float(np.percentile(times, 95)), 3),
        },
        "cases": [
            {
                "id": case.prompt.id,
                "outcome": case.outcome,
                "reason": case.reason,
                "injected": [keys[0] for keys in case.injected],
                "relevant": list(case.prompt.relevant),
                "best_distance": case.best_distance,
                "gap": case.gap,
            }
            for case in cases
        ],
    }


def curve(cases: Sequence[Case]) -> list[curves.Point]:
    """Return the risk at each coverage by the first candidate, borderline ones left out."""
    judged = [case for case in cases if not case.first_is_borderline]
    return curves.risk_coverage(
        [case.confidence for case in judged], [not case.first_is_right for case in judged]
    )


def _by(cases: Sequence[Case], group: Callable[[Case], str]) -> dict[str, dict[str, Any]]:
    names = sorted({group(case) for case in cases})
    found = {}
    for name in names:
        members = [case for case in cases if group(case) == name]
        known = {key: value for key, value in figures(members).items() if value is not None}
        found[name] = {"prompts": len(members), **known}
    return found
