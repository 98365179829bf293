"""What somebody who asks for notes directly is answered: records of plain text, numbers and lists.

Every text of a note is harmless (see :func:`prompt_rag.rendering.harmless`) and without secrets, as
in an injected block. Instants are ISO 8601 in UTC. Clients show the docstrings to a model.

The records have no slots: the MCP library would take a slot for a field's default.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prompt_rag import redaction, rendering

if TYPE_CHECKING:
    from prompt_rag.domain import Candidate, NoteHead

LINE_CHARS = 300  # longer than any title or path a person would read
EXCERPT_CHARS = 1_500  # a passage of 256 tokens has about 1,000; this only stops the odd one


@dataclass(frozen=True)
class Hit:
    """A note that a search found, with its best passage.

    `strong` is true where the passage passes the bar for being put before a person unasked; any
    other hit is a suggestion. `distance` is the cosine distance to the query (0 is equal). `also`
    names other notes that hold the same passage.
    """

    id: str
    title: str
    source: str
    path: str
    uri: str
    modified_at: str | None
    tags: list[str]
    heading: str
    excerpt: str
    distance: float
    strong: bool
    also: list[str]


@dataclass(frozen=True)
class Hits:
    """What a search found, best first, and how to take it."""

    hits: list[Hit]
    advice: str


@dataclass(frozen=True)
class NoteLine:
    """A note without its text. `path` is below the source's folder; Bear notes have an id there."""

    id: str
    title: str
    source: str
    path: str
    uri: str
    modified_at: str | None
    tags: list[str]


@dataclass(frozen=True)
class NoteText:
    """A note as it stands in its source now.

    `text` starts at `offset`; where `next_offset` is a number, the rest starts there. `masked`
    counts secrets hidden in the whole note.
    """

    id: str
    title: str
    source: str
    path: str
    uri: str
    created_at: str | None
    modified_at: str | None
    tags: list[str]
    text: str
    offset: int
    next_offset: int | None
    total_chars: int
    masked: int


@dataclass(frozen=True)
class NoteLines:
    """The newest of the notes that were asked for; `total` counts all of them."""

    total: int
    notes: list[NoteLine]


@dataclass(frozen=True)
class TagCount:
    """A tag and how many notes have it or a tag below it."""

    tag: str
    notes: int


@dataclass(frozen=True)
class Tags:
    """All tags, the most used first."""

    tags: list[TagCount]


@dataclass(frozen=True)
class SourceLine:
    """What is indexed of one source."""

    source: str
    notes: int
    passages: int


@dataclass(frozen=True)
class Problem:
    """Something that keeps the notes from being found, and what mends it."""

    what: str
    hint: str


@dataclass(frozen=True)
class State:
    """What is indexed, how fresh it is, and with what it is searched.

    `daemon` is "running", "not running" (the next search starts it), "does not answer" or "off".
    `calibrated` is false where no hit can be strong.
    """

    version: str
    model: str
    daemon: str
    calibrated: bool
    built_at: str | None
    written_at: str | None
    notes: int
    passages: int
    sources: list[SourceLine]
    problems: list[Problem]


@dataclass(frozen=True)
class Left:
    """A note or a source that was not taken in, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Synced:
    """What a sync did. `left_out` names the first of the `skipped` notes.

    What was indexed of `unread_sources` stays as it was.
    """

    seen: int
    indexed: int
    unchanged: int
    removed: int
    skipped: int
    left_out: list[Left]
    unread_sources: list[Left]
    seconds: float


def hit(candidate: Candidate, *, strong: bool) -> Hit:
    """Return what is shown of a candidate."""
    head = candidate.note
    text = clean(candidate.passage.text)
    return Hit(
        id=head.id,
        title=line(head.title),
        source=head.source,
        path=line(head.key),
        uri=line(head.uri),
        modified_at=instant(head.modified_at),
        tags=[line(tag) for tag in head.tags],
        heading=line(" > ".join(candidate.passage.heading_path)),
        excerpt=text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + " …",
        distance=round(candidate.distance, 3),
        strong=strong,
        also=[line(uri) for uri in head.also],
    )


def note_line(head: NoteHead) -> NoteLine:
    """Return what is shown of a note in a list."""
    return NoteLine(
        id=head.id,
        title=line(head.title),
        source=head.source,
        path=line(head.key),
        uri=line(head.uri),
        modified_at=instant(head.modified_at),
        tags=[line(tag) for tag in head.tags],
    )


def clean(text: str) -> str:
    """Return ``text`` harmless and without secrets."""
    return redaction.mask(rendering.harmless(text))[0]


def line(text: str) -> str:
    """Return ``text`` as one line, harmless and without secrets; a very long one is cut."""
    return " ".join(clean(text[: 2 * LINE_CHARS]).split())[:LINE_CHARS]


def instant(when: datetime | None) -> str | None:
    """Return ``when`` as text."""
    return None if when is None else when.astimezone(UTC).isoformat(timespec="seconds")
