"""Records, protocols and errors that every layer shares.

Records are frozen and slotted; instants are timezone-aware UTC; ids are strings.
Vectors are ``float32`` and, where an :class:`EmbedderIdentity` says so, of length one.

Errors::

    PromptRagError
    ├── ConfigError          a setting is unknown, of the wrong type, or its file does not parse
    ├── SourceError          a source as a whole cannot be read (missing folder, locked database)
    ├── ModelUnavailable     the embedding model is not installed, damaged, or not the expected one
    ├── IndexMissing         there is no index yet
    ├── IndexIncompatible    the index belongs to another schema or another model
    ├── IndexDamaged         the catalog itself cannot be read
    ├── WriterBusy           another process holds the writer's lock
    ├── NoteUnknown          no note answers to the name that was given
    └── DaemonUnavailable    the resident process cannot be reached or started
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    """Shape ``(dim,)``."""
    Matrix = NDArray[np.float32]
    """Shape ``(n, dim)``."""


# --- errors -----------------------------------------------------------------------------------


class PromptRagError(Exception):
    """A failure that is known and that a person can mend.

    ``message`` names the thing that is wrong; ``hint`` is the command that mends it, or "".
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(PromptRagError):
    """A setting is unknown, of the wrong type, or its file does not parse."""


class SourceError(PromptRagError):
    """A source as a whole cannot be read; what was indexed from it stays."""


class ModelUnavailable(PromptRagError):
    """The embedding model is not installed, damaged, or not the expected one."""


class IndexMissing(PromptRagError):
    """There is no index yet."""


class IndexIncompatible(PromptRagError):
    """The index belongs to another schema, chunker or model."""


class IndexDamaged(PromptRagError):
    """The catalog cannot be read; only a rebuild mends it."""


class WriterBusy(PromptRagError):
    """Another process is writing the index."""


class NoteUnknown(PromptRagError):
    """No note, or more than one, answers to the name that was given."""


class DaemonUnavailable(PromptRagError):
    """The resident process cannot be reached or started."""


# --- notes and what a scan of a source yields -------------------------------------------------

BlockKind = Literal["heading", "paragraph", "list", "fence", "table", "quote", "html", "rule"]


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level piece of a note: a heading, a paragraph, a whole list, a whole fence.

    ``text`` is the block's Markdown as it stands in the note, without HTML comments, with wiki
    links read as their text and images as their alternative text. For a heading it is the plain
    words of the heading, without marks; ``level`` is 1 to 6 for headings and 0 otherwise.
    ``line`` counts from 0 in the note's own text.
    """

    kind: BlockKind
    text: str
    line: int
    level: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """One note as its source gives it.

    ``key`` is unique within its source and stable across runs: the path below the folder in NFC
    with ``/``, or ``bear:<unique identifier>``. ``fingerprint`` is what the source compares on the
    next scan to tell without reading that nothing changed; "" means "read me again".
    ``text`` is the body without frontmatter.
    """

    source: str
    key: str
    title: str
    text: str
    blocks: tuple[Block, ...]
    modified_at: datetime | None
    created_at: datetime | None
    tags: tuple[str, ...]
    uri: str
    aliases: tuple[str, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The note ``key`` has the fingerprint that the index already holds; it was not read."""

    key: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """The item ``key`` was left out and ``why`` says it in a few words.

    ``keep`` is true where the item exists but could not be read now (a placeholder, no
    permission): what was indexed of it stays. It is false where it must not be in the index.
    """

    key: str
    why: str
    keep: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """The note ``key`` was asked for by path and no longer exists."""

    key: str


Scanned = Note | Unchanged | Skipped | Gone


def note_id(source: str, key: str) -> str:
    """Return a note's id: 16 hex digits of the sha256 over its source's name and its key."""
    # Names that no file system should hand out must not stop a scan.
    return sha256(f"{source}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Source(Protocol):
    """Where notes come from."""

    @property
    def name(self) -> str:
        """The name by which the configuration and the catalog know this source."""

    def scan(
        self, known: Mapping[str, str], paths: Collection[Path] | None = None
    ) -> Iterator[Scanned]:
        """Yield every note of the source, or only those at or below ``paths``.

        ``known`` maps keys in the index to their fingerprints. Without ``paths`` a key of
        ``known`` that is not yielded no longer exists; with ``paths`` the source says so itself
        with :class:`Gone`. One item that cannot be read is a :class:`Skipped`, never an error.

        Raises :class:`SourceError` where the source as a whole cannot be read.
        """


# --- passages, vectors and models --------------------------------------------------------------

PassageKind = Literal["tldr", "section"]


@dataclass(frozen=True, slots=True)
class Passage:
    """The unit that is indexed.

    ``heading_path`` leads from the note's outermost heading to the passage's own, without the
    title. ``text`` is what an excerpt shows; ``text_hash`` is the sha256 of the text that is
    embedded (title and heading path in front), so that equal hashes have equal vectors.
    """

    id: str
    note_id: str
    ordinal: int
    kind: PassageKind
    heading_path: tuple[str, ...]
    text: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """All that makes two vectors comparable; stored with the index and compared as a whole.

    ``fingerprint`` is a sha256 over the model's files and pooling; ``max_tokens`` is the longest
    input the model reads.
    """

    name: str
    fingerprint: str
    dim: int
    normalised: bool
    query_prefix: str
    passage_prefix: str
    max_tokens: int


class Embedder(Protocol):
    """Text to vectors."""

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity every vector of this embedder carries."""

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` as the model counts them, special tokens included, not truncated."""

    def embed_query(self, text: str) -> Vector:
        """Return the query's vector, shape ``(dim,)``. Raises :class:`ModelUnavailable`."""

    def embed_passages(self, texts: Sequence[str]) -> Iterator[tuple[int, Vector]]:
        """Yield ``(position, vector)`` for each text, in the order that is cheapest to compute.

        Raises :class:`ModelUnavailable`.
        """


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened to the passages of a catalog after a change number.

    ``added`` holds label and vector of passages that live now; ``removed`` holds labels that no
    longer live. A label is never used twice. ``upto`` is the change number both lead to.
    """

    upto: int
    added_labels: NDArray[np.int64]
    added_vectors: Matrix
    removed_labels: NDArray[np.int64]


class VectorIndex(Protocol):
    """Nearest passages by cosine distance (1 − cos, in [0, 2])."""

    @property
    def live(self) -> int:
        """Number of passages that can be found."""

    @property
    def change_no(self) -> int:
        """The change number this index has followed the catalog to."""

    def knn(self, vector: Vector, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return labels and distances, nearest first, ``min(k, live)`` of each."""

    def apply(self, changes: Changes) -> None:
        """Follow the catalog: add, remove, and take over ``changes.upto``."""


# --- candidates and decisions ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteHead:
    """What is shown of a note beside an excerpt. ``also`` names other origins of the same text."""

    id: str
    source: str
    key: str
    title: str
    uri: str
    modified_at: datetime | None
    tags: tuple[str, ...]
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A note with its best passage for a query, before the policy.

    ``distance`` is that of the best passage; ``rank`` counts from 1 in the order of the search;
    ``evidence`` holds further measurements by name, in the unit each name documents.
    """

    passage: Passage
    note: NoteHead
    distance: float
    rank: int
    evidence: Mapping[str, float] = field(default_factory=dict)


class Reason(StrEnum):
    """Why a decision fell as it did; a closed set, one for each outcome."""

    CONFIDENT = "confident"
    # nobody asked
    EMPTY = "empty"
    MACHINE_PROMPT = "machine-prompt"
    COMMAND = "command"
    CONTENTLESS = "contentless"
    SWITCHED_OFF = "switched-off"
    PAUSED = "paused"
    # the notes do not answer
    NO_NOTES = "no-notes"
    TOO_FAR = "too-far"
    GAP_TOO_SMALL = "gap-too-small"
    LOW_PROBABILITY = "low-probability"
    UNCALIBRATED = "uncalibrated"
    ALREADY_SHOWN = "already-shown"
    DUPLICATE_CALL = "duplicate-call"
    # it could not be done
    INDEX_MISSING = "index-missing"
    INDEX_INCOMPATIBLE = "index-incompatible"
    INDEX_DAMAGED = "index-damaged"
    MODEL_MISSING = "model-missing"
    DEADLINE = "deadline"
    DAEMON_UNAVAILABLE = "daemon-unavailable"
    BUSY = "busy"
    BAD_INPUT = "bad-input"
    BAD_CONFIG = "bad-config"
    ERROR = "error"


Outcome = Literal["inject", "abstain"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The bar. Distances are cosine distances of the model ``calibrated_for`` (a fingerprint).

    A candidate passes the hard limits with ``distance <= max_distance`` and ``gap >= min_gap``,
    where the gap is the distance of the nearest *other* note minus its own; one at or below
    ``sure_distance`` passes without more. Where the model has weights, the probability that the
    note helps must also reach ``min_probability``. ``search_distance`` is the wider bar of a search
    somebody asked for.
    """

    max_distance: float
    min_gap: float
    sure_distance: float
    search_distance: float
    calibrated_for: str
    min_probability: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's word on one candidate: whether it goes in, and ``why`` in a person's words.

    ``probability`` that it helps, where the model has weights and it came to that;
    ``contributions`` says what each feature added to its log-odds against a typical prompt.
    """

    candidate: Candidate
    accepted: bool
    why: str
    probability: float | None = None
    contributions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The trimmed text that enters the prompt; ``masked`` counts secrets hidden in it."""

    candidate: Candidate
    text: str
    truncated: bool
    masked: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """All that led to an injection or an abstention; enough to explain and to replay it.

    ``query`` is the text that was embedded ("" where none was). ``best_distance`` and ``gap`` are
    None where there was nothing to measure. ``timings_ms`` has the keys parse, embed, search,
    decide, render and total, as far as the decision went.
    """

    outcome: Outcome
    reason: Reason
    query: str = ""
    verdicts: tuple[Verdict, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    block: str = ""
    best_distance: float | None = None
    gap: float | None = None
    thresholds: Thresholds | None = None
    generation: str = ""
    model: str = ""
    timings_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a rebuild or a sync did. ``skipped`` holds ``(note, why)``; ``seconds`` is wall time.

    ``kept`` names sources that could not be read and why; what was indexed of them stays.
    ``warnings`` names sources of which something else than a note could not be read, and what.
    """

    seen: int
    indexed: int
    unchanged: int
    removed: int
    skipped: tuple[tuple[str, str], ...]
    passages: int
    embedded: int
    reused: int
    seconds: float
    generation: str
    kept: tuple[tuple[str, str], ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledPrompt:
    """A prompt whose right answer is known. ``relevant`` empty means: nothing may be injected.

    Injecting a note of ``also_ok`` is neither right nor wrong. ``keywords`` are words that a
    grounded answer would contain. ``voice`` names the group of notes it was written for.
    """

    id: str
    prompt: str
    relevant: tuple[str, ...]
    kind: str
    split: str
    also_ok: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    voice: str = ""
