"""The command line: its commands, and the only place that turns errors into exit codes.

========  ==========================================================================
 exit      meaning
========  ==========================================================================
 0         done
 1         a known failure: ``Error: …`` and, where a command mends it, ``Hint: …``
 2         the command was called wrongly
 3         unexpected: a log file with the traceback is named
 130       interrupted
========  ==========================================================================

Commands are loaded when they are called: ``status`` does not pay for the model of ``search``.
"""

from __future__ import annotations

import importlib
import io
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from prompt_rag import __version__, config, fsio
from prompt_rag.domain import PromptRagError

KNOWN_FAILURE = 1
UNEXPECTED = 3
INTERRUPTED = 130

COMMANDS = {
    "init": "setup:init",
    "source": "setup:source",
    "config": "settings:config_group",
    "model": "settings:model",
    "rebuild": "index:rebuild",
    "sync": "index:sync",
    "status": "status:status",
    "inspect": "index:inspect",
    "forget": "index:forget",
    "search": "ask:search",
    "explain": "ask:explain",
    "why": "log:why",
    "stats": "log:stats",
    "replay": "replay:replay",
    "feedback": "feedback:feedback",
    "pause": "log:pause",
    "daemon": "resident:daemon",
    "demo": "demo:demo",
    "eval": "evaluate:evaluate",
    "tune": "tune:tune",
    "install": "install:install",
    "uninstall": "install:uninstall",
    "hook": "ask:hook",
    "touched": "install:touched",
    "mcp": "serve_mcp:mcp",
}
"""Every command and where it is defined, in the order `--help` lists them."""


class _ReaderGone(Exception):
    """Whoever read our output (head, less) reads no more."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command, None where there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(f"prompt_rag.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where somebody mistyped one."""
        if self.get_command(ctx, args[0]) is None:
            from difflib import get_close_matches  # only after a mistake

            near = get_close_matches(args[0], COMMANDS, n=1)
            if near:
                raise click.UsageError(
                    f"No such command '{args[0]}'. Did you mean '{near[0]}'?", ctx
                )
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; `--help` prints here."""
        with _reader_gone():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _reader_gone():
            return super().invoke(ctx)


@contextmanager
def _reader_gone() -> Iterator[None]:
    """Keep a broken pipe from click, which would make it exit code 1."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="prompt-rag")
def cli() -> None:
    """Put the notes you forgot beside the prompt you type.

    A hook looks every prompt up in your Bear notes and Markdown files and adds the excerpts it is
    confident of, or nothing. Everything stays on this machine.

    Start with `prompt-rag init`.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code of the table above."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no note stops at a terminal's encoding
    try:
        result = cli.main(args=arguments, prog_name="prompt-rag", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        return _exit_code(error)
    return result if isinstance(result, int) else 0


def _exit_code(error: BaseException) -> int:
    """Tell a person what went wrong, on stderr, and return the exit code that stands for it."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            click.echo("Interrupted.", err=True)
            return INTERRUPTED
        case click.ClickException():
            error.show()
            return error.exit_code
        case PromptRagError():
            click.echo(f"Error: {error.message}", err=True)
            if error.hint:
                click.echo(f"Hint: {error.hint}", err=True)
            return KNOWN_FAILURE
        case _ReaderGone():
            # Nothing more can be printed, at exit neither.
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return 0
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            click.echo(f"Error: {place}{error.strerror or error}", err=True)
            return KNOWN_FAILURE
        case _:
            click.echo(f"Error: unexpected: {type(error).__name__}: {error}", err=True)
            click.echo(f"Hint: the details are in {_write_log(error)}", err=True)
            return UNEXPECTED


def _write_log(error: BaseException) -> str:
    """Write an exception with versions to a log file and return its path."""
    head = (
        f"{datetime.now(UTC).isoformat(timespec='seconds')}\n"
        f"prompt-rag {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
        f"command: {sys.argv[1:2]}\n\n"
    )
    trace = "".join(traceback.format_exception(error))
    try:
        home = config.default_home()
        fsio.private_folder(str(home))
        file = home / "error.log"
        fsio.write_atomic(str(file), (head + trace).encode("utf-8", "replace"))
    except OSError as failure:
        click.echo(head + trace, err=True)
        return f"the lines above (no log file: {failure.strerror})"
    return str(file)
