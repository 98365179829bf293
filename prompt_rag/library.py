"""The notes as somebody asks for them directly: found, read in full, listed, counted.

What is answered is a record of :mod:`prompt_rag.replies`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_rag import (
    calibration,
    chunking,
    embedder,
    generations,
    indexing,
    launch,
    policy,
    redaction,
    rendering,
    replies,
    wire,
)
from prompt_rag import config as configuration
from prompt_rag.catalog import Catalog
from prompt_rag.domain import (
    ConfigError,
    Note,
    NoteUnknown,
    PromptRagError,
    Skipped,
    SourceError,
    Unchanged,
)
from prompt_rag.replies import (
    Hits,
    NoteLines,
    NoteText,
    Problem,
    SourceLine,
    State,
    TagCount,
    Tags,
)
from prompt_rag.search import Reader
from prompt_rag.shared_model import SharedEmbedder

if TYPE_CHECKING:
    from prompt_rag.config import Config
    from prompt_rag.domain import NoteHead

PAGE_CHARS = 40_000
"""Most characters of a note at once: about 10,000 tokens, from where Claude Code warns of a tool's
output (https://code.claude.com/docs/en/mcp)."""
NAMES_TOLD = 5  # notes that answer to an ambiguous name
DAEMON_SECONDS = 0.5  # it answers in a millisecond, or is stuck

NOTHING = "Nothing in the notes is near this. Say so; do not guess what they might hold."
ONLY_WEAK = (
    "Only weak matches: suggestions at most. Read a note before relying on it, and say that it may"
    " not be what was meant."
)
SOME_STRONG = "Read a note in full with read_note before relying on it, and name its path."


class AskedWrongly(PromptRagError):
    """The question itself makes no sense: an empty query, or a date that is none."""


class Library:
    """The notes of one home. Used by one thread at a time; only a search keeps anything open.

    Every method raises :class:`PromptRagError` where it cannot be done.
    """

    home: Path

    def __init__(self, home: Path) -> None:
        self.home = home
        self._reader: Reader | None = None

    def close(self) -> None:
        """Close what is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def search(self, query: str, tags: Sequence[str] = (), limit: int = 5) -> Hits:
        """Return the notes nearest to ``query``, at most ``limit``.

        ``tags`` (any of them, with those below) narrow the search.
        """
        if not query.strip():
            raise AskedWrongly("the query is empty")
        reader = self._opened()
        vector = reader.embedder.embed_query(query)
        everywhere = reader.candidates(query, vector=vector)
        found = reader.candidates(query, tags=tags, vector=vector) if tags else everywhere
        # The bar was measured on all notes: with fewer rivals a lead says less.
        strong: set[str] = set()
        if reader.thresholds is not None:
            ruling = policy.decide(everywhere, reader.thresholds, reader.weights)
            strong = {each.candidate.passage.id for each in ruling.verdicts if each.accepted}
            within = reader.thresholds.search_distance
            found = [each for each in found if each.distance <= within]
        hits = [replies.hit(each, strong=each.passage.id in strong) for each in found[:limit]]
        if not hits:
            return Hits([], NOTHING)
        return Hits(hits, SOME_STRONG if any(hit.strong for hit in hits) else ONLY_WEAK)

    def read(self, name: str, offset: int = 0) -> NoteText:
        """Return the note that answers to ``name``: its id, path, uri or title.

        Raises :class:`NoteUnknown` where that is none or several, :class:`SourceError` where the
        note cannot be read now.
        """
        config = configuration.load(self.home)
        with self._catalog(config) as catalog:
            head = _one(catalog.find_notes(name), name)
            known = catalog.fingerprints(head.source)
        note = _from_source(config, head, known)
        text, masked = redaction.mask(rendering.harmless(note.text))
        end = offset + PAGE_CHARS
        return NoteText(
            id=head.id,
            title=replies.line(note.title),
            source=head.source,
            path=replies.line(head.key),
            uri=replies.line(head.uri),
            created_at=replies.instant(note.created_at),
            modified_at=replies.instant(note.modified_at),
            tags=[replies.line(tag) for tag in note.tags],
            text=text[offset:end],
            offset=min(offset, len(text)),
            next_offset=end if end < len(text) else None,
            total_chars=len(text),
            masked=masked,
        )

    def notes(
        self,
        tag: str | None = None,
        since: str | None = None,
        before: str | None = None,
        title: str | None = None,
        limit: int = 50,
    ) -> NoteLines:
        """Return the newest notes, at most ``limit``, that fulfil all that is given.

        ``since`` and ``before`` are dates or instants in ISO 8601; without a zone they are meant
        in the time of this machine, and a date is the beginning of its day. ``title`` is a part of
        the title, in any case.
        """
        start, end = _parsed(since), _parsed(before)
        with self._catalog(configuration.load(self.home)) as catalog:
            heads = catalog.notes_where([tag] if tag else (), since=start, before=end)
        if title:
            wanted = title.casefold()
            heads = [head for head in heads if wanted in head.title.casefold()]
        return NoteLines(len(heads), [replies.note_line(head) for head in heads[:limit]])

    def tags(self) -> Tags:
        """Return all tags with their counts."""
        with self._catalog(configuration.load(self.home)) as catalog:
            counts = catalog.tag_counts()
        return Tags([TagCount(replies.line(tag), notes) for tag, notes in counts])

    def state(self, version: str) -> State:
        """Return what there is, and what is wrong with it."""
        config = configuration.load(self.home)
        problems: list[PromptRagError] = []
        calibrated = False
        built_at = written_at = None
        counts: list[SourceLine] = []
        identity = None
        try:
            files = embedder.locate(config.settings.model_name, config.home)
            identity = embedder.identity_of(files)
            fitted = calibration.of_model(identity, config.settings, config.home)
            calibrated = fitted is not None
        except PromptRagError as error:
            problems.append(error)
        try:
            generation = generations.current(config.home)
            tiers = chunking.version(config.settings.tiers)
            with Catalog.open(generation.catalog, identity, chunker_version=tiers) as catalog:
                counts = [
                    SourceLine(each.source, each.notes, each.passages) for each in catalog.counts()
                ]
                built_at = replies.instant(catalog.created_at)
                written_at = replies.instant(_written_at(generation.catalog))
        except PromptRagError as error:
            problems.append(error)
        return State(
            version=version,
            model=config.settings.model_name,
            daemon=_daemon(config),
            calibrated=calibrated,
            built_at=built_at,
            written_at=written_at,
            notes=sum(each.notes for each in counts),
            passages=sum(each.passages for each in counts),
            sources=counts,
            problems=[
                Problem(placeless(error.message, self.home), placeless(error.hint, self.home))
                for error in problems
            ],
        )

    def _catalog(self, config: Config) -> Catalog:
        return Catalog.open(generations.current(config.home).catalog)

    def _opened(self) -> Reader:
        """Return the reader, following settings, commits and generations."""
        config = configuration.load(self.home)
        reader = self._reader
        if reader is not None and reader.config == config:
            reader.take_settings(config)  # somebody may have run `tune`
            reader.follow()
            return reader
        self.close()
        self._reader = Reader.open(config, lambda: SharedEmbedder(config), any_thread=True)
        return self._reader


# --- notes ---------------------------------------------------------------------------------------


def _one(found: Sequence[NoteHead], name: str) -> NoteHead:
    if not found:
        raise NoteUnknown(
            f"no note in the index answers to {replies.line(name)!r}",
            "search_notes or list_notes give the id of a note",
        )
    if len(found) > 1:
        named = ", ".join(
            f"{replies.line(head.key)} (source {head.source}, id {head.id})"
            for head in found[:NAMES_TOLD]
        )
        raise NoteUnknown(
            f"{len(found)} notes answer to {replies.line(name)!r}: {named}",
            "read_note with one of the ids",
        )
    return found[0]


def _from_source(config: Config, head: NoteHead, known: dict[str, str]) -> Note:
    """Read the note behind ``head`` where it lives. ``known`` spares reading the others."""
    settings = next((each for each in config.sources if each.name == head.source), None)
    if settings is None:
        raise ConfigError(f"the source {head.source} is no longer set up", "prompt-rag source list")
    source = indexing.make_source(settings)
    paths = None
    if settings.kind == "markdown" and settings.path is not None:
        paths = [settings.path / head.key]
    for item in source.scan({**known, head.key: ""}, paths):
        if item.key != head.key or isinstance(item, Unchanged):
            continue
        if isinstance(item, Note):
            return item
        if isinstance(item, Skipped):
            raise SourceError(
                f"{replies.line(head.key)} cannot be read now: {item.why}",
                f"prompt-rag inspect {head.id}",
            )
        break
    raise NoteUnknown(f"{replies.line(head.key)} no longer exists in {head.source}", "sync_notes")


# --- time and state ------------------------------------------------------------------------------


def _parsed(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text.strip())
        return when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise AskedWrongly(
            f"{replies.line(text)!r} is no date", "write it as 2026-05-31 or 2026-05-31T14:00"
        ) from error


def _written_at(catalog: Path) -> datetime:
    """Return when something was last committed; commits wait in the log while readers stay."""
    log = catalog.with_name(f"{catalog.name}-wal")
    found = [file.stat() for file in (catalog, log) if file.exists()]
    return datetime.fromtimestamp(max(each.st_mtime for each in found if each.st_size), UTC)


def _daemon(config: Config) -> str:
    if config.settings.daemon == "off" or not wire.has_sockets():
        return "off"
    soon = time.monotonic() + DAEMON_SECONDS
    try:
        wire.ask(str(config.home), {"kind": "status"}, soon, start=False)
    except wire.Unanswered as error:
        return "does not answer" if error.reason == wire.DEADLINE else "not running"
    return "running"


# --- what is wrong -------------------------------------------------------------------------------


def placeless(text: str, home: Path) -> str:
    """Return a message or a hint without the folders of this machine that are no notes.

    What lies below the user's own folder is told from ``~`` on.
    """
    for folder, name in (
        (wire.runtime_folder(str(home)), "RUNTIME"),
        (str(configuration.config_file(home)), "config.toml"),
        (str(home), "PROMPT_RAG_HOME"),
        (launch.PARENT, "INSTALLATION"),
        (sys.prefix, "INSTALLATION"),
        (str(Path.home()), "~"),
    ):
        text = text.replace(folder, name)
    return replies.clean(text)
