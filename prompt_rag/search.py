"""Prompt to candidates to decision: the one place where a reader of the index is composed.

A :class:`Reader` holds a generation's catalog, its vectors and the model. It is used by one thread
at a time and never writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from prompt_rag import (
    calibration,
    candidates,
    chunking,
    embedder,
    generations,
    hosts,
    policy,
    prompts,
    redaction,
    rendering,
    vectors,
)
from prompt_rag.catalog import Catalog
from prompt_rag.config import Config
from prompt_rag.domain import (
    Candidate,
    Decision,
    Embedder,
    Excerpt,
    Reason,
    Thresholds,
)
from prompt_rag.vectors import ExactIndex

if TYPE_CHECKING:
    from prompt_rag.domain import Vector


class Reader:
    """An open index with its model, ready to be asked.

    Raises from :meth:`open` and :meth:`follow`: :class:`IndexMissing`, :class:`IndexIncompatible`,
    :class:`IndexDamaged`, :class:`ModelUnavailable`, :class:`ConfigError`.
    """

    catalog: Catalog
    _index: vectors.HnswIndex | ExactIndex
    _generation: generations.Generation
    _revision: int
    thresholds: Thresholds | None
    weights: policy.Weights | None
    distance_gap: Thresholds | None
    """What distance and gap would decide by alone; only measurements use it."""

    def __init__(self, config: Config, work: Embedder, *, any_thread: bool = False) -> None:
        self.embedder = work
        self._any_thread = any_thread
        self._stamp: tuple[int, ...] | None = None
        self.take_settings(config)
        self._open(generations.current(config.home))

    @classmethod
    def open(
        cls,
        config: Config,
        make_embedder: Callable[[], Embedder] | None = None,
        *,
        any_thread: bool = False,
    ) -> Reader:
        """Load the model and the current generation of ``config``'s home."""
        generations.current(config.home)  # a missing index is said before half a second is spent
        work = make_embedder() if make_embedder is not None else load_embedder(config)
        return cls(config, work, any_thread=any_thread)

    @property
    def generation(self) -> str:
        """The id of the generation that is open."""
        return self._generation.id

    def take_settings(self, config: Config) -> None:
        """Use the settings and the calibration that hold now. Raises :class:`ConfigError`."""
        fitted = calibration.of_model(self.embedder.identity, config.settings, config.home)
        self.config = config
        self.thresholds = fitted.thresholds if fitted is not None else None
        self.weights = fitted.weights if fitted is not None else None
        self.distance_gap = fitted.distance_gap if fitted is not None else None

    def follow(self) -> None:
        """See what was committed or published since the last call; microseconds where nothing was.

        On an error the reader goes on with what it had open.
        """
        stamp = generations.stamp(self.config.home)
        if stamp is None or stamp != self._stamp:
            generation = generations.current(self.config.home)
            if generation.id != self._generation.id:
                old = self.catalog
                self._open(generation)
                old.close()
            self._stamp = stamp
        revision = self.catalog.revision()
        if revision != self._revision:
            self._index = vectors.follow(self._index, self._generation, self.catalog)
            self._revision = revision

    def _open(self, generation: generations.Generation) -> None:
        catalog = Catalog.open(
            generation.catalog,
            self.embedder.identity,
            chunker_version=chunking.version(self.config.settings.tiers),
            any_thread=self._any_thread,
        )
        try:
            revision = catalog.revision()
            index = vectors.load(generation, catalog)
        except BaseException:
            catalog.close()
            raise
        self.catalog = catalog
        self._index = index
        self._generation = generation
        self._revision = revision

    def close(self) -> None:
        """Close the catalog."""
        self.catalog.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- candidates ----------------------------------------------------------------------------

    def candidates(
        self,
        query: str,
        *,
        tags: Collection[str] = (),
        source: str | None = None,
        vector: Vector | None = None,
    ) -> list[Candidate]:
        """Return the notes nearest to ``query``, best first, each with its best passage.

        Notes that hold the same passage are one candidate that names the others in ``note.also``.
        ``tags`` (any of them, with those below) and ``source`` narrow the search exactly.
        """
        if vector is None:
            vector = self.embedder.embed_query(query)
        with self.catalog.snapshot():
            if not tags and source is None:
                return candidates.find(query, vector, self.catalog, self._index)
            labels = self.catalog.labels_where(tags, source)
            part = ExactIndex(*self.catalog.matrix(labels.tolist()))
            return candidates.find(query, vector, self.catalog, part, by_word=False)

    # --- decisions -----------------------------------------------------------------------------

    def decide(
        self,
        prompt: str,
        *,
        wide: bool = False,
        unseen: Callable[[Candidate], bool] | None = None,
    ) -> Decision:
        """Return what the hook does with ``prompt``, and all that led to it.

        ``wide`` lowers the bar to that of a search. ``unseen`` says whether a candidate may be
        shown (a session has not been shown it yet); one that may not makes room for the next only
        if that passes on its own.
        """
        clock = _Clock()
        reason = hosts.untyped(prompt)
        question = prompts.question(prompt) if not reason else None
        reason = reason or (question.reason if question is not None else "")
        clock.stop("parse")
        if reason or question is None:
            return self._decision(clock, Reason(reason))
        if self.thresholds is None:
            return self._decision(clock, Reason.UNCALIBRATED, query=question.query)
        bar = _widened(self.thresholds) if wide else self.thresholds
        vector = self.embedder.embed_query(question.query)
        clock.stop("embed")
        found = self.candidates(question.query, vector=vector)
        clock.stop("search")
        ruling = policy.decide(found, bar, None if wide else self.weights)
        accepted = [verdict.candidate for verdict in ruling.verdicts if verdict.accepted]
        fresh = [each for each in accepted if unseen is None or unseen(each)]
        reason = ruling.reason if fresh or not accepted else Reason.ALREADY_SHOWN
        clock.stop("decide")
        excerpts, block = render(fresh, self.config)
        if fresh and not block:  # nothing but invisible characters, or no room for an excerpt
            reason = Reason.NO_NOTES
        clock.stop("render")
        return self._decision(
            clock,
            Reason(reason),
            query=question.query,
            verdicts=ruling.verdicts,
            excerpts=excerpts,
            block=block,
            best_distance=ruling.best_distance,
            gap=ruling.gap,
            thresholds=bar,
        )

    def _decision(self, clock: _Clock, reason: Reason, **known: object) -> Decision:
        return Decision(
            outcome="inject" if reason is Reason.CONFIDENT else "abstain",
            reason=reason,
            generation=self.generation,
            model=self.embedder.identity.name,
            timings_ms=clock.total(),
            **known,  # type: ignore[arg-type]  # names and types are those of Decision
        )


class _Clock:
    """Milliseconds between stops."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._timings: dict[str, float] = {}

    def stop(self, stage: str) -> None:
        now = time.perf_counter()
        self._timings[stage] = round((now - self._last) * 1000, 3)
        self._last = now

    def total(self) -> Mapping[str, float]:
        return {
            **self._timings,
            "total": round((time.perf_counter() - self._start) * 1000, 3),
        }


def load_embedder(config: Config, *, threads: int = 1) -> Embedder:
    """Load the configured model. Raises :class:`ModelUnavailable`."""
    files = embedder.locate(config.settings.model_name, config.home)
    return embedder.FastEmbedder(files, threads=threads)


def render(accepted: Sequence[Candidate], config: Config) -> tuple[tuple[Excerpt, ...], str]:
    """Return excerpts and block for what was accepted, secrets masked; nothing for nothing."""
    if not accepted:
        return (), ""
    excerpts = rendering.excerpts(
        accepted,
        max_excerpts=config.settings.max_excerpts,
        max_chars=config.settings.max_chars,
        mask=redaction.mask,
    )
    # Titles, headings and paths hold secrets too, so the last step looks at all of it.
    return excerpts, rendering.block(
        excerpts, max_chars=config.settings.max_chars, mask=redaction.mask
    )


def _widened(bar: Thresholds) -> Thresholds:
    distance = max(bar.search_distance, bar.max_distance)
    return replace(bar, max_distance=distance, min_gap=-2.0, sure_distance=distance)
