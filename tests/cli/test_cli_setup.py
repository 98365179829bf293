"""``init``, ``source``, ``config`` and ``model``."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_world import NOTES, QUESTION, CommandLine, write_notes
from prompt_rag_fixtures import bear_database

from prompt_rag import embedder
from prompt_rag.embedder import FastEmbedder
from prompt_rag.sources import bear

WHEN = datetime(2026, 1, 20, 17, 40, tzinfo=UTC)
REPORT_KEYS = {"seen", "indexed", "skipped", "generation", "kept", "warnings"}


def sources(run: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run("source", "list", "--json").json["sources"]
    return found


def user_home() -> Path:
    return Path(os.environ["HOME"])


def bear_at(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    text = "# Bear note\nThe spare key of the bicycle lies in the blue drawer."
    bear_database.build(path, [bear_database.BearNote("A", "Bear note", text, WHEN, WHEN)])
    return path


# --- init ---------------------------------------------------------------------------------------


def test_init_on_a_folder(run: CommandLine) -> None:
    write_notes(run.notes)
    result = run("init", "--yes", "--markdown", run.notes)
    assert result.code == 0
    assert result.out.startswith("4 notes indexed (5 passages, 5 embedded)")
    assert result.err.startswith(f"source notes: {run.notes}\n")
    assert sources(run) == [
        {
            "name": "notes",
            "kind": "markdown",
            "path": str(run.notes),
            "include": [],
            "exclude": [],
            "exclude_tags": [],
        }
    ]
    assert run("search", QUESTION, "--json").json["results"][0]["note"] == "work/wiki-token.md"
    assert stat.S_IMODE(run.home.stat().st_mode) == 0o700
    assert "safe to delete" in (run.home / "README").read_text()


def test_init_twice_changes_nothing(run: CommandLine) -> None:
    write_notes(run.notes)
    spelled = run.notes / ".." / "notes"
    assert run("init", "--yes", "--markdown", run.notes).code == 0
    before = (run.home / "config.toml").read_bytes()
    for arguments in (["--markdown", run.notes], ["--markdown", spelled], []):
        assert run("init", "--yes", *arguments).code == 0
        assert (run.home / "config.toml").read_bytes() == before


def test_init_adds_to_what_there_is(run: CommandLine, tmp_path: Path) -> None:
    write_notes(run.notes)
    write_notes(tmp_path / "other" / "notes", {"a.md": "# A\n\nSomething else."})
    assert run("init", "--yes", "--markdown", run.notes).code == 0
    result = run("init", "--yes", "--markdown", tmp_path / "other/notes", "--json")
    assert set(result.json) >= REPORT_KEYS
    assert result.json["indexed"] == 5
    assert [each["name"] for each in sources(run)] == ["notes", "notes-2"]


def test_init_where_nobody_can_be_asked(run: CommandLine) -> None:
    write_notes(user_home() / "Notes")
    result = run("init")
    assert result.hint == "prompt-rag init --yes --markdown DIR"
    assert not run.home.exists()


def test_init_that_finds_nothing(run: CommandLine) -> None:
    assert run("init", "--yes").hint == "prompt-rag init --markdown DIR"
    assert not run.home.exists()


def test_init_on_what_is_no_folder(run: CommandLine, tmp_path: Path) -> None:
    assert run("init", "--yes", "--markdown", tmp_path / "nowhere").code == 2
    assert run("init", "--bear", tmp_path / "no.sqlite").hint == "prompt-rag source add bear"


def test_init_finds_what_people_have(run: CommandLine) -> None:
    home = user_home()
    one = {"a.md": "# A\n\nThe first of a few words."}
    write_notes(home / "Notes", one)
    write_notes(home / "Documents" / "Vault" / "daily", one)
    (home / "Documents" / "Vault" / ".obsidian").mkdir()
    (home / "Documents" / "Notes").symlink_to(home / "Notes")
    (home / "notes").symlink_to(home / "Notes")  # as where case does not count
    cloud = home / "Library/Mobile Documents/iCloud~md~obsidian/Documents/Phone"
    write_notes(cloud, one)
    (cloud / ".obsidian").mkdir()
    (home / "wiki").mkdir()  # without a note
    write_notes(home / "code" / "project", {"README.md": "# No note"})
    place = "Library/Group Containers/9K33E3U3T4.net.shinyfrog.bear/Application Data"
    bear_at(home / place / "database.sqlite")
    document = run("init", "--yes", "--json").json
    assert document["indexed"] == 4
    found = {each["name"]: each["path"] for each in sources(run)}
    assert found == {
        "bear": None,
        "vault": str(home / "Documents" / "Vault"),
        "phone": str(cloud),
        "notes": str(home / "Notes"),
    }
    assert run("search", "where is the spare key of my bicycle", "--json").json["results"]


def test_what_the_system_guards_may_be_there(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS refuses to say what is in other programs' folders; the build then tells what to do."""
    write_notes(user_home() / "Notes", {"a.md": "# A\n\nThe first of a few words."})
    (guarded, *_) = bear.candidates()
    looked = Path.is_file

    def is_file(path: Path) -> bool:
        if path == guarded:
            raise PermissionError(1, "Operation not permitted")
        return looked(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    result = run("init", "--yes")
    assert result.code == 0
    assert result.out.startswith("1 notes indexed")
    assert "Warning: bear was left as it was: " in result.err


def test_init_with_bear(run: CommandLine, tmp_path: Path) -> None:
    database = bear_at(tmp_path / "copy" / "bear.sqlite")
    assert run("init", "--yes", "--bear", database, "--quiet").code == 0
    assert [(each["kind"], each["path"]) for each in sources(run)] == [("bear", str(database))]


def test_init_with_a_bear_that_is_not_there(run: CommandLine) -> None:
    result = run("init", "--yes", "--bear")
    assert result.hint == "prompt-rag init --bear DB"
    assert "where Bear keeps one" in result.err
    assert not run.home.exists()


def test_init_asks(run: CommandLine) -> None:
    write_notes(user_home() / "Notes", {"a.md": "# A\n\nThe first of a few words."})
    write_notes(user_home() / "wiki", {"b.md": "# B\n\nThe second of a few words."})
    result = run("init", stdin=b"y\nn\nn\n", terminal=True)
    assert result.code == 0
    assert [each["name"] for each in sources(run)] == ["notes"]
    assert f"Index {user_home() / 'wiki'}?" in result.err
    assert "Index" not in result.out


def test_init_asks_for_a_folder(run: CommandLine) -> None:
    write_notes(run.notes)
    result = run("init", stdin=f"/nowhere\n{run.notes}\nn\n".encode(), terminal=True)
    assert result.code == 0
    assert [each["path"] for each in sources(run)] == [str(run.notes)]
    assert run("init", "--yes").code == 0


def test_init_that_is_left_alone_ends(run: CommandLine) -> None:
    result = run("init", terminal=True)
    assert result.code == 130
    assert not run.home.exists()


# --- source -------------------------------------------------------------------------------------


def test_sources_come_and_go(run: CommandLine, tmp_path: Path) -> None:
    write_notes(run.notes)
    result = run(
        *["source", "add", "markdown", run.notes, "--name", "mine"],
        *["--include", "work/**", "--exclude", "**/draft*", "--exclude-tag", "private"],
    )
    assert result.err == f"added mine: {run.notes}; now run: prompt-rag sync\n"
    database = bear_at(tmp_path / "copy" / "bear.sqlite")
    assert run("source", "add", "bear", database, "--exclude-tag", "diary").code == 0
    first, second = sources(run)
    assert first["include"] == ["work/**"]
    assert first["exclude"] == ["**/draft*"]
    assert first["exclude_tags"] == ["private"]
    assert (second["name"], second["exclude_tags"]) == ("bear", ["diary"])
    assert run("rebuild", "--json").json["indexed"] == 3
    out = run("source", "list").out
    assert re.search(rf"^mine +markdown +{re.escape(str(run.notes))}", out, re.MULTILINE)
    assert run("source", "remove", "mine").code == 0
    assert run("sync", "--json").json["removed"] == 2
    assert run("source", "remove", "bear").code == 0
    assert run("sync", "--json").json["removed"] == 1
    assert sources(run) == []


def test_bear_in_its_own_place(run: CommandLine) -> None:
    assert run("source", "add", "bear").err == "added bear: Bear; now run: prompt-rag sync\n"
    assert "Bear's own place" in run("source", "list").out
    assert run("source", "add", "bear").hint == "prompt-rag source list"


def test_a_source_twice(run: CommandLine) -> None:
    run.notes.mkdir()
    assert run("source", "add", "markdown", run.notes).code == 0
    again = run.notes / ".." / run.notes.name
    assert run("source", "add", "markdown", again).hint == "prompt-rag source list"
    assert len(sources(run)) == 1


def test_a_pattern_that_is_none(run: CommandLine) -> None:
    run.notes.mkdir()
    result = run("source", "add", "markdown", run.notes, "--exclude", "/")
    assert result.hint == "prompt-rag config show"
    assert "'/'" in result.err
    assert sources(run) == []


def test_a_folder_whose_name_is_no_text(run: CommandLine, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff"))
    odd.mkdir()
    result = run("source", "add", "markdown", odd)
    assert result.code == 1
    assert "is not UTF-8" in result.err
    assert sources(run) == []


def test_names_are_made_from_folders(run: CommandLine, tmp_path: Path) -> None:
    for place in ("Max O'Neil/My Notes $1", "other/My Notes $1", "日記", "---"):
        (tmp_path / place).mkdir(parents=True)
        assert run("source", "add", "markdown", tmp_path / place).code == 0
    names = [each["name"] for each in sources(run)]
    assert names == ["my-notes-1", "my-notes-1-2", "日記", "markdown"]


def test_a_source_that_is_not_there(run: CommandLine) -> None:
    assert run("source", "remove", "nothing").hint == "prompt-rag source list"
    assert run("source", "add", "markdown", "/nowhere").code == 2
    result = run("source", "list")
    assert (result.out.strip(), result.code) == ("name  kind  path", 0)
    assert "prompt-rag source add markdown DIR" in result.err


# --- config -------------------------------------------------------------------------------------


def test_config_show_tells_where_each_value_is_from(run: CommandLine) -> None:
    run.home.mkdir()
    (run.home / "config.toml").write_text("[hook]\nmax_excerpts = 2\n")
    run.environment.setenv("PROMPT_RAG_HOOK_MAX_CHARS", "4000")
    document = run("config", "show", "--json").json
    assert set(document) == {"file", "home", "settings", "sources"}
    found = document["settings"]
    file = str(run.home / "config.toml")
    assert found["hook.max_excerpts"] == {"value": 2, "origin": file}
    assert found["hook.max_chars"] == {"value": 4000, "origin": "PROMPT_RAG_HOOK_MAX_CHARS"}
    assert found["hook.skip_word"] == {"value": "#nonotes", "origin": "default"}
    result = run("config", "show")
    lines = {line.split()[0]: line.split() for line in result.out.splitlines()}
    assert lines["hook.max_excerpts"] == ["hook.max_excerpts", "2", file]
    assert lines["log.prompt_text"] == ["log.prompt_text", "false", "default"]
    assert lines["thresholds.max_distance"][1:] == ["(the", "model's)", "default"]
    assert lines["tiers"] == ["tiers", "tldr,", "section", "default"]
    assert result.err == f"file: {file}\nhome: {run.home}\n"


def test_config_set_keeps_comments(run: CommandLine) -> None:
    run.home.mkdir()
    file = run.home / "config.toml"
    file.write_text("# mine\n[hook]\nmax_excerpts = 2  # two are enough\n")
    assert run("config", "set", "hook.max_excerpts", "1").err == "hook.max_excerpts = 1\n"
    assert run("config", "set", "tiers", "tldr").code == 0
    text = file.read_text()
    assert "# mine\n[hook]\nmax_excerpts = 1  # two are enough\n" in text
    assert tomllib.loads(text)["tiers"] == ["tldr"]


def test_config_set_says_what_overrides_it(run: CommandLine) -> None:
    run.environment.setenv("PROMPT_RAG_HOOK_MAX_EXCERPTS", "5")
    result = run("config", "set", "hook.max_excerpts", "1")
    assert result.err == "hook.max_excerpts = 5 (but PROMPT_RAG_HOOK_MAX_EXCERPTS overrides it)\n"


def test_config_set_refuses(run: CommandLine) -> None:
    result = run("config", "set", "hook.max_char", "1")
    assert result.hint == "prompt-rag config show"
    assert "did you mean hook.max_chars?" in result.err
    assert "whole number" in run("config", "set", "hook.max_chars", "many").err
    assert run("config", "set", "--", "hook.max_chars", "-1").code == 1
    assert not (run.home / "config.toml").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[hook]\nmax_char = 3\n", "did you mean hook.max_chars?"),
        ("[hook]\nmax_chars = 'many'\n", "hook.max_chars must be a whole number"),
        ("[hook\n", "is not valid TOML"),
        ("[[source]]\nname = 'x'\nkind = 'joplin'\n", "kind is markdown or bear"),
    ],
)
def test_a_mistake_in_the_file_ends_every_command(run: CommandLine, text: str, said: str) -> None:
    run.home.mkdir()
    file = run.home / "config.toml"
    file.write_text(text)
    for arguments in (
        ["config", "show"],
        ["search", "x"],
        ["sync"],
        ["status", "--json"],
        ["init", "--yes"],
        ["why"],
    ):
        result = run(*arguments)
        assert result.hint
        assert said in result.err
        assert str(file) in result.err


def test_a_project_folder_configures_nothing(run: CommandLine, tmp_path: Path) -> None:
    run.build()
    project = tmp_path / "project"
    project.mkdir()
    evil = '[hook]\nmax_chars = 9000\n[[source]]\nname = "evil"\nkind = "markdown"\npath = "/etc"\n'
    for name in ("config.toml", "prompt-rag.toml", ".prompt-rag.toml", ".prompt-rag/config.toml"):
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(evil)
    (project / "pyproject.toml").write_text("[tool.prompt-rag.hook]\nmax_chars = 9000\n")
    (project / ".env").write_text("PROMPT_RAG_HOOK_MAX_CHARS=9000\n")
    (project / "hook.conf").write_text("hook.deadline_seconds = 30\n")
    before = run("config", "show", "--json").json
    run.environment.chdir(project)
    assert run("config", "show", "--json").json == before
    assert [each["name"] for each in sources(run)] == ["notes"]
    assert run("sync", "--json").json["unchanged"] == len(NOTES)


# --- model --------------------------------------------------------------------------------------


def test_the_model_that_is_used(run: CommandLine, model: FastEmbedder) -> None:
    document = run("model", "show", "--json").json
    assert set(document) == {"identity", "weights", "folder"}
    assert document["identity"]["fingerprint"] == model.identity.fingerprint
    assert Path(document["weights"]).is_file()
    out = run("model", "show").out
    assert "all-MiniLM-L6-v2-int8" in out
    assert "256 tokens" in out


def test_all_models(run: CommandLine) -> None:
    document = run("model", "show", "--all", "--json").json
    assert document[0] == {
        "name": "all-MiniLM-L6-v2-int8",
        "dim": 384,
        "licence": "apache-2.0",
    }
    assert len(document) > 10
    assert document[1]["name"] in run("model", "show", "--all").out


def test_verify(run: CommandLine) -> None:
    assert run("model", "verify", "--json").json == {
        "model": "all-MiniLM-L6-v2-int8",
        "ok": True,
        "dim": 384,
    }
    assert "is whole" in run("model", "verify").err


def test_verify_finds_a_fault(
    run: CommandLine, model: FastEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "embed_query", lambda _text: np.zeros(3, dtype=np.float32))
    result = run("model", "verify", "--json")
    assert result.hint.startswith("pip install ")
    assert "3 dimensions instead of 384" in result.err


def test_a_model_that_was_not_fetched(run: CommandLine) -> None:
    run.build()
    run.environment.setenv("PROMPT_RAG_MODEL_NAME", "BAAI/bge-small-en-v1.5")
    hint = "prompt-rag model pull BAAI/bge-small-en-v1.5"
    for arguments in (["model", "show"], ["model", "verify"], ["search", "x"], ["rebuild"]):
        assert run(*arguments).hint == hint
    assert hint in run("status").err


def test_pull_says_what_comes_next(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    files = embedder.locate(embedder.DEFAULT_MODEL, run.home)
    monkeypatch.setattr(embedder, "pull", lambda _name, _home: files)
    result = run("model", "pull", "BAAI/bge-small-en-v1.5")
    assert result.err.startswith(f"BAAI/bge-small-en-v1.5 is in {files.folder}\n")
    assert "prompt-rag config set model.name BAAI/bge-small-en-v1.5" in result.err
    assert "prompt-rag rebuild" in result.err


def test_pull_refuses_what_it_never_fetches(run: CommandLine) -> None:
    assert run("model", "pull", "all-MiniLM-L6-v2-int8").hint == "prompt-rag model verify"
    assert run("model", "pull", "no/such-model").code == 1
