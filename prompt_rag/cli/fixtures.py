"""The fixtures that come with the program: made-up people's notes and labelled prompts."""

from __future__ import annotations

from pathlib import Path

import prompt_rag_fixtures
from prompt_rag_fixtures import bear_database

from prompt_rag.config import SourceSettings
from prompt_rag.domain import LabelledPrompt
from prompt_rag.evaluation import load_prompts

FOLDER = Path(prompt_rag_fixtures.__file__).parent
# The name of a source is that of its folder; each voice has its own prompts beside it.
MARKDOWN_VOICES = {"work": "markdown", "til": "til", "ops": "ops"}


def prompts() -> list[LabelledPrompt]:
    """Return the labelled prompts of all voices."""
    return [
        prompt for file in sorted(FOLDER.glob("prompts*.jsonl")) for prompt in load_prompts(file)
    ]


def sources(
    home: Path, voices: tuple[str, ...] = (*MARKDOWN_VOICES, "bear")
) -> list[SourceSettings]:
    """Return the notes of some voices as sources; the Bear database is built below ``home``."""
    found = [
        SourceSettings(voice, "markdown", FOLDER / folder)
        for voice, folder in MARKDOWN_VOICES.items()
        if voice in voices and (FOLDER / folder).is_dir()
    ]
    if "bear" in voices:
        database = home / "bear.sqlite"
        if not database.exists():
            bear_database.build(database, bear_database.read_notes(FOLDER / "bear"))
        found.append(SourceSettings("bear", "bear", database))
    return found
