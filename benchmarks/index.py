"""Measure indexing against fastembed alone: notes a second and the peak of memory.

``python benchmarks/index.py`` prints JSON on stdout and a table on stderr. *Ours* is a whole
rebuild: reading, cutting, embedding, storing, and the graph. *fastembed* only embeds the same
passages, 16 a batch in the order they come, on as many threads. Both start with a loaded model, in
processes of their own, in turns on the same notes. ``--notes DIR`` takes the Markdown notes of any
folder; without it the fixtures' are varied until there are enough.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prompt_rag import chunking, embedder, indexing
from prompt_rag import config as configuration
from prompt_rag.cli import fixtures
from prompt_rag.config import Config, SourceSettings
from prompt_rag.domain import Note

THREADS = 2
THEIR_BATCH = 16


def main() -> None:
    options = _options()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options.folder)))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        notes = _notes(options.notes, folder / "all", options.count)
        sample = folder / "sample"
        _copy(random.Random(7).sample(notes, min(options.sample, len(notes))), sample)
        _child("passages", sample)
        rounds = [
            (_child("ours", sample), _child("fastembed", sample)) for _ in range(options.rounds)
        ]
        results: dict[str, Any] = {
            "notes": len(notes),
            "sample": {"notes": rounds[0][0]["notes"], "passages": rounds[0][0]["passages"]},
            "batch_tokens": embedder.BATCH_TOKENS,
            "threads": THREADS,
        }
        for name, column in zip(("ours", "fastembed"), zip(*rounds, strict=True), strict=True):
            seconds = statistics.median(each["seconds"] for each in column)
            results[name] = {
                "seconds": [each["seconds"] for each in column],
                "notes_per_second": round(results["sample"]["notes"] / seconds, 1),
                "passages_per_second": round(results["sample"]["passages"] / seconds, 1),
                "peak_mb": max(each["peak_mb"] for each in column),
            }
        ratios = [theirs["seconds"] / ours["seconds"] for ours, theirs in rounds]
        results["times_as_fast"] = round(statistics.median(ratios), 3)
        if not options.skip_all:
            results["ours_all_notes"] = _child("ours", folder / "all")
    print(json.dumps(results, indent=2))
    _table(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--notes", type=Path, help="a folder of Markdown notes")
    parser.add_argument(
        "--count", type=int, default=2000, help="most notes, for the peak of memory"
    )
    parser.add_argument("--sample", type=int, default=400, help="notes whose speed is compared")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each side takes")
    parser.add_argument("--skip-all", action="store_true", help="only compare the speed")
    parser.add_argument("--child", choices=sorted(CHILDREN), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


# --- notes --------------------------------------------------------------------------------------


def _notes(given: Path | None, folder: Path, count: int) -> list[Path]:
    """Fill ``folder`` with ``count`` notes, or as many as were given; return their paths."""
    if given is not None:
        found = sorted(path for path in given.rglob("*.md") if path.is_file())
        return _copy(found[:count], folder)
    texts = [
        path.read_text("utf-8")
        for voice in fixtures.MARKDOWN_VOICES.values()
        for path in sorted((fixtures.FOLDER / voice).rglob("*.md"))
    ]
    folder.mkdir()
    chance = random.Random(7)
    made = []
    for number in range(count):
        # Another order and another neighbour: no passage is the same text as one before.
        blocks = [*chance.choice(texts).split("\n\n"), *chance.choice(texts).split("\n\n")]
        chance.shuffle(blocks)
        kept = blocks[: chance.randint(1, len(blocks))]
        path = folder / f"note-{number}.md"
        path.write_text(f"# Note {number}\n\n" + "\n\n".join(kept), "utf-8")
        made.append(path)
    return made


def _copy(notes: Sequence[Path], folder: Path) -> list[Path]:
    folder.mkdir()
    copies = []
    for number, note in enumerate(notes):
        copies.append(folder / f"{number}-{note.name}")
        copies[-1].write_bytes(note.read_bytes())
    return copies


# --- what is run --------------------------------------------------------------------------------


def _child(kind: str, folder: Path) -> dict[str, Any]:
    """Run one side in a process of its own, so that its peak of memory is its own."""
    command = [sys.executable, __file__, "--child", kind, "--folder", str(folder)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _config(folder: Path, home: Path) -> Config:
    source = SourceSettings("notes", "markdown", folder)
    return replace(configuration.load(home), sources=(source,))


def _model(threads: int) -> embedder.FastEmbedder:
    files = embedder.locate(embedder.DEFAULT_MODEL, Path())
    return embedder.FastEmbedder(files, threads=threads)


def _ours(folder: Path) -> dict[str, Any]:
    model = _model(THREADS)
    model.embed_query("warm")
    with tempfile.TemporaryDirectory() as home:
        started = time.perf_counter()
        report = indexing.rebuild(_config(folder, Path(home)), make_embedder=lambda: model)
        seconds = time.perf_counter() - started
    return _measured(seconds, notes=report.indexed, passages=report.embedded)


def _passages(folder: Path) -> dict[str, Any]:
    """Write what is embedded of the notes beside them, in the order of the notes."""
    model = _model(1)
    limits = chunking.Limits(max_tokens=model.identity.max_tokens)
    tiers = configuration.load(folder).settings.tiers
    source = indexing.make_source(SourceSettings("notes", "markdown", folder))
    texts: dict[str, None] = {}
    for note in source.scan({}):
        if isinstance(note, Note):
            pieces = chunking.pieces(note, limits, model.count_tokens, tiers)
            texts |= dict.fromkeys(piece.embedded for piece in pieces)
    _beside(folder).write_text(json.dumps(list(texts)), "utf-8")
    return {"passages": len(texts)}


def _fastembed(folder: Path) -> dict[str, Any]:
    model = _model(1)  # registers the model under a name of its own
    most, files = model.identity.max_tokens, model.files
    del model
    from fastembed import TextEmbedding  # as anybody would use it

    name = f"{embedder.DEFAULT_MODEL} {files.weights}"
    theirs = TextEmbedding(name, specific_model_path=str(files.folder), threads=THREADS)
    theirs.model.tokenizer.enable_truncation(most)  # type: ignore[attr-defined]
    texts = json.loads(_beside(folder).read_text("utf-8"))
    list(theirs.embed(["warm"]))
    started = time.perf_counter()
    count = sum(1 for _ in theirs.embed(texts, batch_size=THEIR_BATCH))
    return _measured(time.perf_counter() - started, passages=count)


CHILDREN = {"ours": _ours, "passages": _passages, "fastembed": _fastembed}


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _measured(seconds: float, **more: int) -> dict[str, Any]:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kilobytes = most / 1024 if sys.platform == "darwin" else most
    return {"seconds": round(seconds, 2), "peak_mb": round(kilobytes / 1024, 1), **more}


def _table(results: dict[str, Any]) -> None:
    for name in ("ours", "fastembed"):
        row = results[name]
        print(
            f"{name:<10}{row['notes_per_second']:8.1f} notes/s{row['passages_per_second']:8.1f} "
            f"passages/s{row['peak_mb']:8.0f} MB",
            file=sys.stderr,
        )
    print(f"times as fast: {results['times_as_fast']} (at least 1.35)", file=sys.stderr)
    if whole := results.get("ours_all_notes"):
        print(
            f"{whole['notes']} notes, {whole['passages']} passages: {whole['seconds']} s, "
            f"{whole['peak_mb']} MB (under 700)",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
