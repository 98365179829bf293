"""Plots as inline SVG: numbers in, text out, nothing from outside the page.

Every word that is drawn is escaped. Colours are CSS classes (``c0`` to ``c3``) of the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from prompt_rag.cli import output

WIDTH, HEIGHT = 620, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 34, 46
BAR_LETTERS = 21  # what BAR_LABEL has room for
LONGEST_WORDS = 40  # letters; no name of ours is longer
LETTER = 6.6  # rough width of a letter at 12 px, to keep labels inside
BAR_HEIGHT, BAR_LABEL, BAR_NUMBER = 24, 150, 130


@dataclass(frozen=True, slots=True)
class Series:
    """A line with a name; ``points`` are ``(x, y)``, drawn in their order."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the x axis that has a name, drawn as an upright line."""

    x: float
    name: str


def _words(text: str) -> str:
    """Return untrusted text as it may stand in a picture: short, visible, escaped."""
    return escape(output.one_line(text, LONGEST_WORDS))


class _Axes:
    """Maps numbers to places; ``x_to`` and ``y_to`` are the largest that are shown."""

    def __init__(self, title: str, x_to: float, y_to: float, y_from: float = 0.0) -> None:
        self.x_to, self.y_from, self.y_to = x_to, y_from, y_to
        self.parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        ]

    def x(self, value: float) -> float:
        share = min(max(value, 0.0), self.x_to) / self.x_to
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (min(max(value, self.y_from), self.y_to) - self.y_from) / (self.y_to - self.y_from)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def grid(self, xs: Sequence[float], ys: Sequence[float], form: str, y_form: str = "") -> None:
        for value in ys:
            place = self.y(value)
            self.parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}"'
                f' y2="{place:.1f}"/>'
            )
            self.text(LEFT - 7, place + 4, format(abs(value), y_form or form), "end")
        for value in xs:
            self.text(self.x(value), HEIGHT - BOTTOM + 17, format(value, form), "middle")

    def names(self, x: str, y: str) -> None:
        self.text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, x, "middle", "name")
        middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
        self.parts.append(
            f'<text class="name" text-anchor="middle" transform="translate(14 {middle:.0f})'
            f' rotate(-90)">{escape(y)}</text>'
        )

    def text(self, x: float, y: float, words: str, anchor: str, css: str = "") -> None:
        kind = f' class="{css}"' if css else ""
        self.parts.append(
            f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_words(words)}</text>'
        )

    def line(self, points: Sequence[tuple[float, float]], css: str) -> None:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{css}" points="{path}"/>')

    def marks(self, marks: Sequence[Mark]) -> None:
        """Draw all lines, then all names over them, each in a row of its own."""
        for mark in marks:
            place = self.x(mark.x)
            self.parts.append(
                f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}"'
                f' y2="{HEIGHT - BOTTOM}"/>'
            )
        for row, mark in enumerate(marks):
            place = self.x(mark.x)
            left = place + 5 + LETTER * len(mark.name) > WIDTH - RIGHT
            x, y = place + (-5 if left else 5), TOP + 12 + 16 * row
            self.text(x, y, mark.name, "end" if left else "start", "label")

    def legend(self, names: Sequence[str]) -> None:
        """Name the colours, in one line above the plot."""
        x = float(LEFT)
        for number, name in enumerate(names):
            self.parts.append(
                f'<rect class="c{number}" x="{x:.1f}" y="8" width="11" height="11" rx="2"/>'
            )
            self.text(x + 17, 18, name, "start")
            x += 17 + LETTER * len(name) + 24

    def done(self) -> str:
        return "".join([*self.parts, "</svg>"])


def curves(
    series: Sequence[Series], title: str, names: tuple[str, str], *, x_to: float, used: Mark
) -> str:
    """Return lines over a common axis from 0 to ``x_to``; the first is drawn on top."""
    shown = [[(x, y) for x, y in each.points if x <= x_to] for each in series]
    tenths = max(1, math.ceil(10 * max((y for points in shown for _, y in points), default=1.0)))
    axes = _Axes(title, x_to, tenths / 10)
    axes.grid([x_to * i / 5 for i in range(6)], [i / 10 for i in range(tenths + 1)], ".0%")
    for number in reversed(range(len(series))):
        axes.line(shown[number], f"line l{number}")
    axes.marks([used])
    axes.legend([each.name for each in series])
    axes.names(*names)
    return axes.done()


def mirrored(
    above: tuple[str, Sequence[float]],
    below: tuple[str, Sequence[float]],
    title: str,
    x_name: str,
    *,
    marks: Sequence[Mark],
    x_to: float = 1.0,
    bins: int = 40,
) -> str:
    """Return two histograms, one upward and one downward, each as shares of its own numbers."""
    heights = [_histogram(numbers, x_to, bins) for _, numbers in (above, below)]
    top = max(0.05, *heights[0], *heights[1])
    axes = _Axes(title, x_to, top * 1.25, -top * 1.05)
    axes.grid([x_to * i / 5 for i in range(6)], [-top, 0.0, top], ".1f", ".0%")
    for number, shares in enumerate(heights):
        for place, share in enumerate(shares):
            if share:
                value = share if number == 0 else -share
                y, height = min(axes.y(value), axes.y(0.0)), abs(axes.y(value) - axes.y(0.0))
                left, right = axes.x(place * x_to / bins), axes.x((place + 1) * x_to / bins)
                axes.parts.append(
                    f'<rect class="c{number}" x="{left + 0.5:.1f}" y="{y:.1f}"'
                    f' width="{right - left - 1:.1f}" height="{height:.1f}"/>'
                )
    axes.marks(marks)
    axes.legend([above[0], below[0]])
    axes.names(x_name, "share of the prompts")
    return axes.done()


def _histogram(numbers: Sequence[float], x_to: float, bins: int) -> list[float]:
    counts = [0] * bins
    for number in numbers:
        counts[min(bins - 1, max(0, int(number / x_to * bins)))] += 1
    return [count / len(numbers) if numbers else 0.0 for count in counts]


def calibration(bins: Sequence[tuple[float, float, int]], title: str) -> str:
    """Return predicted against observed shares, ``(predicted, observed, prompts)`` each."""
    axes = _Axes(title, 1.0, 1.0)
    axes.grid([i / 5 for i in range(6)], [i / 5 for i in range(6)], ".0%")
    axes.line([(0.0, 0.0), (1.0, 1.0)], "even")
    axes.line([(predicted, observed) for predicted, observed, _ in bins], "line l0")
    for predicted, observed, prompts in bins:
        axes.parts.append(
            f'<circle class="c0" cx="{axes.x(predicted):.1f}" cy="{axes.y(observed):.1f}" r="5">'
            f"<title>{predicted:.0%} predicted, {observed:.0%} observed, {prompts} prompts</title>"
            "</circle>"
        )
    axes.text(axes.x(0.9) - 8, axes.y(0.9), "as predicted", "end")
    axes.names("predicted probability", "share that was right")
    return axes.done()


def bars(rows: Sequence[tuple[str, int, int]], title: str, css: str) -> str:
    """Return a bar for each ``(name, part, whole)``, from 0 to the largest share."""
    top = max((part / whole for _, part, whole in rows), default=0.0) or 1.0
    height = BAR_HEIGHT * len(rows) + 8
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    room = WIDTH - BAR_LABEL - BAR_NUMBER
    for row, (name, part, whole) in enumerate(rows):
        y, length = BAR_HEIGHT * row + 4, part / whole / top * room
        label = escape(output.one_line(name, BAR_LETTERS))
        parts.append(
            f'<text x="{BAR_LABEL - 8}" y="{y + 13}" text-anchor="end">{label}</text>'
            f'<rect class="track" x="{BAR_LABEL}" y="{y}" width="{room}" height="17" rx="2"/>'
            f'<rect class="{css}" x="{BAR_LABEL}" y="{y}" width="{length:.1f}" height="17" rx="2"/>'
            f'<text x="{BAR_LABEL + room + 8}" y="{y + 13}">{part / whole:.1%}'
            f" ({part} of {whole})</text>"
        )
    return "".join([*parts, "</svg>"])
