"""The daemon's model lent to others: the request, its answer, and what is done without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_world import IDENTITY, FakeEmbedder

from prompt_rag import answer, config, embedder, shared_model, wire
from prompt_rag.answer import Answerer
from prompt_rag.domain import DaemonUnavailable, ModelUnavailable
from prompt_rag.shared_model import SharedEmbedder, packed, unpacked

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(arrays.arrays(np.float32, 384, elements=FLOATS))
def test_a_vector_comes_out_as_it_went_in(vector: Any) -> None:
    assert unpacked(packed(vector), 384).tobytes() == vector.tobytes()
    assert unpacked(packed(vector), 384).dtype == np.float32


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "AAAA", "?", "ü", 5),
        packed(np.zeros(383, np.float32)),
        packed(np.full(384, np.nan, np.float32)),
        packed(np.full(384, np.inf, np.float32)),
    ],
)
def test_what_is_no_vector_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(text, 384)


class Asked:
    """An embedder whose daemon is a function, and what it has been asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path, mode: str = "on") -> None:
        self.model = FakeEmbedder()
        self.loads = 0
        self.requests: list[dict[str, object]] = []
        self.reply: Callable[[], dict[str, object]] = self.embedded
        monkeypatch.setattr(embedder, "locate", lambda *_: "files")
        monkeypatch.setattr(embedder, "identity_of", lambda _: IDENTITY)
        monkeypatch.setattr(embedder, "FastEmbedder", self.load)
        monkeypatch.setattr(wire, "ask", self.ask)
        home.mkdir(exist_ok=True)
        settings = {"daemon.mode": mode}
        self.embedder = SharedEmbedder(config.load(home, settings, environment={}))

    def load(self, files: object, *, threads: int) -> FakeEmbedder:
        assert (files, threads >= 1) == ("files", True)
        self.loads += 1
        return self.model

    def ask(self, _home: str, request: dict[str, object], _deadline: float) -> dict[str, object]:
        self.requests.append(request)
        return self.reply()

    def embedded(self, **more: object) -> dict[str, object]:
        vector = packed(self.model.embed_query(str(self.requests[-1]["text"])))
        return {"outcome": "embedded", "model": IDENTITY.fingerprint, "vector": vector, **more}


def unanswered(reason: str) -> Callable[[], dict[str, object]]:
    def refuse() -> dict[str, object]:
        raise wire.Unanswered(reason)

    return refuse


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    return Asked(monkeypatch, tmp_path / "home")


def test_the_daemon_embeds(asked: Asked) -> None:
    assert asked.embedder.identity == IDENTITY
    for text in ("one apple", ""):
        vector = asked.embedder.embed_query(text)
        assert np.array_equal(vector, asked.model.embed_query(text))
        assert asked.requests[-1] == {"kind": "embed", "text": text}
    assert asked.loads == 0


@pytest.mark.parametrize("mode", ["on", "off"])
def test_where_no_daemon_can_be_the_model_is_loaded_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    asked = Asked(monkeypatch, tmp_path / "home", mode)
    asked.reply = unanswered(wire.DAEMON_UNAVAILABLE)
    for _ in range(3):
        vector = asked.embedder.embed_query("one apple")
        assert np.array_equal(vector, asked.model.embed_query("one apple"))
    assert asked.loads == 1
    assert len(asked.requests) == (1 if mode == "on" else 0)


def test_a_daemon_that_is_late_is_not_replaced_by_a_second_model(asked: Asked) -> None:
    asked.reply = unanswered(wire.DEADLINE)
    with pytest.raises(DaemonUnavailable, match="deadline"):
        asked.embedder.embed_query("x")
    assert asked.loads == 0


def test_a_full_queue_is_waited_for(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_model, "BUSY_NAP_SECONDS", 0.001)
    busy = iter([True, True, False])
    asked.reply = lambda: {"reason": "busy"} if next(busy) else asked.embedded()
    assert len(asked.embedder.embed_query("x")) == IDENTITY.dim
    assert len(asked.requests) == 3


def test_one_that_stays_full_is_given_up(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_model, "BUSY_NAP_SECONDS", 0.01)
    monkeypatch.setattr(shared_model, "ASK_SECONDS", 0.05)
    asked.reply = lambda: {"outcome": "abstain", "reason": "busy"}
    with pytest.raises(DaemonUnavailable, match="busy"):
        asked.embedder.embed_query("x")


def test_an_answer_of_another_model_or_of_nonsense_is_refused(asked: Asked) -> None:
    asked.reply = lambda: asked.embedded(model="another")
    with pytest.raises(ModelUnavailable, match="another model"):
        asked.embedder.embed_query("x")
    asked.reply = lambda: asked.embedded(vector="AAAA")
    with pytest.raises(DaemonUnavailable, match="a vector that is none"):
        asked.embedder.embed_query("x")
    asked.reply = lambda: {"outcome": "abstain", "reason": "model-missing"}
    with pytest.raises(DaemonUnavailable, match="model-missing"):
        asked.embedder.embed_query("x")


def test_passages_are_embedded_here(asked: Asked) -> None:
    assert asked.embedder.count_tokens("two words") == 4
    ((position, vector),) = asked.embedder.embed_passages(["one apple"])
    assert position == 0
    assert np.array_equal(vector, asked.model.embed_query("one apple"))
    assert asked.requests == []
    assert asked.loads == 1


# --- the other end -------------------------------------------------------------------------------


def test_the_daemon_answers_without_an_index_and_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = FakeEmbedder()
    monkeypatch.setattr(answer.search, "load_embedder", lambda _config: model)
    answerer = Answerer(config.load(tmp_path))
    reply = answerer.answer({"kind": "embed", "text": "one apple"}, time.monotonic() + 5)
    assert reply["outcome"] == "embedded"
    assert reply["model"] == IDENTITY.fingerprint
    vector = unpacked(reply["vector"], IDENTITY.dim)
    assert np.array_equal(vector, model.embed_query("one apple"))
    assert wire.decode(wire.frame(reply)[4:])["vector"] == reply["vector"]
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_without_a_model_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(_config: object) -> None:
        raise ModelUnavailable("it has not been fetched")

    monkeypatch.setattr(answer.search, "load_embedder", missing)
    answerer = Answerer(config.load(tmp_path))
    reply = answerer.answer({"kind": "embed", "text": "x"}, time.monotonic() + 5)
    assert (reply["outcome"], reply["reason"]) == ("abstain", "model-missing")
