"""The pages that describe the program against the program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from prompt_rag.cli import COMMANDS, cli
from prompt_rag.config import SETTING_FIELDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for below in group.list_commands(context):
        command = group.get_command(context, below)
        assert command is not None
        yield f"{name} {below}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {below}")


ALL = dict(commands(cli, "prompt-rag"))


def test_every_command_is_found() -> None:
    assert {name.split()[1] for name in ALL} == set(COMMANDS)
    assert len(ALL) > len(COMMANDS)


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_and_its_place_on_the_page(name: str) -> None:
    command = ALL[name]
    assert command.help
    assert command.help[0].isupper()
    assert command.help.splitlines()[0].endswith((".", ","))
    assert f"\n## {name}\n" in PAGE.read_text()
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            assert parameter.metavar or parameter.human_readable_name.isupper()
        elif isinstance(parameter, click.Option):
            long = [each for each in parameter.opts if each.startswith("--")]
            assert long or parameter.opts == ["-k"]


@pytest.mark.parametrize("key", SETTING_FIELDS)
def test_every_setting_is_on_the_page(key: str) -> None:
    assert f"| `{key}` |" in (ROOT / "docs" / "configuration.md").read_text()


def test_the_pages_are_what_the_code_makes_them() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_page_that_is_behind_is_found(tmp_path: Path) -> None:
    """The check itself can fail."""
    for path in (ROOT / "docs").iterdir():
        if path.suffix in (".py", ".json"):
            shutil.copy(path, tmp_path)
    done = subprocess.run(
        [sys.executable, tmp_path / "generate.py", "--check"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert b"run: make docs" in done.stderr
    subprocess.run([sys.executable, tmp_path / "generate.py"], timeout=60, check=True)
    assert (tmp_path / "cli.md").read_text() == PAGE.read_text()
