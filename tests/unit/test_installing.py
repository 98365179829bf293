"""Hooks in other programs' settings: everything else stays, and uninstall gives the file back."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from jsonc_texts import Text, comments, is_part, settings

from prompt_rag import installing, jsonc, registration, settingsfile
from prompt_rag.domain import ConfigError
from prompt_rag.installing import HOSTS, Host

NATIVE = [name for name in HOSTS if name not in ("kimi", "opencode")]
OWN = "/opt/prompt-rag"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def write(host: Host, data: bytes | None) -> None:
    host.path.parent.mkdir(parents=True, exist_ok=True)
    if data is None:
        host.path.unlink(missing_ok=True)
    else:
        host.path.write_bytes(data)


def content(host: Host) -> bytes | None:
    return host.path.read_bytes() if host.path.exists() else None


def install(host: Host, home: Path) -> installing.Plan:
    plan = installing.install(host, home)
    settingsfile.apply(plan.change, keep_backup=True)
    return plan


def uninstall(host: Host, home: Path) -> installing.Plan:
    plan = installing.uninstall(host, home)
    settingsfile.apply(plan.change, keep_backup=False)
    return plan


def without_empty(value: dict[str, Any]) -> dict[str, Any]:
    """Leave out what may be left out where nothing stands in it."""
    events = value.get("hooks")
    if not isinstance(events, dict):
        return value
    events = {event: groups for event, groups in events.items() if groups}
    return {key: events if key == "hooks" else each for key, each in value.items()} | (
        {} if events else {"hooks": {}}
    )


# --- files of every shape -----------------------------------------------------------------------

OTHERS = {
    "type": "command",
    "command": "/usr/bin/say",
    "args": ["--host", "claude"],
    "timeout": 5,
}
SHAPES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "only white space": b"\n  \n",
    "only a mark": b"\xef\xbb\xbf",
    "an empty object": b"{}",
    "an empty object with a line break": b"{}\n",
    "an empty object with a blank": b"{ }",
    "an empty object over two lines": b"{\n}\n",
    "one line": b'{"model": "x"}',
    "one line, tight": b'{"model":"x","n":[1,2]}\n',
    "two spaces": b'{\n  "model": "x"\n}\n',
    "four spaces, no line break at the end": b'{\n    "model": "x"\n}',
    "tabs": b'{\n\t"model": "x",\n\t"env": {\n\t\t"A": "1"\n\t}\n}\n',
    "CRLF": b'{\r\n  "model": "x"\r\n}\r\n',
    "mixed line ends": b'{\r\n  "model": "x",\n  "a": 1\r\n}\n',
    "a byte order mark": b'\xef\xbb\xbf{\n  "model": "x"\n}\n',
    "comments": b'// top\n{\n  // of mine\n  "model": "x" // why\n  /* last */\n}\n// end\n',
    "a trailing comma": b'{\n  "model": "x",\n}\n',
    "a trailing comma and a comment": b'{\n  "model": "x", // why\n}\n',
    "only a comment inside": b"{ // nothing yet\n}\n",
    "a block comment inside": b"{ /* nothing yet */ }",
    "empty hooks": b'{\n  "hooks": {}\n}\n',
    "empty hooks with a blank": b'{"hooks": { }}',
    "empty hooks, tail": b'{\n  "hooks": {},\n  "model": "x"\n}\n',
    "an event without hooks": b'{\n  "hooks": {\n    "UserPromptSubmit": []\n  }\n}\n',
    "another tool's hook": json.dumps(
        {"hooks": {"UserPromptSubmit": [{"hooks": [OTHERS]}]}}, indent=2
    ).encode(),
    "another tool's hook, inline": json.dumps(
        {"hooks": {"UserPromptSubmit": [{"hooks": [OTHERS]}], "Stop": []}}
    ).encode(),
    "hugging brackets": b'{\n  "hooks": {\n    "Stop": [{\n      "hooks": [{"type": "x"}]\n    }]\n'
    b"  }\n}\n",
    "hooks that we cannot read": b'{"hooks": {"Stop": 1, "E": [1, {"hooks": 2}, {"hooks": [3]}]}}',
    "equal keys": b'{"a": 1, "a": 2}\n',
    "other scripts": '{\n  "größe": "表 🏠 \u2028"\n}\n'.encode(),
    "escapes": b'{\n  "a\\u0062\\"": "\\ud83d\\u0000"\n}\n',
    "many lines between": b'{\n\n\n  "model": "x"\n\n\n}\n\n\n',
    "version": b'{\n  "version": 1,\n  "hooks": {\n  }\n}\n',
}


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("shape", SHAPES)
def test_uninstall_gives_the_file_back(home: Path, name: str, shape: str) -> None:
    host, before = HOSTS[name], SHAPES[shape]
    write(host, before)
    assert install(host, home).change.is_needed
    installed = content(host)
    assert installed is not None
    text = installed.removeprefix(settingsfile.BOM).decode()
    assert [each.fields for each in host.form.found(text)] == [
        each.fields
        for event in dict.fromkeys(jsonc.parse(text).value["hooks"])
        for each in installing.entries(host, home)
        if each.event == event
    ]
    if before and b"{" in before:
        assert is_part(before.decode(), installed.decode())
        assert installed.endswith(before[-1:])
    again = install(host, home)
    assert not again.change.is_needed
    assert content(host) == installed
    uninstall(host, home)
    assert content(host) == before
    assert list(host.path.parent.iterdir()) == ([] if before is None else [host.path])
    assert not uninstall(host, home).change.is_needed


@given(settings(), st.sampled_from(NATIVE))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_uninstall_gives_any_file_back(home: Path, document: Text, name: str) -> None:
    host = HOSTS[name]
    before = document[0].encode()
    write(host, before)
    install(host, home)
    installed = content(host)
    assert installed is not None
    assert is_part(document[0], installed.decode())
    assert not install(host, home).change.is_needed
    uninstall(host, home)
    assert content(host) == before


@given(settings(), st.sampled_from(NATIVE))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_person_adds_meanwhile_survives(home: Path, document: Text, name: str) -> None:
    host, (text, value) = HOSTS[name], document
    write(host, text.encode())
    install(host, home)
    edited = jsonc.set_missing(host.path.read_bytes().decode(), "person", {"adds": [1]})
    edited = jsonc.append(edited, ("hooks", "Stop"), {"hooks": [OTHERS]})
    host.path.write_bytes(edited.encode())
    uninstall(host, home)
    after = host.path.read_bytes().decode()
    hooks = dict(value.get("hooks", {}))
    hooks["Stop"] = [*hooks.get("Stop", []), {"hooks": [OTHERS]}]
    wanted = {**value, "hooks": hooks, "person": {"adds": [1]}}
    if host.form == registration.JsonForm(grouped=False, version=1):
        wanted.setdefault("version", 1)
    assert without_empty(jsonc.parse(after).value) == without_empty(wanted)
    assert "".join(comments(after)) == "".join(comments(text))
    assert not settingsfile.read(host.path).backup


# --- ours, of whatever age ----------------------------------------------------------------------


def hook(*command: str, **more: object) -> dict[str, Any]:
    return {"type": "command", "command": command[0], "args": list(command[1:]), **more}


def test_entries_of_older_versions_are_replaced(home: Path) -> None:
    host = HOSTS["claude"]
    old = {
        "hooks": {
            "UserPromptSubmit": [
                {"hooks": [hook(OWN, "hook", "--host", "claude"), OTHERS]},
                {"hooks": [{"type": "command", "command": f"'{OWN}' hook --host claude"}]},
                {"hooks": [hook("/v/python", "-m", "prompt_rag", "hook", "--host=claude")]},
            ],
            "Stop": [{"matcher": "", "hooks": [hook(OWN, "touched", "--host", "claude")]}],
        },
        "model": "x",
    }
    write(host, json.dumps(old, indent=2).encode())
    install(host, home)
    text = host.path.read_text()
    assert host.form.is_current(text, installing.entries(host, home))
    assert "Stop" not in jsonc.parse(text).value["hooks"]
    uninstall(host, home)
    assert json.loads(host.path.read_bytes()) == {
        "hooks": {"UserPromptSubmit": [{"hooks": [OTHERS]}]},
        "model": "x",
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "prompt-rag status"},
        {"command": "my-prompt-rag hook --host claude"},
        {"command": "'open --host"},
        {"command": ["prompt-rag", "--host"]},
        {"command": "prompt-rag", "args": "--host"},
        {"bash": 1},
        {},
        "prompt-rag hook --host claude",
        None,
    ],
)
def test_what_is_not_ours(entry: object) -> None:
    assert not registration.is_ours(entry)


def test_a_timeout_that_a_person_changed_is_put_right(home: Path) -> None:
    host = HOSTS["cursor"]
    install(host, home)
    fresh = content(host)
    host.path.write_bytes(host.path.read_bytes().replace(b"10", b"77"))
    assert install(host, home).change.is_needed
    assert content(host) == fresh


def test_order_does_not_matter(home: Path) -> None:
    """A hook that somebody added behind ours does not make ours move: Codex would ask again."""
    host = HOSTS["codex"]
    install(host, home)
    text = jsonc.append(host.path.read_text(), ("hooks", "UserPromptSubmit"), {"hooks": [OTHERS]})
    host.path.write_text(text)
    assert not install(host, home).change.is_needed


# --- each host ----------------------------------------------------------------------------------


def test_what_each_host_is_told(home: Path) -> None:
    program = str(installing.launcher_path(home))
    told = {}
    for host in HOSTS.values():
        for entry in installing.entries(host, home):
            command = registration.command_of(entry.fields)
            assert command == (program, "--host", host.name)
            assert registration.is_ours(entry.fields)
        told[host.name] = installing.entries(host, home)[0]
    assert told["claude"].fields == hook(program, "--host", "claude", timeout=10)
    assert told["gemini"].fields["timeout"] == 10_000
    assert told["qwen"].fields["timeout"] == 10_000
    assert told["cursor"].fields == {"command": f"{program} --host cursor", "timeout": 10}
    assert told["copilot"].fields["timeoutSec"] == 10
    assert set(told["kimi"].fields) == {"command", "timeout"}


def test_a_path_with_a_space_and_an_apostrophe(tmp_path: Path) -> None:
    home = tmp_path / "it's a home"
    (entry, *_) = installing.entries(HOSTS["cursor"], home)
    line = entry.fields["command"]
    assert shlex.split(line)[0] == str(installing.launcher_path(home))
    path = installing.write_launcher(home)
    assert subprocess.run(["sh", "-c", line], input=b"", timeout=20, check=True).returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_folders_that_hosts_let_people_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HOSTS["claude"].path == Path.home() / ".claude" / "settings.json"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    assert HOSTS["claude"].path == tmp_path / "settings.json"


def test_which_hosts_are_here() -> None:
    def here() -> list[str]:
        return [host.name for host in HOSTS.values() if host.is_here]

    Path(os.environ["XDG_CONFIG_HOME"]).mkdir(parents=True, exist_ok=True)
    assert here() == []
    for folder in (".claude", ".vscode", ".gemini"):
        (Path.home() / folder).mkdir(parents=True)
    assert here() == ["claude", "vscode"]
    (Path.home() / ".gemini" / "settings.json").touch()
    assert here() == ["claude", "vscode", "gemini"]


def test_hosts_of_no_use() -> None:
    for name, why in installing.REFUSED.items():
        with pytest.raises(ConfigError, match=why[:20]):
            installing.named(name)
    with pytest.raises(ConfigError, match="no host is called emacs; there are: claude, "):
        installing.named("emacs")
    assert installing.named("codex") is HOSTS["codex"]


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not json", "line 1, column 1: a value is missing"),
        (b'{"a": 1', "a comma or } is missing"),
        (b"[]", "the document is not an object"),
        (b'{"hooks": []}', "hooks is not an object"),
        (b'{"hooks": {"UserPromptSubmit": {}}}', "hooks.UserPromptSubmit is not an array"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8"),
        ("{\u00a0}".encode(), "a string in double quotes is missing"),
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(home: Path, data: bytes, why: str) -> None:
    host = HOSTS["claude"]
    write(host, data)
    with pytest.raises(ConfigError) as caught:
        installing.install(host, home)
    assert why in caught.value.message
    assert str(host.path) in caught.value.message
    assert content(host) == data


def test_the_plugin_and_the_settings_do_not_both_have_it(home: Path) -> None:
    host = HOSTS["claude"]
    for enabled in (True, False):
        write(host, json.dumps({"enabledPlugins": {"prompt-rag@notes": enabled}}).encode())
        if enabled:
            with pytest.raises(ConfigError, match="the plugin prompt-rag@notes provides the hook"):
                installing.install(host, home)
        else:
            assert install(host, home).change.is_needed


def test_hooks_that_are_switched_off_are_mentioned(home: Path) -> None:
    write(HOSTS["claude"], b'{"disableAllHooks": true}')
    assert "disableAllHooks" in install(HOSTS["claude"], home).then


def test_two_hosts_with_one_file(home: Path) -> None:
    install(HOSTS["vscode"], home)
    before = content(HOSTS["vscode"])
    with pytest.raises(ConfigError, match="installed for VS Code agent mode already") as caught:
        installing.install(HOSTS["copilot"], home)
    assert caught.value.hint == "prompt-rag uninstall vscode"
    assert not uninstall(HOSTS["copilot"], home).change.is_needed
    assert content(HOSTS["vscode"]) == before


def test_a_home_that_no_json_can_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not UTF-8 and cannot be written"):
        installing.install(HOSTS["claude"], Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))


# --- TOML ---------------------------------------------------------------------------------------

TABLES = {
    "missing": None,
    "empty": b"",
    "settings": b'model = "x"  # mine\n\n[ui]\ntheme = "dark"\n',
    "no line break at the end": b"[ui]\na = 1",
    "CRLF": b"[ui]\r\na = 1\r\n",
    "other hooks": b'[[hooks]]\nevent = "Stop"\ncommand = "say done"\n\n# later\n[ui]\na = 1\n',
    "a header in a string": b'a = """\n[[hooks]]\ncommand = "prompt-rag hook --host kimi"\n"""\n',
}


@pytest.mark.parametrize("shape", TABLES)
def test_tables_come_and_go(home: Path, shape: str) -> None:
    host, before = HOSTS["kimi"], TABLES[shape]
    write(host, before)
    install(host, home)
    data = content(host)
    assert data is not None
    assert data.startswith(before or b"")
    (ours,) = [each for each in tomllib.loads(data.decode())["hooks"] if registration.is_ours(each)]
    # Kimi refuses the file for a key that it does not know.
    assert set(ours) == {"event", "command", "timeout"}
    assert not install(host, home).change.is_needed
    edited = data + b"\n# mine\n[added]\nb = 2\n"
    uninstall(host, home)
    assert content(host) == before
    write(host, edited)
    uninstall(host, home)
    assert tomllib.loads(host.path.read_text()) == {
        **tomllib.loads((before or b"").decode()),
        "added": {"b": 2},
    }
    assert "# mine\n[added]" in host.path.read_text()


@pytest.mark.parametrize("data", [b"hooks = []\n", b"hooks = 1\n", b"a = [\n", b"[hooks]\n"])
def test_tables_that_cannot_be_added(home: Path, data: bytes) -> None:
    write(HOSTS["kimi"], data)
    with pytest.raises(ConfigError, match="is left alone, it is not what Kimi Code CLI reads"):
        installing.install(HOSTS["kimi"], home)
    assert content(HOSTS["kimi"]) == data


def test_tables_that_only_a_person_can_take_out(home: Path) -> None:
    data = b'hooks = [{event = "Stop", command = "prompt-rag hook --host kimi"}]\n'
    write(HOSTS["kimi"], data)
    with pytest.raises(ConfigError, match="in a way that only you can edit"):
        installing.uninstall(HOSTS["kimi"], home)
    assert content(HOSTS["kimi"]) == data


# --- a plugin -----------------------------------------------------------------------------------


def test_a_plugin_comes_and_goes(home: Path) -> None:
    host = HOSTS["opencode"]
    install(host, home)
    program = str(installing.launcher_path(home))
    assert json.dumps([program, "--host", "opencode"]) in host.path.read_text()
    assert installing.commands(host) == [(program, "--host", "opencode")]
    assert not install(host, home).change.is_needed
    uninstall(host, home)
    assert content(host) is None


def test_a_plugin_of_another_version_is_replaced(home: Path) -> None:
    host = HOSTS["opencode"]
    install(host, home)
    fresh = content(host)
    write(host, (fresh or b"") + b"// older\n")
    install(host, home)
    assert content(host) == fresh


def test_a_plugin_that_is_not_ours_stays(home: Path) -> None:
    host = HOSTS["opencode"]
    write(host, b"export default {}\n")
    with pytest.raises(ConfigError, match="it is not prompt-rag's"):
        installing.install(host, home)
    assert not uninstall(host, home).change.is_needed
    assert content(host) == b"export default {}\n"


# --- the launcher -------------------------------------------------------------------------------


def test_the_launcher_stays_while_a_host_needs_it(home: Path) -> None:
    path = installing.write_launcher(home)
    written = path.stat().st_ino
    assert installing.write_launcher(home) == path
    assert path.stat().st_ino == written
    path.write_bytes(b"old")
    assert installing.write_launcher(home).read_bytes().startswith(b"#!")
    install(HOSTS["claude"], home)
    assert not installing.remove_launcher(home)
    uninstall(HOSTS["claude"], home)
    write(HOSTS["cursor"], b"not json")
    assert not installing.remove_launcher(home)
    write(HOSTS["cursor"], None)
    assert installing.remove_launcher(home)
    assert not path.parent.exists()
    assert installing.remove_launcher(home)
