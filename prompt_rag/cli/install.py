"""``install``, ``uninstall`` and ``touched``: the hook in the settings of agent hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from prompt_rag import config as configuration
from prompt_rag import configfile, installing, settingsfile
from prompt_rag.cli import output
from prompt_rag.domain import ConfigError
from prompt_rag.installing import HOSTS, Host, Plan

HOST = click.argument("host_name", metavar="HOST", required=False)
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the change and make none.")

Refusals = list[tuple[str, ConfigError]]


@click.command()
@HOST
@click.option("--all", "every", is_flag=True, help="Every host that is found on this machine.")
@DRY_RUN
@output.json_option
@output.quiet_option
def install(host_name: str | None, every: bool, dry_run: bool, as_json: bool, quiet: bool) -> None:
    """Put the hook into the settings of HOST.

    HOST is claude, codex, vscode, qwen, cursor, gemini, kimi, opencode or copilot (experimental).
    Its settings keep everything else as it is, and a copy of them is left beside them.
    """
    hosts = _hosts(host_name, every, lambda host: host.is_here and not host.experimental)
    home = configuration.load().home
    plans, refused = _planned(hosts, home, installing.install, every=every)
    if not dry_run:
        install_all(plans)
    _show(plans, refused, "installed", dry_run=dry_run, as_json=as_json, quiet=quiet)


@click.command()
@HOST
@click.option("--all", "every", is_flag=True, help="Every host that has it.")
@DRY_RUN
@output.json_option
@output.quiet_option
def uninstall(
    host_name: str | None, every: bool, dry_run: bool, as_json: bool, quiet: bool
) -> None:
    """Take the hook out of the settings of HOST.

    They become what they were before, as far as nobody else has changed them since.
    """
    hosts = _hosts(host_name, every, lambda _host: True)
    home = configuration.load().home
    plans, refused = _planned(hosts, home, installing.uninstall, every=every)
    if every:
        plans = [plan for plan in plans if plan.change.is_needed]
    if not dry_run:
        for plan in plans:
            settingsfile.apply(plan.change, keep_backup=False)
        installing.remove_launcher(home)
    _show(plans, refused, "removed", dry_run=dry_run, as_json=as_json, quiet=quiet)


def install_all(plans: list[Plan]) -> None:
    """Write the launcher, then the settings that name it. Raises ConfigError, OSError."""
    if plans:
        config = configuration.load()
        configfile.prepare_home(config)
        installing.write_launcher(config.home)
    for plan in plans:
        settingsfile.apply(plan.change, keep_backup=True)


def _hosts(name: str | None, every: bool, wanted: Callable[[Host], bool]) -> list[Host]:
    if (name is None) != every:
        raise click.UsageError(f"Name one HOST of {', '.join(HOSTS)}, or say --all.")
    return [installing.named(name)] if name else [each for each in HOSTS.values() if wanted(each)]


def _planned(
    hosts: list[Host], home: Path, plan: Callable[[Host, Path], Plan], *, every: bool
) -> tuple[list[Plan], Refusals]:
    """Plan all before anything is done; of ``--all`` one host does not stop the others."""
    plans: list[Plan] = []
    refused: Refusals = []
    for host in hosts:
        try:
            plans.append(plan(host, home))
        except ConfigError as error:
            if not every:
                raise
            refused.append((host.name, error))
    return plans, refused


def _show(
    plans: list[Plan],
    refused: Refusals,
    done: str,
    *,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    if as_json:
        output.print_json(
            {
                "dry_run": dry_run,
                "hosts": [_document(plan, done) for plan in plans],
                "refused": [{"host": name, "why": error.message} for name, error in refused],
            }
        )
    elif dry_run:
        for plan in plans:
            click.echo(plan.change.diff(), nl=False)
    for plan in plans:
        verb = done if plan.change.is_needed else f"nothing to do, {_state(done)}"
        if dry_run and plan.change.is_needed:
            verb = f"would be {done}"
        output.say(f"{plan.host.title}: {verb} ({plan.change.file.path})", quiet=quiet)
        if plan.then and not dry_run:
            output.say(f"  {plan.then}", quiet=quiet)
    for name, error in refused:
        output.say(f"Warning: {name} was left out: {error.message}")
    if not plans and not refused:
        output.say("there is no host to do it for", quiet=quiet)
    if refused:
        raise click.exceptions.Exit(1)


def _state(done: str) -> str:
    return "it is there" if done == "installed" else "it is not there"


def _document(plan: Plan, done: str) -> dict[str, Any]:
    file = plan.change.file
    return {
        "host": plan.host.name,
        "settings": file.path,
        "action": done if plan.change.is_needed else "none",
        "diff": plan.change.diff(),
        "experimental": plan.host.experimental,
        "note": plan.then,
    }


@click.command()
@click.option("--host", default="claude", show_default=True, help="The agent host that calls.")
@click.option("--home", help="The folder of the index; default: the user's.")
def touched(host: str, home: str | None) -> None:
    """Note that an agent edited files: its JSON on stdin. Notes among them are synced soon.

    Always exits 0, prints nothing and never waits for the sync. `install` registers it.
    """
    from prompt_rag import hook as hot_path  # `prompt-rag touched` itself starts in __main__

    hot_path.main(["--host", host, *(["--home", home] if home else [])])
