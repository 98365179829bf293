"""Plots as inline SVG: numbers in, text out, nothing from outside the page.

Every word that is drawn is escaped. Colours are CSS classes (``c0`` to ``c3``) of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 620, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 18, 16, 46
LETTER = 6.6  # rough width of a letter at 12 px, to keep labels inside
BAR_HEIGHT, BAR_LABEL, BAR_NUMBER = 24, 170, 130


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
            f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def line(self, points: Sequence[tuple[float, float]], css: str) -> None:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{css}" points="{path}"/>')

    def mark(self, mark: Mark, row: int) -> None:
        place = self.x(mark.x)
        self.parts.append(
            f'<line class="mark" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}"'
            f' y2="{HEIGHT - BOTTOM}"/>'
        )
        left = place + 5 + LETTER * len(mark.name) > WIDTH - RIGHT
        self.text(
            place + (-5 if left else 5), TOP + 12 + 16 * row, mark.name, "end" if left else "start"
        )

    def legend(self, names: Sequence[str], x: float, y: float) -> None:
        for row, name in enumerate(names):
            self.parts.append(
                f'<rect class="c{row}" x="{x:.1f}" y="{y + 17 * row - 9:.1f}" width="11"'
                f' height="11" rx="2"/>'
            )
            self.text(x + 17, y + 17 * row + 1, name, "start")

    def done(self) -> str:
        return "".join([*self.parts, "</svg>"])


def curves(
    series: Sequence[Series], title: str, names: tuple[str, str], *, x_to: float, used: Mark
) -> str:
    """Return lines over a common axis from 0 to ``x_to``; the first is drawn on top."""
    top = max((y for each in series for x, y in each.points if x <= x_to), default=1.0)
    y_to = max(0.1, -(-top // 0.1) * 0.1)
    axes = _Axes(title, x_to, y_to)
    axes.grid([x_to * i / 5 for i in range(6)], [y_to * i / 4 for i in range(5)], ".0%")
    axes.mark(used, 0)
    for number in reversed(range(len(series))):
        axes.line(series[number].points, f"line l{number}")
    axes.legend([each.name for each in series], LEFT + 14, TOP + 16)
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
    for row, mark in enumerate(marks):
        axes.mark(mark, row)
    axes.legend([above[0], below[0]], LEFT + 14, HEIGHT - BOTTOM - 24)
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
        parts.append(
            f'<text x="{BAR_LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="track" x="{BAR_LABEL}" y="{y}" width="{room}" height="17" rx="2"/>'
            f'<rect class="{css}" x="{BAR_LABEL}" y="{y}" width="{length:.1f}" height="17" rx="2"/>'
            f'<text x="{BAR_LABEL + room + 8}" y="{y + 13}">{part / whole:.1%}'
            f" ({part} of {whole})</text>"
        )
    return "".join([*parts, "</svg>"])
