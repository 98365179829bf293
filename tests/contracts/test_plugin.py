"""This repository as a plugin and marketplace: what `claude plugin validate` looks at, restated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from prompt_rag import __version__
from prompt_rag.cli import COMMANDS

ROOT = Path(__file__).parents[2]
MANIFEST = ".claude-plugin/plugin.json"
MARKET = ".claude-plugin/marketplace.json"
FILES = (MANIFEST, MARKET, ".mcp.json", "hooks/hooks.json")
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
RESERVED = ("claude-", "anthropic-", "cc-plugin-")
# Names of marketplaces that only Anthropic may use all hold one of these words.
OFFICIAL = ("claude", "anthropic", "agent-skills")
MANIFEST_KEYS = {
    *("name", "version", "description", "author", "homepage", "repository", "license"),
    *("keywords", "commands", "agents", "skills", "hooks", "mcpServers", "userConfig"),
}
MARKET_KEYS = {"name", "owner", "metadata", "plugins"}
EVENTS = {"UserPromptSubmit", "PostToolUse", "SessionStart"}
HANDLER_KEYS = {"type", "command", "args", "timeout", "async"}
# https://agentskills.io/specification
SKILL_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def load(name: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), f"{name} has a key twice"
        return dict(pairs)

    return json.loads((ROOT / name).read_bytes().decode("utf-8"), object_pairs_hook=once)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_one_json_object(name: str) -> None:
    assert isinstance(load(name), dict)
    assert (ROOT / name).read_bytes().endswith(b"}\n")


def test_the_manifest() -> None:
    manifest = load(MANIFEST)
    assert set(manifest) <= MANIFEST_KEYS
    assert KEBAB.fullmatch(manifest["name"])
    assert not manifest["name"].startswith(RESERVED)
    # A version that stands still pins everybody to it.
    assert manifest["version"] == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert 20 <= len(manifest["description"]) <= 300
    assert manifest["author"]["name"]


def test_the_marketplace_offers_this_very_folder() -> None:
    market = load(MARKET)
    assert set(market) <= MARKET_KEYS
    assert KEBAB.fullmatch(market["name"])
    assert not any(word in market["name"] for word in OFFICIAL)
    assert market["owner"]["name"]
    (plugin,) = market["plugins"]
    assert plugin["name"] == load(MANIFEST)["name"]
    assert plugin["description"]
    # Said in one place only: of two versions the manifest's would win without a word.
    assert "version" not in plugin
    assert (ROOT / plugin["source"] / MANIFEST).is_file()


def paths(value: object) -> list[str]:
    """Return every text of a manifest that is a path."""
    if isinstance(value, dict):
        return [path for each in value.values() for path in paths(each)]
    if isinstance(value, list):
        return [path for each in value for path in paths(each)]
    return [value] if isinstance(value, str) and value.startswith((".", "/", "~")) else []


@pytest.mark.parametrize("name", FILES)
def test_paths_stay_inside_and_start_with_a_dot(name: str) -> None:
    for path in paths(load(name)):
        assert path.startswith("./")
        assert ".." not in Path(path).parts
    # An installed plugin is copied, and the copy goes with each update: nothing may live in it.
    text = (ROOT / name).read_text()
    assert "CLAUDE_PLUGIN_ROOT" not in text
    assert str(ROOT) not in text


def test_the_hooks_have_their_wrapper_and_only_what_the_host_knows() -> None:
    hooks = load("hooks/hooks.json")
    assert set(hooks) == {"description", "hooks"}
    assert set(hooks["hooks"]) == EVENTS
    for event, groups in hooks["hooks"].items():
        for group in groups:
            assert set(group) <= {"matcher", "hooks"}
            assert ("matcher" in group) == (event == "PostToolUse")
            for handler in group["hooks"]:
                assert set(handler) <= HANDLER_KEYS
                assert handler["type"] == "command"
                # The exec form: no shell between the host and the program.
                assert handler["command"] == "prompt-rag"
                assert handler["args"][0] in COMMANDS
                assert handler["args"][1:] == ["--host", "claude"]
                assert isinstance(handler["timeout"], int)
                assert 1 <= handler["timeout"] <= 600


def test_a_prompt_waits_at_most_ten_seconds_and_an_edit_for_nothing() -> None:
    hooks = load("hooks/hooks.json")["hooks"]
    (prompt,) = hooks["UserPromptSubmit"][0]["hooks"]
    assert prompt["timeout"] <= 10
    assert "async" not in prompt  # what is injected must be there before the prompt goes on
    (edits,) = hooks["PostToolUse"]
    assert edits["matcher"] == "Write|Edit"
    (edit,) = edits["hooks"]
    assert edit["args"][0] == "touched"
    assert edit["async"] is True


def test_the_mcp_server_is_the_program_itself() -> None:
    servers = load(".mcp.json")
    assert servers == {"mcpServers": {"notes": {"command": "prompt-rag", "args": ["mcp"]}}}
    assert "mcp" in COMMANDS


SKILLS = sorted((ROOT / "skills").iterdir())


def skill(folder: Path) -> tuple[dict[str, Any], str]:
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    opening, front, body = text.split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(front), body


def test_there_is_the_skill_that_recalls_notes() -> None:
    assert [folder.name for folder in SKILLS] == ["notes-recall"]


@pytest.mark.parametrize("folder", SKILLS, ids=lambda folder: folder.name)
def test_a_skill_has_only_standard_fields_in_their_limits(folder: Path) -> None:
    front, body = skill(folder)
    assert set(front) <= SKILL_KEYS
    assert front["name"] == folder.name
    assert KEBAB.fullmatch(front["name"])
    assert len(front["name"]) <= 64
    assert 50 <= len(front["description"]) <= 1024
    assert "<" not in front["description"]
    assert len(front["compatibility"]) <= 500
    # Read whole whenever the skill is used.
    assert len(body.splitlines()) < 500


def test_the_skill_says_what_it_must() -> None:
    _, body = skill(ROOT / "skills" / "notes-recall")
    for part in ("read_note(note)", "`path`", "weak match", "## When there is nothing", "--json"):
        assert part in body


def test_the_skill_names_only_commands_and_tools_that_exist() -> None:
    from prompt_rag.mcp_server import Tools  # the library behind it takes half a second

    _, body = skill(ROOT / "skills" / "notes-recall")
    used = set(re.findall(r"`?prompt-rag ([a-z]+)", body))
    # "the prompt-rag program" does not occur in the body; every such word is a command.
    assert used
    assert used <= set(COMMANDS)
    tools = set(re.findall(r"\b((?:search|read|list|sync)_[a-z]+)\b", body))
    assert tools == {"search_notes", "read_note", "list_notes", "list_tags", "sync_notes"}
    assert all(hasattr(Tools, tool) for tool in tools)
