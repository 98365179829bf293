"""``tune --report``: what was fitted, as one page that needs nothing but a browser.

Prompts and notes are untrusted text: all of it goes through :func:`_text`, and the page's own
policy forbids scripts and anything from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from prompt_rag import policy, tuning
from prompt_rag.calibration import Calibration
from prompt_rag.cli import output, plots, reasons
from prompt_rag.cli.plots import Mark, Series
from prompt_rag.domain import Thresholds, Verdict
from prompt_rag.evaluation import Case
from prompt_rag.policy import FEATURES
from prompt_rag.tuning import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

WORST = 8
"""Prompts of each kind of mistake that are shown."""
LONGEST_PROMPT = 400
SHOWN_RATE = 0.10
"""The curves end at this share of false injections; nobody would tolerate more."""
BINS = 8

STYLE = """
:root{--ink:#1d2731;--soft:#5b6874;--rule:#dde3e8;--paper:#fff;--panel:#f6f8fa;
--c0:#1f6f9f;--c1:#d9722e;--c2:#7a8793;--c3:#b9a23a}
@media (prefers-color-scheme:dark){:root{--ink:#e4e9ee;--soft:#9aa7b2;--rule:#36414b;
--paper:#161b20;--panel:#1e252c;--c0:#5eb0e0;--c1:#ee9355;--c2:#8e9aa5;--c3:#d3bd5a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1320px;padding:28px 24px 60px;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:26px;margin:0 0 4px}h2{font-size:17px;margin:0 0 2px}
p{margin:0 0 10px;color:var(--soft);max-width:75ch}
section{background:var(--panel);border:1px solid var(--rule);border-radius:8px;padding:16px 18px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:18px;
margin-top:18px}
dl{display:flex;flex-wrap:wrap;gap:8px 34px;margin:14px 0 0}
dt{color:var(--soft);font-size:13px}dd{margin:0;font-size:20px;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;display:block}
svg text{font-size:12px;fill:var(--ink)}svg text.name{fill:var(--soft)}
svg text.label{paint-order:stroke;stroke:var(--panel);stroke-width:5px}
.grid{stroke:var(--rule)}.mark{stroke:var(--ink);stroke-dasharray:4 3}
.even{fill:none;stroke:var(--soft);stroke-dasharray:2 4}.track{fill:var(--rule);opacity:.5}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}
.l0{stroke:var(--c0);stroke-width:3}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}
article{border-top:1px solid var(--rule);padding:10px 0 8px}
article:first-of-type{border-top:0}
blockquote{margin:0 0 4px;font-weight:600;white-space:pre-wrap;overflow-wrap:anywhere}
ul{margin:4px 0 0;padding:0;list-style:none;font-variant-numeric:tabular-nums}
li{overflow-wrap:anywhere}li b{display:inline-block;min-width:3.2em;font-weight:600}
.small{font-size:13px;color:var(--soft);overflow-wrap:anywhere}
"""


def page(cases: Mapping[str, Sequence[Case]], fitted: Calibration, rate: float) -> str:
    """Return the page, HTML.

    ``cases`` are those of each system on the same prompts; "prompt-rag" must be among them and
    hold answerable and unanswerable prompts. Curves, bars and the calibration plot are over
    predictions for prompts that were held out of the fit.
    """
    judged = cases["prompt-rag"]
    table = tuning.rows(judged)
    probability = tuning.held_out(table, tuple(FEATURES))
    bar = fitted.thresholds
    limited = (table.column("distance") <= bar.max_distance) & (table.column("gap") >= bar.min_gap)
    injected = table.searched & limited & (probability >= bar.min_probability)
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy"',
            " content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>prompt-rag: how sure is sure</title><style>{STYLE}</style></head><body>",
            _head(table, injected, fitted, rate),
            '<div class="two">',
            _curves(cases, table, probability, injected),
            _calibration(table, probability),
            _distances(table, fitted),
            _probabilities(table, probability, bar),
            _kinds(judged, table, injected),
            _own(fitted.facts),
            "</div>",
            '<div class="two">',
            _false_injections(judged, fitted),
            _misses(judged, fitted),
            "</div></body></html>\n",
        ]
    )


def _text(words: str, longest: int = LONGEST_PROMPT) -> str:
    """Return untrusted text for the page: cut, on one line, escaped."""
    return escape(output.one_line(words, longest))


def _section(title: str, explanation: str, *parts: str) -> str:
    return (
        f"<section><h2>{escape(title)}</h2><p>{escape(explanation)}</p>{''.join(parts)}</section>"
    )


def _head(table: Rows, injected: Array, fitted: Calibration, rate: float) -> str:
    answerable, spoken = table.answerable, injected & ~table.neutral
    hits, falsely = injected & table.right, injected & table.wrong & ~answerable
    facts = {
        "answerable prompts with the right note": _share(hits.sum(), answerable.sum()),
        "unanswerable prompts with a note": _share(falsely.sum(), (~answerable).sum()),
        "of what was injected, right": _share(hits.sum(), spoken.sum()),
        "min_probability": f"{fitted.thresholds.min_probability:.3f}",
        "max_distance": f"{fitted.thresholds.max_distance:.3f}",
        "min_gap": f"{fitted.thresholds.min_gap:.3f}",
    }
    rows = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    return (
        "<h1>How sure is sure</h1>"
        f"<p>{_text(fitted.model)}, fitted for at most {rate:.1%} false injections on"
        f" {int(answerable.sum())} prompts that some note answers and"
        f" {int((~answerable).sum())} that none does. Everything but the lists of mistakes is over"
        " prompts that were held out of the fit.</p>"
        f"<dl>{rows}</dl>"
    )


def _share(part: Any, whole: Any) -> str:
    return f"{int(part) / int(whole):.1%}" if whole else "none"


def _curves(
    cases: Mapping[str, Sequence[Case]], table: Rows, probability: Array, injected: Array
) -> str:
    series = []
    for name, judged in cases.items():
        rows = table if name == "prompt-rag" else tuning.measured(judged)
        sure = (
            np.where(table.searched, probability, -np.inf)
            if name == "prompt-rag"
            else np.array([-np.inf if c.confidence is None else c.confidence for c in judged])
        )
        series.append(Series(name, sweep(rows, sure)))
    used = int((injected & table.wrong & ~table.answerable).sum()) / int((~table.answerable).sum())
    return _section(
        "What each system finds at the same price",
        "Each point is a bar. To the right more prompts that no note answers get one; upward more"
        " answerable prompts get the right one.",
        plots.curves(
            series,
            "coverage against the rate of false injections, by system",
            ("unanswerable prompts with a note", "answerable prompts with the right one"),
            x_to=SHOWN_RATE,
            used=Mark(used, "the bar"),
        ),
    )


def sweep(table: Rows, sure: Array) -> list[tuple[float, float]]:
    """Return ``(false-injection rate, coverage)`` for every bar on ``sure``, strictest first.

    ``sure`` is ``(n,)``, larger is surer, minus infinity where nothing can be injected.
    """
    false, right = table.wrong & ~table.answerable, table.right
    unanswerable, answerable = int((~table.answerable).sum()), int(table.answerable.sum())
    points = [(0.0, 0.0)]
    for bar in np.unique(sure[np.isfinite(sure)])[::-1]:
        let_in = sure >= bar
        points.append(
            (
                int((let_in & false).sum()) / unanswerable,
                int((let_in & right).sum()) / answerable,
            )
        )
    return points


def _calibration(table: Rows, probability: Array) -> str:
    use = table.searched & ~table.neutral
    predicted, right = probability[use], table.right[use]
    bins = [
        (float(predicted[part].mean()), float(right[part].mean()), len(part))
        for part in np.array_split(np.argsort(predicted, kind="stable"), BINS)
        if len(part)
    ]
    return _section(
        "Is the probability one?",
        "Prompts in groups of equal size: what was predicted for them, and how often it was right."
        " On the dotted line the number means what it says.",
        plots.calibration(bins, "predicted probability against observed share"),
    )


def _distances(table: Rows, fitted: Calibration) -> str:
    distance = table.column("distance")
    marks = [Mark(fitted.thresholds.max_distance, "max_distance")]
    alone = fitted.distance_gap
    if alone is not None:
        marks.append(Mark(alone.max_distance, "max_distance of distance-gap"))
        if alone.sure_distance > 0:
            marks.append(Mark(alone.sure_distance, "its sure_distance"))
    return _section(
        "How near the first note is",
        "Where the two overlap, distance alone cannot tell them apart.",
        plots.mirrored(
            ("answerable, first note right", distance[table.right].tolist()),
            ("unanswerable", distance[table.searched & ~table.answerable].tolist()),
            "distances of answerable and unanswerable prompts",
            "cosine distance",
            marks=marks,
        ),
    )


def _probabilities(table: Rows, probability: Array, bar: Thresholds) -> str:
    return _section(
        "How sure it is of the first note",
        "The same prompts by the probability that everything measured gives them.",
        plots.mirrored(
            ("answerable, first note right", probability[table.right].tolist()),
            ("unanswerable", probability[table.searched & ~table.answerable].tolist()),
            "probabilities of answerable and unanswerable prompts",
            "probability",
            marks=[Mark(bar.min_probability, "min_probability")],
        ),
    )


def _kinds(cases: Sequence[Case], table: Rows, injected: Array) -> str:
    kinds = np.array([case.prompt.kind or "(none)" for case in cases])

    def rows(members: Array, counted: Array) -> list[tuple[str, int, int]]:
        return [
            (kind, int((injected & counted & members & (kinds == kind)).sum()), int(whole))
            for kind in sorted(set(kinds[members].tolist()))
            if (whole := (members & (kinds == kind)).sum())
        ]

    return _section(
        "By kind of prompt",
        "At the bar: answerable prompts that get the right note, and unanswerable ones that get"
        " any.",
        plots.bars(rows(table.answerable, table.right), "coverage by kind", "c0"),
        plots.bars(rows(~table.answerable, table.wrong), "false injections by kind", "c1"),
    )


def _own(facts: Mapping[str, Any]) -> str:
    drawn = facts.get("own_notes")
    if not drawn:
        return ""
    rows = [
        (kind.removeprefix("own-"), round(each["queries"] * each["found_first"]), each["queries"])
        for kind, each in drawn.items()
    ]
    return _section(
        "Lines of your own notes as queries",
        "How many found their note first, with the passages they come from left out. Titles are"
        " easier than prompts.",
        plots.bars(rows, "own notes found by their own lines", "c2"),
    )


# --- mistakes -----------------------------------------------------------------------------------


def _false_injections(cases: Sequence[Case], fitted: Calibration) -> str:
    found = [
        (case, verdict)
        for case, verdict in _ruled(cases, fitted)
        if not case.answerable and not case.first_is_borderline
    ]
    found.sort(key=lambda each: -(each[1].probability or 0.0))
    return _section(
        "The worst false injections",
        "Prompts that no note answers, and the note that is surest all the same; as the fitted"
        " weights would have it.",
        *[_mistake(case, verdict, fitted.thresholds) for case, verdict in found[:WORST]],
    )


def _misses(cases: Sequence[Case], fitted: Calibration) -> str:
    found = [
        (case, verdict)
        for case, verdict in _ruled(cases, fitted)
        if case.answerable and not (verdict.accepted and case.first_is_right)
    ]
    found.sort(key=lambda each: (each[1].probability or 0.0, each[0].prompt.id))
    return _section(
        "The worst misses",
        "Prompts that a note answers and that do not get it, the least sure first.",
        *[_mistake(case, verdict, fitted.thresholds) for case, verdict in found[:WORST]],
    )


def _ruled(cases: Sequence[Case], fitted: Calibration) -> list[tuple[Case, Verdict]]:
    """Return each case that was looked up and found something, with the word on its first note."""
    return [
        (case, policy.decide(case.candidates, fitted.thresholds, fitted.weights).verdicts[0])
        for case in cases
        if case.searched and case.candidates
    ]


def _mistake(case: Case, verdict: Verdict, bar: Thresholds) -> str:
    first = verdict.candidate
    relevant = set(case.prompt.relevant)
    rank = next((i for i, keys in enumerate(case.ranked, start=1) if relevant & set(keys)), None)
    wanted = ""
    if case.answerable:
        place = f"found at rank {rank}" if rank else "not found at all"
        wanted = f"; wanted: {_text(', '.join(case.prompt.relevant), 120)} ({place})"
    word = "injected" if verdict.accepted else "not injected"
    return (
        f"<article><blockquote>{_text(case.prompt.prompt)}</blockquote>"
        f'<div class="small">{_text(case.prompt.kind or "no kind", 40)}; first note:'
        f" {_text(first.note.title, 80)} ({_text(first.note.key, 80)}, distance"
        f" {first.distance:.3f}), {word}: {_text(verdict.why, 120)}{wanted}</div>"
        f"{_list(reasons.sentences(verdict, bar), _sentence)}</article>"
    )


def _list(items: Sequence[str], item: Callable[[str], str]) -> str:
    return f"<ul>{''.join(item(each) for each in items)}</ul>" if items else ""


def _sentence(sentence: str) -> str:
    amount, _, words = sentence.partition(" ")
    return f"<li><b>{escape(amount)}</b> {escape(words)}</li>"
