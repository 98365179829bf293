"""A home with a few real notes, and the command line run on it in this process."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prompt_rag import cli

OLD = time.time() - 3600  # what was written just now may change again within a tick

NOTES = {
    "work/wiki-token.md": """---
tags: [work/docs, secrets]
---
# Rotating the wiki token

## TL;DR

The wiki token is rotated with `wikictl token rotate --grace 24h`; the old one works for a day.

## Steps

Open the vault entry called wiki/deploy, run the command on bastion-2, paste the new token into the
CI variable WIKI_TOKEN, and check that the nightly export still logs in. Tell the docs channel.
""",
    "work/postgres-locks.md": """# Which transaction holds a lock in Postgres

`pg_blocking_pids(pid)` names the sessions that a waiting session is blocked by; join it with
pg_stat_activity to see their queries, and end the oldest idle transaction with
pg_terminate_backend once its owner agrees.
""",
    "home/rye-bread.md": """---
tags: [kitchen]
---
# Rye bread

Mix 500 g of rye flour with 420 g of water and the sourdough starter, let it rise for sixteen hours
at room temperature, and bake it for an hour at 220 degrees in a closed pot.
""",
    "home/tomatoes.md": """# Tomatoes on the balcony

Water them every evening in July, pinch out the side shoots, and give potash once the first fruit
sets. #garden
""",
}
QUESTION = "how do we rotate the wiki token?"
TLDR = "The wiki token is rotated with `wikictl token rotate --grace 24h`"
FAR = "who won the chess championship in 1987?"

# Not those of the calibration, which may be fitted anew any day.
CONFIG = """[thresholds]
max_distance = 0.5
min_gap = 0.05
min_probability = 0.0
search_distance = 0.8
"""


def write_notes(folder: Path, notes: dict[str, str] | None = None) -> Path:
    for key, text in (NOTES if notes is None else notes).items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (OLD, OLD))
    return folder


@dataclass(frozen=True)
class Result:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout; anything beside it is an error."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def hint(self) -> str:
        """The command that the last line on stderr names, after a known failure."""
        assert self.code == 1, (self.out, self.err)
        assert self.out == ""
        *before, error, hint = self.err.splitlines()
        assert not before
        assert error.startswith("Error: ")
        return hint.removeprefix("Hint: ")


class Terminal(io.TextIOWrapper):
    """A stdin behind which somebody sits."""

    def isatty(self) -> bool:
        return True


class CommandLine:
    """Runs commands on ``home``, which is the ``PROMPT_RAG_HOME`` of the test."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]
    ) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.home = folder / "home"
        self.environment = monkeypatch
        self._capture = capture
        monkeypatch.setenv("PROMPT_RAG_HOME", str(self.home))
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(
        self, *arguments: str | Path, stdin: bytes = b"", terminal: bool = False
    ) -> Result:
        """Run a command; ``terminal`` says that somebody can be asked."""
        self._capture.readouterr()
        with self.environment.context() as context:
            context.setattr(
                sys, "stdin", (Terminal if terminal else io.TextIOWrapper)(io.BytesIO(stdin))
            )
            code = cli.run([str(each) for each in arguments])
        out, err = self._capture.readouterr()
        return Result(code, out.decode(), err.decode())

    def configure(self, more: str = "") -> None:
        self.home.mkdir(exist_ok=True)
        source = f'[[source]]\nname = "notes"\nkind = "markdown"\npath = "{self.notes}"\n'
        (self.home / "config.toml").write_text(CONFIG + more + source)

    def build(self) -> None:
        write_notes(self.notes)
        self.configure()
        assert self("rebuild", "--quiet").code == 0

    def write(self, key: str, text: str) -> Path:
        write_notes(self.notes, {key: text})
        return self.notes / key
