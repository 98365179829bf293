"""Notes to passages to vectors to catalog: ``rebuild`` and ``sync``.

Both hold the writer's lock. A rebuild fills a new generation aside and publishes it; a sync writes
what changed into the current one, a batch of notes a transaction, so that a killed sync has lost
nothing and the next one goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prompt_rag import chunking, configfile, embedder, fsio, generations, vectors
from prompt_rag.catalog import Catalog, IndexedNote
from prompt_rag.config import Config, SourceSettings
from prompt_rag.domain import (
    BuildReport,
    ConfigError,
    Embedder,
    EmbedderIdentity,
    Gone,
    IndexDamaged,
    IndexIncompatible,
    IndexMissing,
    Note,
    Skipped,
    Source,
    SourceError,
    Unchanged,
    WriterBusy,
    note_id,
)
from prompt_rag.sources.bear import BearSource
from prompt_rag.sources.markdown import MarkdownSource

# Notes of one batch are embedded together, sorted by length, and committed together: enough for
# the sorting to pay (benchmarks/index.py), few enough that a killed run loses under half a minute.
NOTES_PER_BATCH = 200
# A sync that would drop more than this share of a source is taken for a fault of the disk.
LARGEST_SHRINK = 0.5
FORGOTTEN = "forgotten on request"

Progress = Callable[[str, int, int], None]
"""Called with a stage ("scan" or "embed"), how much of it is done, and the total (0: unknown)."""


def no_progress(_stage: str, _done: int, _total: int) -> None:
    """Report to nobody."""


def make_source(settings: SourceSettings) -> Source:
    """Return the source that ``settings`` describe; nothing is read yet."""
    if settings.kind == "bear":
        return BearSource(settings.name, settings.path, exclude_tags=settings.exclude_tags)
    if settings.path is None:  # config.load refuses this; a record made by hand might not
        raise ConfigError(f"the source {settings.name} has no path", "prompt-rag source list")
    return MarkdownSource(
        settings.name,
        settings.path,
        include=settings.include,
        exclude=settings.exclude,
        exclude_tags=settings.exclude_tags,
    )


@dataclass(slots=True)
class _Scan:
    """What a scan of all sources found, and what follows from it."""

    changed: list[tuple[Note, str]] = field(default_factory=list)
    touched: list[Note] = field(default_factory=list)
    unchanged: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[tuple[str, SourceError]] = field(default_factory=list)
    """Sources of which everything indexed stays, and what is wrong with each."""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    carried: list[tuple[str, str]] = field(default_factory=list)
    """Source and key of notes that could not be read now; what was indexed of them stays."""
    missing: list[str] = field(default_factory=list)
    """Keys of one source that are indexed and no longer there."""
    lost: int = 0
    """How many of them are not found again under another key."""

    @property
    def seen(self) -> int:
        return len(self.changed) + len(self.touched) + self.unchanged + len(self.skipped)

    @property
    def changes(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.changed or self.touched or self.removed)

    def take(self, found: _Scan, source: str) -> None:
        """Add what was found in one source."""
        self.changed += found.changed
        self.touched += found.touched
        self.unchanged += found.unchanged
        self.skipped += found.skipped
        self.warnings += found.warnings
        self.carried += found.carried
        self.removed += found.removed
        self.removed += [note_id(source, key) for key in found.missing]

    def refusal(self) -> SourceError:
        """Return the error that says why no source at all could be taken in."""
        errors = [error for _, error in self.kept]
        return SourceError("; ".join(error.message for error in errors), errors[0].hint)


@contextlib.contextmanager
def writing(config: Config, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the writer's lock of this home. Raises :class:`WriterBusy` where another one does."""
    configfile.prepare_home(config)
    lock = fsio.Lock(str(config.home / "writer.lock"), f"prompt-rag, process {os.getpid()}\n")
    if not lock.acquire(wait_seconds):
        raise WriterBusy("another prompt-rag is writing the index right now", "prompt-rag status")
    with lock:
        yield


# --- rebuild ------------------------------------------------------------------------------------


def rebuild(
    config: Config,
    *,
    make_embedder: Callable[[], Embedder] | None = None,
    progress: Progress = no_progress,
) -> BuildReport:
    """Index everything anew, aside, then make it the current generation.

    Notes that cannot be read right now are taken over from the old generation where it fits; what
    was forgotten on request stays out.

    Raises :class:`ConfigError` without sources, :class:`SourceError` where no source can be read,
    or where one that the index holds notes of can be neither read nor taken over,
    :class:`WriterBusy`, :class:`ModelUnavailable`. On any error the old generation stays current.
    """
    started = time.monotonic()
    _require_sources(config)
    with writing(config), contextlib.ExitStack() as stack:
        model = _Model(config, make_embedder)
        old = _old_index(config, model.identity)
        if old.catalog is not None:
            stack.enter_context(old.catalog)
        scan = _scan_all_anew(config, old, progress)
        with _aside(config.home) as generation:
            version = chunking.version(config.settings.tiers)
            with Catalog.create(generation.catalog, model.identity, version) as catalog:
                catalog.forget(old.forgotten)
                counts = _Writer(catalog, model, config, progress).write(scan)
                if old.catalog is not None:
                    _carry_over(old.catalog, catalog, scan.carried)
                vectors.checkpoint(generation, catalog, force=True)
        previous = generations.publish(config.home, generation.id)
        generations.prune(config.home, keep=[previous] if previous else [])
    return _report(scan, counts, started, generation.id)


def _require_sources(config: Config) -> None:
    if not config.sources:
        raise ConfigError("there are no notes to index yet", "prompt-rag source add markdown DIR")


@contextlib.contextmanager
def _aside(home: Path) -> Iterator[generations.Generation]:
    """Give the folder of a new generation to fill; where that fails nothing of it stays."""
    generation = generations.create(home)
    try:
        yield generation
    except BaseException:
        shutil.rmtree(generation.folder, ignore_errors=True)
        raise


@dataclass(frozen=True, slots=True)
class _Old:
    """The index that a rebuild replaces, as far as it can be read.

    ``catalog`` is None where its vectors are of no use to the new one. ``known`` holds the keys of
    its notes by source.
    """

    catalog: Catalog | None = None
    forgotten: frozenset[str] = frozenset()
    known: Mapping[str, Collection[str]] = field(default_factory=dict)


def _old_index(config: Config, identity: EmbedderIdentity) -> _Old:
    """Open what there is. What was forgotten counts even where model or chunker have changed."""
    try:
        catalog = Catalog.open(generations.current(config.home).catalog)
    except (IndexMissing, IndexIncompatible, IndexDamaged):
        return _Old()  # a rebuild is what mends these
    try:
        forgotten = catalog.forgotten()
        known = {source: list(catalog.fingerprints(source)) for source in catalog.sources()}
    except IndexDamaged:
        catalog.close()
        return _Old()
    version = chunking.version(config.settings.tiers)
    # Checked as a whole: damage met while notes are taken over would end every rebuild.
    if (catalog.identity, catalog.chunker_version) == (identity, version) and not catalog.check():
        return _Old(catalog, forgotten, known)
    catalog.close()
    return _Old(None, forgotten, known)


def _scan_all_anew(config: Config, old: _Old, progress: Progress) -> _Scan:
    """Read every source. Raises :class:`SourceError` where notes would be lost by going on."""
    scan = _Scan()
    for settings in config.sources:
        source = make_source(settings)
        known = old.known.get(source.name, ())
        try:
            scan.take(_scan_anew(source, known, old.forgotten, scan.seen, progress), source.name)
        except SourceError as error:
            if known and old.catalog is None:
                raise
            scan.kept.append((source.name, error))
            scan.carried += [(source.name, key) for key in known]
    if len(scan.kept) == len(config.sources) and not scan.carried:
        raise scan.refusal()
    return scan


def _scan_anew(
    source: Source,
    known: Collection[str],
    forgotten: Collection[str],
    before: int,
    progress: Progress,
) -> _Scan:
    found = _Scan()
    # Without fingerprints every note is read; a folder that cannot be listed names its notes.
    for item in source.scan(dict.fromkeys(known, "")):
        if isinstance(item, Note):
            if note_id(source.name, item.key) in forgotten:
                found.skipped.append((item.key, FORGOTTEN))
            else:
                found.changed.append((item, content_hash(item)))
        elif isinstance(item, Skipped):
            found.skipped.append((item.key, item.why))
            if item.keep:
                found.carried.append((source.name, item.key))
        progress("scan", before + found.seen, 0)
    found.warnings += _warnings(source)
    return found


def _carry_over(old: Catalog, new: Catalog, carried: Sequence[tuple[str, str]]) -> None:
    """Copy notes with their vectors from the old generation; both have one identity."""
    ids = [note_id(source, key) for source, key in carried]
    for start in range(0, len(ids), NOTES_PER_BATCH):
        new.replace(old.stored(ids[start : start + NOTES_PER_BATCH]))


# --- sync ---------------------------------------------------------------------------------------


def sync(
    config: Config,
    *,
    paths: Collection[Path] | None = None,
    allow_shrink: bool = False,
    dry_run: bool = False,
    wait_seconds: float = 0.0,
    make_embedder: Callable[[], Embedder] | None = None,
    progress: Progress = no_progress,
) -> BuildReport:
    """Bring the current generation up to date with the sources; with ``paths`` only those files.

    A source that cannot be read keeps what was indexed of it and is named in the report. One that
    lost more than half of its notes is named too and keeps them, unless ``allow_shrink``; what
    changed in it is taken in. ``dry_run`` reports what would be done and writes nothing.

    Raises :class:`ConfigError` where there are neither sources nor an index, :class:`IndexMissing`,
    :class:`IndexIncompatible`, :class:`IndexDamaged`, :class:`WriterBusy`,
    :class:`ModelUnavailable`, and :class:`SourceError` where every source is kept as it was and
    nothing else is to be done.
    """
    started = time.monotonic()
    absolute = None if paths is None else [path.absolute() for path in paths]
    _current(config)
    model = _Model(config, make_embedder)
    guard = contextlib.nullcontext() if dry_run else writing(config, wait_seconds=wait_seconds)
    with guard:
        generation = _current(config)
        with Catalog.open(
            generation.catalog,
            model.identity,
            chunker_version=chunking.version(config.settings.tiers),
            writable=not dry_run,
        ) as catalog:
            scan = _scan_all_changes(
                config, catalog, absolute, allow_shrink=allow_shrink, progress=progress
            )
            if dry_run:
                return _report(scan, _Counts(), started, generation.id)
            catalog.touch(scan.touched)
            counts = _Writer(catalog, model, config, progress).write(scan)
            # Last, so that a note that moved finds its vectors under its old key.
            catalog.remove(scan.removed)
            vectors.checkpoint(generation, catalog)
    return _report(scan, counts, started, generation.id)


def _current(config: Config) -> generations.Generation:
    """Return the generation to bring up to date.

    Where the settings name no source any more, an index is still there to be emptied.
    """
    try:
        return generations.current(config.home)
    except IndexMissing:
        _require_sources(config)
        raise


def _scan_all_changes(
    config: Config,
    catalog: Catalog,
    paths: Collection[Path] | None,
    *,
    allow_shrink: bool,
    progress: Progress,
) -> _Scan:
    """Compare every source with the catalog. Raises :class:`SourceError` as :func:`sync` does."""
    scan = _Scan()
    for settings in config.sources:
        source = make_source(settings)
        try:
            found = _scan_changes(source, catalog, paths, scan.seen, progress)
        except SourceError as error:
            scan.kept.append((source.name, error))
            continue
        known = len(catalog.fingerprints(source.name))
        if not allow_shrink and found.lost > LARGEST_SHRINK * known:
            scan.kept.append((source.name, _shrunk(source.name, found.lost, known)))
            found.missing = []
        scan.take(found, source.name)
    if paths is None:
        scan.removed += _orphans(catalog, config)
    if scan.kept and len(scan.kept) == len(config.sources) and not scan.changes:
        raise scan.refusal()
    return scan


def _scan_changes(
    source: Source,
    catalog: Catalog,
    paths: Collection[Path] | None,
    before: int,
    progress: Progress,
) -> _Scan:
    """Compare one source with the catalog. Raises :class:`SourceError`."""
    known = catalog.fingerprints(source.name)
    hashes = catalog.content_hashes(source.name)
    forgotten = catalog.forgotten()
    found = _Scan()
    present: set[str] = set()
    for item in source.scan(known, paths):
        match item:
            case Gone(key):
                found.missing.append(key)
            case Unchanged(key):
                found.unchanged += 1
                present.add(key)
            case Skipped(key, why, keep):
                found.skipped.append((key, why))
                present.add(key)
                if key in known and not keep:
                    found.removed.append(note_id(source.name, key))
            case Note():
                present.add(item.key)
                if note_id(source.name, item.key) in forgotten:
                    found.skipped.append((item.key, FORGOTTEN))
                elif hashes.get(item.key) == (digest := content_hash(item)):
                    found.touched.append(item)
                else:
                    found.changed.append((item, digest))
        progress("scan", before + found.seen, 0)
    found.warnings += _warnings(source)
    if paths is None:
        found.missing = [key for key in known if key not in present]
    # A note that only moved is found again under another key and is not lost.
    moved = {digest for _, digest in found.changed}
    found.lost = sum(hashes[key] not in moved for key in found.missing)
    return found


def _shrunk(source: str, lost: int, known: int) -> SourceError:
    return SourceError(
        f"source {source}: {lost} of {known} notes are gone, which looks like a missing disk",
        "prompt-rag sync --allow-shrink",
    )


def _warnings(source: Source) -> list[tuple[str, str]]:
    """Return what of a source could not be read, though its notes were."""
    if not isinstance(source, BearSource):
        return []
    return [(source.name, warning) for warning in source.warnings]


def _orphans(catalog: Catalog, config: Config) -> list[str]:
    """Return the ids of notes whose source is no longer in the settings."""
    names = {source.name for source in config.sources}
    return [
        note_id(source, key)
        for source in catalog.sources()
        if source not in names
        for key in catalog.fingerprints(source)
    ]


def content_hash(note: Note) -> str:
    """Return the sha256 of what of a note ends up in the index, dates and place aside."""
    whole = hashlib.sha256()
    for part in (note.title, *note.aliases, "", *note.tags, "", note.text):
        whole.update(part.encode("utf-8", "surrogatepass"))
        whole.update(b"\0")
    return whole.hexdigest()


# --- passages and vectors -----------------------------------------------------------------------


class _Model:
    """The model of a run: its identity at once, the embedder itself only where it is needed."""

    def __init__(self, config: Config, make: Callable[[], Embedder] | None) -> None:
        self._embedder: Embedder | None = None
        if make is not None:
            self._embedder = make()
            self.identity = self._embedder.identity
        else:
            self._files = embedder.locate(config.settings.model_name, config.home)
            self._threads = config.settings.model_threads
            self.identity = embedder.identity_of(self._files)

    def embedder(self) -> Embedder:
        if self._embedder is None:
            self._embedder = embedder.FastEmbedder(self._files, threads=self._threads)
        return self._embedder


@dataclass(slots=True)
class _Counts:
    passages: int = 0
    embedded: int = 0
    reused: int = 0


class _Writer:
    """Cuts, embeds and commits changed notes, a batch at a time."""

    def __init__(self, catalog: Catalog, model: _Model, config: Config, progress: Progress) -> None:
        self._catalog = catalog
        self._model = model
        self._tiers = config.settings.tiers
        self._progress = progress
        self._counts = _Counts()

    def write(self, scan: _Scan) -> _Counts:
        if not scan.changed:
            return self._counts
        work = self._model.embedder()
        limits = chunking.Limits(max_tokens=work.identity.max_tokens)
        batches = [
            scan.changed[start : start + NOTES_PER_BATCH]
            for start in range(0, len(scan.changed), NOTES_PER_BATCH)
        ]
        done = 0
        for batch in batches:
            cut = [
                (note, digest, chunking.pieces(note, limits, work.count_tokens, self._tiers))
                for note, digest in batch
            ]
            self._commit(cut, work, done, len(scan.changed))
            done += len(batch)
            self._progress("embed", done, len(scan.changed))
        return self._counts

    def _commit(
        self,
        cut: Sequence[tuple[Note, str, Sequence[chunking.Piece]]],
        work: Embedder,
        done: int,
        total: int,
    ) -> None:
        """Embed what has no vector yet and store a batch of notes in one transaction."""
        texts = {
            piece.passage.text_hash: piece.embedded for _, _, pieces in cut for piece in pieces
        }
        found = self._catalog.vectors_by_hash(texts)
        fresh = [text_hash for text_hash in texts if text_hash not in found]
        passages = sum(len(pieces) for _, _, pieces in cut)
        self._counts.passages += passages
        self._counts.embedded += len(fresh)
        self._counts.reused += passages - len(fresh)
        embedded = work.embed_passages([texts[text_hash] for text_hash in fresh])
        for ready, (position, vector) in enumerate(embedded, start=1):
            found[fresh[position]] = vector
            self._progress("embed", done + len(cut) * ready // len(fresh), total)
        self._catalog.replace(
            IndexedNote(
                note,
                digest,
                [(piece.passage, found[piece.passage.text_hash]) for piece in pieces],
            )
            for note, digest, pieces in cut
        )


def _report(scan: _Scan, counts: _Counts, started: float, generation: str) -> BuildReport:
    return BuildReport(
        seen=scan.seen,
        indexed=len(scan.changed),
        unchanged=scan.unchanged + len(scan.touched),
        removed=len(scan.removed),
        skipped=tuple(scan.skipped),
        passages=counts.passages,
        embedded=counts.embedded,
        reused=counts.reused,
        seconds=round(time.monotonic() - started, 3),
        generation=generation,
        kept=tuple((source, _told(error)) for source, error in scan.kept),
        warnings=tuple(scan.warnings),
    )


def _told(error: SourceError) -> str:
    return f"{error.message} (hint: {error.hint})" if error.hint else error.message
