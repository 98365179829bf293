"""``install``, ``uninstall`` and what ``init`` says of them; the commands as hosts run them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_world import QUESTION, TLDR, CommandLine, write_notes

from prompt_rag import installing, wire
from prompt_rag.cli.install import install as install_command
from prompt_rag.installing import HOSTS

MINE = b'{\n  // mine\n  "model": "x"\n}\n'
DEADLINE = "[hook]\ndeadline_seconds = 25.0\n"  # for a busy machine


@pytest.fixture
def claude() -> Path:
    path = HOSTS["claude"].path
    path.parent.mkdir(parents=True)
    path.write_bytes(MINE)
    return path


# --- one host -----------------------------------------------------------------------------------


def test_install_and_uninstall(run: CommandLine, claude: Path) -> None:
    result = run("install", "claude")
    assert (result.code, result.out) == (0, "")
    assert result.err == f"Claude Code: installed ({claude})\n"
    launcher = installing.launcher_path(run.home)
    assert os.access(launcher, os.X_OK)
    assert str(launcher).encode() in claude.read_bytes()
    again = run("install", "claude")
    assert again.err == f"Claude Code: nothing to do, it is there ({claude})\n"
    result = run("uninstall", "claude")
    assert result.err == f"Claude Code: removed ({claude})\n"
    assert claude.read_bytes() == MINE
    assert not launcher.exists()
    assert run("uninstall", "claude").err.startswith("Claude Code: nothing to do, it is not there")


def test_a_dry_run_shows_the_change_and_makes_none(run: CommandLine, claude: Path) -> None:
    result = run("install", "claude", "--dry-run")
    assert result.code == 0
    assert result.out.startswith(f"--- {claude}\n+++ {claude}\n@@ -1,4 +1,")
    assert '-  "model": "x"\n+  "model": "x",\n+  "hooks": {\n' in result.out
    assert result.err == f"Claude Code: would be installed ({claude})\n"
    assert claude.read_bytes() == MINE
    assert not run.home.exists()
    run("install", "claude")
    installed = claude.read_bytes()
    assert '-  "hooks": {\n' in run("uninstall", "claude", "--dry-run").out
    assert claude.read_bytes() == installed


def test_json(run: CommandLine, claude: Path) -> None:
    document = run("install", "claude", "--json").json
    (host,) = document["hosts"]
    assert host["diff"].startswith(f"--- {claude}\n")
    del host["diff"]
    assert document == {
        "dry_run": False,
        "hosts": [
            {
                "host": "claude",
                "settings": str(claude),
                "action": "installed",
                "experimental": False,
                "note": "",
            }
        ],
        "refused": [],
    }
    assert run("install", "claude", "--json", "-q").json["hosts"][0]["action"] == "none"
    assert run("uninstall", "claude", "--json").json["hosts"][0]["action"] == "removed"


def test_what_the_person_has_to_do_is_said(run: CommandLine) -> None:
    assert "type /hooks there once" in run("install", "codex").err
    assert "looked at it" not in run("install", "codex", "--dry-run").err
    assert run("install", "codex", "--quiet").err == ""


def test_a_known_failure(run: CommandLine, claude: Path) -> None:
    claude.write_bytes(b"not json")
    assert run("install", "claude").hint == f"edit {claude}"
    assert claude.read_bytes() == b"not json"
    assert not installing.launcher_path(run.home).exists()


@pytest.mark.parametrize("arguments", [(), ("claude", "--all")])
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_called_wrongly(run: CommandLine, command: str, arguments: tuple[str, ...]) -> None:
    result = run(command, *arguments)
    assert result.code == 2
    assert "Name one HOST of claude, codex" in result.err


def test_the_help_names_every_host() -> None:
    assert install_command.help is not None
    assert all(name in install_command.help for name in HOSTS)


# --- all hosts ----------------------------------------------------------------------------------


def test_all_hosts_that_are_here(run: CommandLine, claude: Path) -> None:
    for folder in (".cursor", ".copilot", ".codex"):
        (Path.home() / folder).mkdir()
    (Path.home() / ".cursor" / "hooks.json").write_bytes(b"broken")
    result = run("install", "--all", "--json")
    assert result.code == 1
    document = json.loads(result.out)
    assert [each["host"] for each in document["hosts"]] == ["claude", "codex"]
    assert [each["host"] for each in document["refused"]] == ["cursor"]
    assert "Warning: cursor was left out: " in result.err
    (Path.home() / ".cursor" / "hooks.json").unlink()
    assert run("install", "--all", "-q").code == 0
    removed = run("uninstall", "--all", "--json").json["hosts"]
    assert [each["host"] for each in removed] == ["claude", "codex", "cursor"]
    assert claude.read_bytes() == MINE
    assert not installing.launcher_path(run.home).exists()
    assert run("uninstall", "--all").err == "there is no host to do it for\n"


# --- init ---------------------------------------------------------------------------------------


def test_init_offers_to_install(run: CommandLine, claude: Path) -> None:
    write_notes(run.notes)
    source = ("--markdown", run.notes)
    result = run("init", *source, stdin=b"n\n", terminal=True)
    assert f"Put the hook into Claude Code's settings ({claude})?" in result.err
    assert "prompt-rag install claude (or codex, " in result.err
    assert claude.read_bytes() == MINE
    assert "prompt-rag install claude" in run("init", "--yes", *source, terminal=True).err
    assert claude.read_bytes() == MINE
    result = run("init", *source, stdin=b"y\n", terminal=True)
    assert "installed; to undo it: prompt-rag uninstall claude" in result.err
    assert b"prompt-rag-hook" in claude.read_bytes()
    assert "the hook is in its settings" in run("init", *source, terminal=True).err
    claude.write_bytes(b"broken")
    result = run("init", *source, terminal=True)
    assert result.code == 0
    assert "is left alone" in result.err


# --- what was installed, run as the host runs it ------------------------------------------------


@pytest.fixture
def ready(run: CommandLine) -> Iterator[CommandLine]:
    write_notes(run.notes)
    run.configure(DEADLINE)
    assert run("rebuild", "--quiet").code == 0
    yield run
    with suppress(wire.Unanswered):
        wire.ask(str(run.home), {"kind": "stop"}, time.monotonic() + 5, start=False)


def called(command: list[str] | str, payload: dict[str, Any]) -> bytes:
    """Run a command as a host does: with little of an environment, in a folder of its own."""
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        input=json.dumps(payload).encode(),
        capture_output=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_the_command_in_claudes_settings(ready: CommandLine, claude: Path) -> None:
    assert ready("install", "claude").code == 0
    text = claude.read_text().replace("// mine", "")
    (group,) = json.loads(text)["hooks"]["UserPromptSubmit"]
    (hook,) = group["hooks"]
    payload = {
        "session_id": "s",
        "prompt_id": "u",
        "cwd": "/p",
        "hook_event_name": "UserPromptSubmit",
        "prompt": QUESTION,
    }
    answer = json.loads(called([hook["command"], *hook["args"]], payload))
    assert TLDR in answer["hookSpecificOutput"]["additionalContext"]
    assert called([hook["command"], *hook["args"]], {**payload, "prompt": "/deploy"}) == b""


def test_the_command_in_cursors_settings(ready: CommandLine) -> None:
    assert ready("install", "cursor").code == 0
    document = json.loads(HOSTS["cursor"].path.read_text())
    assert document["version"] == 1
    (hook,) = document["hooks"]["beforeSubmitPrompt"]
    payload = {
        "conversation_id": "c",
        "hook_event_name": "beforeSubmitPrompt",
        "cursor_version": "3.20.17",
        "workspace_roots": ["/p"],
        "prompt": QUESTION,
    }
    answer = json.loads(called(hook["command"], payload))
    assert answer["continue"] is True
    assert TLDR in answer["additional_context"]
    assert called(hook["command"], {**payload, "prompt": "/deploy"}) == b"{}"


def test_a_command_whose_home_is_gone_is_silent(run: CommandLine) -> None:
    assert run("install", "claude").code == 0
    launcher = installing.launcher_path(run.home)
    moved = run.folder / "launcher"
    launcher.rename(moved)
    for file in run.home.iterdir():
        file.rmdir() if file.is_dir() else file.unlink()
    run.home.rmdir()
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": QUESTION}
    assert called([str(moved), "--host", "claude"], payload) == b""
