"""The command line with the model that comes with the program, loaded once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_world import CommandLine

from prompt_rag import embedder
from prompt_rag.embedder import DEFAULT_MODEL, FastEmbedder, ModelFiles


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> FastEmbedder:
    return FastEmbedder(embedder.locate(DEFAULT_MODEL, tmp_path_factory.mktemp("models")))


@pytest.fixture
def run(
    tmp_path: Path,
    model: FastEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> CommandLine:
    """An empty home, no notes yet."""

    def load(_files: ModelFiles, *, threads: int = 1) -> FastEmbedder:
        return model

    monkeypatch.setattr(embedder, "FastEmbedder", load)
    return CommandLine(tmp_path, monkeypatch, capsysbinary)


@pytest.fixture
def built(run: CommandLine) -> CommandLine:
    """A home whose index holds the notes."""
    run.build()
    return run
