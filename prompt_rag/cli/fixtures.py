"""The fixtures that come with the program: a made-up person's notes and labelled prompts."""

from __future__ import annotations

from pathlib import Path

import prompt_rag_fixtures
from prompt_rag_fixtures import bear_database

from prompt_rag.config import SourceSettings

FOLDER = Path(prompt_rag_fixtures.__file__).parent


def prompts_file() -> Path:
    """Return the file of labelled prompts."""
    return FOLDER / "prompts.jsonl"


def sources(home: Path) -> list[SourceSettings]:
    """Return the sources of the fixtures; the Bear database is built below ``home``."""
    database = home / "bear.sqlite"
    if not database.exists():
        bear_database.build(database, bear_database.read_notes(FOLDER / "bear"))
    return [
        SourceSettings("notes", "markdown", FOLDER / "markdown"),
        SourceSettings("bear", "bear", database),
    ]
