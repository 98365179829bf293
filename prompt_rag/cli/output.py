"""What commands print: one JSON document, or tables and progress for a person.

Results go to stdout, everything else to stderr; bars only on a terminal. rich honours ``NO_COLOR``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from prompt_rag.indexing import Progress as Report

WIDTH_OF_PIPE = 10_000

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress and no messages.")


def _default(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(document: Any) -> None:
    """Print ``document`` on stdout: indented, UTF-8, one newline at the end."""
    data = orjson.dumps(document, default=_default, option=orjson.OPT_INDENT_2)
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def say(message: str, *, quiet: bool = False) -> None:
    """Print a message for a person on stderr."""
    if not quiet:
        click.echo(message, err=True)


def print_table(columns: list[str], rows: list[list[str]], *, right: tuple[int, ...] = ()) -> None:
    """Print a plain table on stdout; ``right`` names the columns of numbers."""
    table = Table(box=None, pad_edge=False, show_edge=False, show_header=any(columns))
    for position, column in enumerate(columns):
        table.add_column(
            column,
            justify="right" if position in right else "left",
            overflow="fold",
            no_wrap=position in right,
        )
    for row in rows:
        table.add_row(*[plain(cell) for cell in row])
    console().print(table)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line, as with every other way of printing."""
        raise  # noqa: PLE0704  # rich calls this where it has caught a BrokenPipeError


def console() -> Console:
    """Return the console of stdout: no markup from notes, no colour into files."""
    # What reads a pipe wants one line for each row, however long a path is.
    width = None if sys.stdout.isatty() else WIDTH_OF_PIPE
    return _Console(markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def plain(text: str) -> str:
    """Return ``text`` on one line, without what could move a terminal's cursor."""
    return "".join(char if char.isprintable() else " " for char in text)


def whole(text: str) -> str:
    """Return an argument as text that can be encoded: a shell can pass any bytes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def one_line(text: str, length: int = 100) -> str:
    """Return the start of ``text`` on one line."""
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


@contextmanager
def progress(*, quiet: bool) -> Iterator[Report]:
    """Give a progress report to work in the block: a bar on a terminal, else nothing."""
    if quiet or not sys.stderr.isatty():
        yield lambda _stage, _done, _total: None
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    words = {"scan": "reading notes", "embed": "embedding notes"}
    with bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(words.get(stage, stage), total=total or None, rate="")
            task = next(each for each in bar.tasks if each.id == tasks[stage])
            rate = f"{task.speed:.0f}/s" if task.speed else ""
            bar.update(tasks[stage], completed=done, total=total or None, rate=rate)

        yield report


def age(when: datetime | None) -> str:
    """Return how long ago an instant was, in the largest unit that fits."""
    if when is None:
        return "unknown"
    seconds = max(0.0, (datetime.now(UTC) - when).total_seconds())
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
