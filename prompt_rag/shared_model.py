"""The daemon's model at work for another process, so that a machine holds it in memory once."""

from __future__ import annotations

import base64
import binascii
import time
from typing import TYPE_CHECKING

import numpy as np

from prompt_rag import embedder, wire
from prompt_rag.domain import DaemonUnavailable, ModelUnavailable, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prompt_rag.config import Config
    from prompt_rag.domain import Embedder, EmbedderIdentity, Vector

KIND, EMBEDDED = "embed", "embedded"
"""What such a request is called, and the outcome of its answer."""

# A daemon that has to be started needs half a second, on a busy machine several; whoever asks here
# waits for an answer and not, as the hook, for as long as a prompt may be held up.
ASK_SECONDS = 20.0
BUSY_NAP_SECONDS = 0.05  # a full queue of prompts moves by two or three meanwhile

# Vectors travel as the catalog stores them.
_FLOAT = np.dtype("<f4")


def packed(vector: Vector) -> str:
    """Return ``vector``, ``(dim,)`` float32, as text for a frame."""
    return base64.b64encode(np.asarray(vector, _FLOAT).tobytes()).decode()


def unpacked(text: object, dim: int) -> Vector:
    """Return the vector, ``(dim,)`` float32, that :func:`packed` made a text of.

    Raises ValueError where it is none of ``dim`` finite numbers.
    """
    try:
        data = base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    if len(data) != dim * _FLOAT.itemsize:
        raise ValueError(f"{len(data)} bytes for {dim} numbers")
    vector = np.frombuffer(data, _FLOAT).astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("not finite")
    return vector


class SharedEmbedder:
    """Embeds queries by asking the daemon, which is started where none runs.

    Only where no daemon can be, the model is loaded into this process, once. Raises
    :class:`ModelUnavailable` where it is not on this machine.
    """

    def __init__(self, config: Config) -> None:
        self._home = str(config.home)
        self._files = embedder.locate(config.settings.model_name, config.home)
        self._identity = embedder.identity_of(self._files)
        self._threads = config.settings.model_threads
        self._shared = config.settings.daemon != "off" and wire.has_sockets()
        self._own: Embedder | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity of the configured model; an answer of another one is refused."""
        return self._identity

    def count_tokens(self, text: str) -> int:
        """Count with the model in this process: nothing that only searches does so."""
        return self._model().count_tokens(text)

    def embed_query(self, text: str) -> Vector:
        """Return the query's vector, ``(dim,)`` float32.

        Raises :class:`DaemonUnavailable` where the daemon does not answer in time,
        :class:`ModelUnavailable`.
        """
        if self._shared and self._own is None:
            try:
                return self._ask(text)
            except wire.Unanswered as error:
                if error.reason != wire.DAEMON_UNAVAILABLE:
                    raise DaemonUnavailable(
                        f"the resident process does not answer: {error}",
                        "prompt-rag daemon status",
                    ) from error
        return self._model().embed_query(text)

    def embed_passages(self, texts: Sequence[str]) -> Iterator[tuple[int, Vector]]:
        """Embed with the model in this process: a pile of passages would hold up the prompts."""
        return self._model().embed_passages(texts)

    def _ask(self, text: str) -> Vector:
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            reply = wire.ask(self._home, {"kind": KIND, "text": text}, deadline)
            if reply.get("outcome") == EMBEDDED:
                return self._checked(reply)
            reason = reply.get("reason")
            if reason != Reason.BUSY or time.monotonic() + BUSY_NAP_SECONDS >= deadline:
                raise wire.Unanswered(str(reason))
            time.sleep(BUSY_NAP_SECONDS)

    def _checked(self, reply: dict[str, object]) -> Vector:
        if reply.get("model") != self._identity.fingerprint:
            raise ModelUnavailable(
                "the resident process works with another model than the settings name",
                "prompt-rag daemon stop",
            )
        try:
            return unpacked(reply.get("vector"), self._identity.dim)
        except ValueError as error:
            raise wire.Unanswered(wire.BAD_INPUT, f"a vector that is none ({error})") from error

    def _model(self) -> Embedder:
        if self._own is None:
            self._own = embedder.FastEmbedder(self._files, threads=self._threads)
        return self._own
