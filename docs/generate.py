"""Write the pages that follow from the code: ``docs/cli.md`` and ``docs/configuration.md``.

``python docs/generate.py`` writes them, ``--check`` fails where they are not what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from prompt_rag.cli import cli
from prompt_rag.config import SETTING_FIELDS, Settings

DOCS = Path(__file__).parent
MADE = "<!-- made by docs/generate.py; edit the code instead -->\n\n"
WIDTH = 90


def main() -> None:
    """Write or compare all pages."""
    pages = {"cli.md": command_line(), "configuration.md": configuration()}
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


if __name__ == "__main__":
    main()
