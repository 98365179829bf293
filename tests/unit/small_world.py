"""A home, a folder of notes and a model without weights, for tests of what works on an index."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from prompt_rag import generations, indexing
from prompt_rag.catalog import Catalog
from prompt_rag.config import SETTING_FIELDS, Config, Settings, SourceSettings
from prompt_rag.domain import BuildReport, EmbedderIdentity

DIM = 384
IDENTITY = EmbedderIdentity("fake", "f" * 64, DIM, True, "", "", 256)
OLD = time.time() - 3600  # files of just now may change again within a tick, so they are read twice


@dataclass
class FakeEmbedder:
    """A bag of words, hashed: a pure function of the text. ``texts`` are the passages embedded."""

    identity: EmbedderIdentity = IDENTITY
    texts: list[str] = field(default_factory=list)
    fails_at: str = "\0"

    def count_tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def embed_query(self, text: str) -> Any:
        vector = np.zeros(self.identity.dim, dtype=np.float32)
        for word in text.casefold().split():
            bare = word.strip(".,;:!?()#`\"'")
            if bare:
                place = int.from_bytes(sha256(bare.encode()).digest()[:4], "big")
                vector[place % self.identity.dim] += 1.0
        length = float(np.linalg.norm(vector))
        if not length:
            vector[0] = length = 1.0
        return vector / np.float32(length)

    def embed_passages(self, texts: Sequence[str]) -> Iterator[tuple[int, Any]]:
        for position in sorted(range(len(texts)), key=lambda each: -len(texts[each])):
            if self.fails_at in texts[position]:
                raise RuntimeError("the model broke")
            self.texts.append(texts[position])
            yield position, self.embed_query(texts[position])


class World:
    """Everything below one folder: ``notes`` (the source "notes"), ``home``, and a model."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        self.home = folder / "home"
        self.model = FakeEmbedder()
        self.sources = [SourceSettings("notes", "markdown", self.notes)]
        self.settings = Settings(**{"max_distance": 0.7, "min_gap": 0.05, **settings})

    @property
    def config(self) -> Config:
        origins = dict.fromkeys(SETTING_FIELDS, "default")
        file = self.home / "config.toml"
        return Config(self.home, file, self.settings, tuple(self.sources), origins)

    def set(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)

    def write(self, key: str, text: str, *, age: float = 0.0) -> Path:
        """Write a note that was last changed an hour and ``age`` seconds ago."""
        path = self.notes / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (OLD - age, OLD - age))
        return path

    def remove(self, key: str) -> None:
        (self.notes / key).unlink()

    def move(self, old: str, new: str) -> None:
        (self.notes / new).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.notes / old, self.notes / new)

    def rebuild(self, **options: Any) -> BuildReport:
        return indexing.rebuild(self.config, make_embedder=lambda: self.model, **options)

    def sync(self, **options: Any) -> BuildReport:
        self.model.texts.clear()
        return indexing.sync(self.config, make_embedder=lambda: self.model, **options)

    def catalog(self, **options: Any) -> Catalog:
        return Catalog.open(generations.current(self.home).catalog, **options)

    def indexed(self, source: str = "notes") -> set[str]:
        with self.catalog() as catalog:
            return set(catalog.fingerprints(source))

    def content(self) -> dict[tuple[str, str], list[tuple[str, ...]]]:
        """Return all that an index says, without labels: by source and key, its passages."""
        found = {}
        with self.catalog() as catalog:
            assert catalog.check() == []
            for source in catalog.sources():
                for head in _heads(catalog, source):
                    found[source, head.key] = [
                        (each.text_hash, each.kind, *each.heading_path, each.text)
                        for each in catalog.passages_of(head.id)
                    ]
        return found

    def generations(self) -> list[str]:
        folder = self.home / "generations"
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    def bytes(self) -> dict[str, bytes]:
        """Return every file of the home; what SQLite puts beside a database must be empty."""
        found = {}
        for path in sorted(self.home.rglob("*")):
            if path.name.endswith("-shm") or not path.is_file():
                continue
            data = path.read_bytes()
            if path.name.endswith("-wal") and not data:
                continue
            found[str(path.relative_to(self.home))] = data
        return found


def _heads(catalog: Catalog, source: str) -> Iterable[Any]:
    for key in catalog.fingerprints(source):
        (head,) = [each for each in catalog.find_notes(key) if each.source == source]
        yield head


def words(topic: str, count: int = 40) -> str:
    """Return a paragraph on a topic: words of its own, so that topics are far from each other."""
    return " ".join(f"{topic}{number}" for number in range(count)) + "."


def note(title: str, *sections: tuple[str, str]) -> str:
    """Return a note with a section for each heading and topic."""
    parts = [f"# {title}"]
    for heading, topic in sections:
        parts.append(f"## {heading}\n\n{words(topic)}")
    return "\n\n".join(parts) + "\n"
