"""Write the pages that follow from code and measurements: commands, configuration, evaluation.

``python docs/generate.py`` writes them, ``--check`` fails where they are not what it would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from prompt_rag.cli import cli
from prompt_rag.config import SETTING_FIELDS, Settings

DOCS = Path(__file__).parent
MADE = "<!-- made by docs/generate.py; edit the code instead -->\n\n"
WIDTH = 90


def main() -> None:
    """Write or compare all pages."""
    pages = {
        "cli.md": command_line(),
        "configuration.md": configuration(),
        "evaluation.md": evaluation(),
    }
    if "--check" not in sys.argv:
        for name, text in pages.items():
            (DOCS / name).write_text(text, encoding="utf-8")
        return
    stale = [
        name
        for name, text in pages.items()
        if not (DOCS / name).is_file() or (DOCS / name).read_text(encoding="utf-8") != text
    ]
    if stale:
        sys.exit(f"not up to date: {', '.join(stale)}; run: make docs")


def command_line() -> str:
    """Return the reference of every command, as `--help` prints it."""
    context = click.Context(cli, info_name="prompt-rag", max_content_width=WIDTH)
    parts = [f"{MADE}# Commands\n", _help(cli, context)]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        _command(command, f"prompt-rag {name}", context, parts)
    return "\n".join(parts)


def _command(command: click.Command, name: str, parent: click.Context, parts: list[str]) -> None:
    context = click.Context(
        command, info_name=name.rpartition(" ")[2], parent=parent, max_content_width=WIDTH
    )
    parts += [f"## {name}\n", _help(command, context)]
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            child = command.get_command(context, below)
            assert child is not None
            _command(child, f"{name} {below}", context, parts)


def _help(command: click.Command, context: click.Context) -> str:
    context.terminal_width = WIDTH
    return f"```\n{command.get_help(context).rstrip()}\n```\n"


def configuration() -> str:
    """Return the reference of every setting."""
    rows = []
    for key, spec in SETTING_FIELDS.items():
        default = getattr(Settings(), spec.name)
        if default is None:
            shown = "the model's"
        elif isinstance(default, tuple):
            shown = f"`{list(default)}`".replace("'", '"')
        else:
            shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
        variable = "PROMPT_RAG_" + key.replace(".", "_").upper()
        rows.append(f"| `{key}` | {shown} | `{variable}` | {spec.metadata['doc']} |")
    table = "\n".join(rows)
    return f"""{MADE}# Configuration

Defaults < `config.toml` < `PROMPT_RAG_*` variables < flags. `prompt-rag config show` prints every
value with its origin and where the file is; `prompt-rag config set KEY VALUE` changes the file and
keeps its comments. An unknown key is an error. A project folder never configures the tool.

`PROMPT_RAG_HOME=DIR` puts everything, the configuration included, into one folder.

| key | default | variable | meaning |
|---|---|---|---|
{table}

## Sources

`prompt-rag source add` writes them; each is a `[[source]]` table:

```toml
[[source]]
name = "notes"
kind = "markdown"            # or "bear"
path = "/Users/me/notes"     # absolute; a Bear source without a path finds Bear's own database
include = ["work/**"]        # optional: only these files
exclude = ["**/drafts/**"]   # optional: not these
exclude_tags = ["private"]   # optional: notes with these tags, or tags below them, stay out
```
"""


def evaluation() -> str:
    """Return the report on quality, from what ``benchmarks/evaluation.py --write`` measured."""
    found: dict[str, Any] = json.loads((DOCS / "evaluation.json").read_text(encoding="utf-8"))
    prompts, systems = found["prompts"], found["systems"]
    voices = ", ".join(f"{voice} ({count})" for voice, count in found["voices"].items())
    main = systems["prompt-rag"]["injection"]
    return f"""{MADE}# What it reaches, and what it misses

Measured by `benchmarks/evaluation.py` on the fixtures: {found["notes"]} notes,
{prompts["answerable"]} prompts that some note answers and {prompts["unanswerable"]} that none does,
in {len(found["voices"])} voices (prompts each): {voices}. All voices' notes are in one index. Model:
{found["model"]}.

**Leave one voice out.** Weights and bar are fitted on all voices but one and applied to that one, for
each in turn: what a stranger gets. The bar is set for a rate of false injections on the voices it is
fitted on; the rate it has on the voice left out is a result.

- coverage: answerable prompts whose first injected note is relevant
- precision: injections whose first note is relevant, of all that are not borderline
- false injections: unanswerable prompts that get a note

| system | recall@5 | MRR | nDCG@10 | bar for | coverage (95 %) | precision | false injections |
|---|---|---|---|---|---|---|---|
{_systems(systems)}

`distance-gap` is distance minus a quarter of the gap in one number, `distance` the distance alone. `bm25` and
`like` are the baselines one would build first; their retrieval is over the prompts as typed.

## Which prompts get a note that they should not

Share of each kind of unanswerable prompt that is injected, for `prompt-rag`:

| kind | {" | ".join(f"bar for {entry['rate']:.0%}" for entry in main)} |
|---|{"---|" * len(main)}
{_kinds(main)}

## By voice

| voice left out | {" | ".join(f"coverage, false at {entry['rate']:.0%}" for entry in main)} |
|---|{"---|" * len(main)}
{_voices(main)}

## What each kind of evidence is worth

Coverage (and false injections) with parts of the evidence taken away, fitted anew each time:

| evidence | {" | ".join(f"bar for {rate:.0%}" for rate in (0.01, 0.02, 0.05))} |
|---|---|---|---|
{_ablation(found["ablation"])}

## Is the probability one?

Held-out predictions in five bins of equal size:

| predicted | observed | prompts |
|---|---|---|
{_bins(found["calibration"])}

## How to read this

The notes and prompts were written for the project by one author with a language model's help, in the
shapes that real prompts have; near misses (same subject as several notes, answered by none) were
checked by reading. They are harder in proportion than everyday traffic, where ordinary coding chatter
makes up most of what no note answers. The numbers of small kinds are thin. What ships is fitted on
the tune split by `benchmarks/calibrate.py` for {CALIBRATED_FOR} false injections; measure on your own
notes with `prompt-rag eval --notes DIR --prompts FILE`.
"""


CALIBRATED_FOR = "at most 0.5 %"


def _systems(systems: dict[str, Any]) -> str:
    lines = []
    for name, system in systems.items():
        found = system["retrieval"]
        head = f"| {name} | {found['recall@5']:.3f} | {found['mrr']:.3f} | {found['ndcg@10']:.3f} "
        for entry in system["injection"]:
            low, high = entry["coverage_interval"]
            lines.append(
                f"{head}| {entry['rate']:.0%} | {entry['coverage']:.3f} ({low:.3f} to {high:.3f})"
                f" | {entry['precision']:.3f} | {entry['false_injection_rate']:.3f} |"
            )
            head = "| | | | "
    return "\n".join(lines)


def _kinds(entries: list[dict[str, Any]]) -> str:
    kinds = sorted(entries[0]["false_by_kind"])
    return "\n".join(
        f"| {kind} | " + " | ".join(f"{e['false_by_kind'][kind]:.3f}" for e in entries) + " |"
        for kind in kinds
    )


def _voices(entries: list[dict[str, Any]]) -> str:
    lines = []
    for voice in sorted(entries[0]["by_voice"]):
        cells = [
            f"{entry['by_voice'][voice]['coverage']:.3f},"
            f" {entry['by_voice'][voice]['false_injection_rate']:.3f}"
            for entry in entries
        ]
        lines.append(f"| {voice} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ablation(found: dict[str, Any]) -> str:
    return "\n".join(
        f"| {name} | "
        + " | ".join(f"{e['coverage']:.3f} ({e['false_injection_rate']:.3f})" for e in entries)
        + " |"
        for name, entries in found.items()
    )


def _bins(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"| {each['predicted']:.2f} | {each['observed']:.2f} | {each['prompts']} |"
        for each in found
    )


if __name__ == "__main__":
    main()
