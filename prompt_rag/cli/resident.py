"""``daemon``: look at the resident process, start it, stop it. Nobody needs to."""

from __future__ import annotations

import time
from typing import Any

import click

from prompt_rag import config as configuration
from prompt_rag import configfile, wire
from prompt_rag.cli import output
from prompt_rag.config import Config
from prompt_rag.domain import DaemonUnavailable

# Loading takes half a second; a machine that is busy may need a few.
START_SECONDS = 15.0
ASK_SECONDS = 3.0


@click.group()
def daemon() -> None:
    """The resident process that keeps the model warm; the hook starts it by itself."""


@daemon.command("start")
@output.quiet_option
def start(quiet: bool) -> None:
    """Start it, if none runs, and wait until it listens."""
    config = configuration.load()
    configfile.prepare_home(config)
    reply = _ask(config, START_SECONDS, start_one=True)
    output.say(f"running: process {reply.get('pid')}", quiet=quiet)


@daemon.command("stop")
@output.quiet_option
def stop(quiet: bool) -> None:
    """Stop it; the next prompt starts another one."""
    config = configuration.load()
    try:
        wire.ask(str(config.home), {"kind": "stop"}, time.monotonic() + ASK_SECONDS, start=False)
    except wire.Unanswered as error:
        if error.reason == wire.DEADLINE:
            raise _unavailable(config, error) from error
        output.say("none was running", quiet=quiet)
    else:
        output.say("stopped", quiet=quiet)


@daemon.command("status")
@output.json_option
def status(as_json: bool) -> None:
    """Say whether it runs, since when, and how much it has done."""
    try:
        reply = _ask(configuration.load(), ASK_SECONDS, start_one=False)
    except DaemonUnavailable as error:
        if as_json:
            output.print_json({"running": False, "why": error.message})
        else:
            click.echo(f"not running ({error.message}); the next prompt starts it")
        return
    facts = {key: value for key, value in reply.items() if key not in ("v", "outcome", "block")}
    if as_json:
        output.print_json({"running": True, **facts})
        return
    output.print_table(["", ""], [["running", "yes"], *[[k, str(v)] for k, v in facts.items()]])


def _ask(config: Config, seconds: float, *, start_one: bool) -> dict[str, Any]:
    try:
        return wire.ask(
            str(config.home), {"kind": "status"}, time.monotonic() + seconds, start=start_one
        )
    except wire.Unanswered as error:
        raise _unavailable(config, error) from error


def _unavailable(config: Config, error: wire.Unanswered) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"the resident process does not answer: {error}",
        f"see {wire.runtime_folder(str(config.home))}/daemon.log",
    )
