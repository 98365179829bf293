"""Measure on the public evaluation set of bear-app-rag: 25 Bear notes, 20 retrieval queries.

``python benchmarks/public_set.py FOLDER [SYSTEM …]`` with the folder that holds ``notes.json`` and
``queries.json`` prints JSON. The notes go through a Bear database and the Bear source, as a
person's would. Nothing is tuned on this set.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prompt_rag_fixtures.bear_database import BearNote, build

from prompt_rag import config as configuration
from prompt_rag import evaluation, indexing
from prompt_rag.config import SourceSettings
from prompt_rag.domain import LabelledPrompt
from prompt_rag.search import Reader

TAG_FILTER = "tag_filter"  # queries that list notes of a tag: no retrieval by meaning


def main() -> None:
    folder = Path(sys.argv[1])
    raw_notes = json.loads((folder / "notes.json").read_text(encoding="utf-8"))
    raw_queries = json.loads((folder / "queries.json").read_text(encoding="utf-8"))
    prompts = [
        _prompt(raw) for raw in raw_queries if raw.get("expected_note_pks") and not _filters(raw)
    ]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        database = home / "bear.sqlite"
        build(database, [_note(raw) for raw in raw_notes])
        source = SourceSettings("bear", "bear", database)
        config = replace(configuration.load(home), sources=(source,))
        indexing.rebuild(config)
        with Reader.open(config) as reader:
            for system in sys.argv[2:] or ["prompt-rag", "bm25", "like"]:
                cases = evaluation.run(system, reader, prompts)
                document = evaluation.report(system, reader, cases)
                misses = [
                    {"id": case.prompt.id, "relevant": case.prompt.relevant, "ranked": first}
                    for case in cases
                    if (first := [keys[0] for keys in case.ranked[:5]])
                    and not set(case.prompt.relevant) <= set(first)
                ]
                results[system] = {
                    "prompts": len(cases),
                    "retrieval": document["retrieval"],
                    "injection": document["injection"],
                    "not_all_in_first_five": misses,
                }
    json.dump(results, sys.stdout, indent=2)
    print()


def _note(raw: dict[str, Any]) -> BearNote:
    when = datetime.fromisoformat(raw["modified_at"]).replace(tzinfo=UTC)
    tags = " ".join(f"#{tag}#" if " " in tag else f"#{tag}" for tag in raw["tags"])
    return BearNote(
        uid=f"PK-{raw['pk']}",
        title=raw["title"],
        text=f"{raw['text']}\n\n{tags}\n",
        created=when,
        modified=when,
    )


def _filters(raw: dict[str, Any]) -> bool:
    return "tag" in raw["type"]


def _prompt(raw: dict[str, Any]) -> LabelledPrompt:
    return LabelledPrompt(
        id=raw["id"],
        prompt=raw["query"],
        relevant=tuple(f"bear:PK-{pk}" for pk in raw["expected_note_pks"]),
        kind=raw["type"],
        split="test",
        keywords=tuple(raw["expected_keywords"]),
    )


if __name__ == "__main__":
    main()
