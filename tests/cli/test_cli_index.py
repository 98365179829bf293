"""``rebuild``, ``sync``, ``status``, ``inspect`` and ``forget``."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli_world import NOTES, QUESTION, CommandLine

from prompt_rag import fsio, generations
from prompt_rag.embedder import FastEmbedder

REPORT_KEYS = {
    "seen",
    "indexed",
    "unchanged",
    "removed",
    "skipped",
    "passages",
    "embedded",
    "reused",
    "seconds",
    "generation",
    "kept",
    "warnings",
}


def keys_found(run: CommandLine, query: str = QUESTION) -> list[str]:
    return [each["note"] for each in run("search", query, "--json").json["results"]]


# --- rebuild and sync ---------------------------------------------------------------------------


def test_rebuild_tells_what_it_did(run: CommandLine) -> None:
    run.build()
    run.write("bad.md", "\0\1\2")
    result = run("rebuild")
    assert result.code == 0
    first, *rest = result.out.splitlines()
    assert re.fullmatch(
        r"4 notes indexed \(5 passages, 5 embedded\), 0 unchanged, 0 removed in \d+\.\d s", first
    )
    assert rest == ["1 left out:", "     1  binary: bad.md"]
    assert result.err == ""


def test_a_report_as_a_document(built: CommandLine) -> None:
    built.write("bad.md", "\0\1\2")
    document = built("rebuild", "--json").json
    assert set(document) == REPORT_KEYS
    assert document["skipped"] == [{"note": "bad.md", "why": "binary"}]
    numbers = [document[key] for key in ("seen", "indexed", "unchanged", "removed")]
    assert numbers == [5, 4, 0, 0]
    assert [document[key] for key in ("passages", "embedded", "reused")] == [5, 5, 0]
    assert document["seconds"] > 0
    assert document["generation"] == generations.current(built.home).id
    assert document["kept"] == document["warnings"] == []
    document = built("sync", "--json").json
    assert set(document) == REPORT_KEYS
    assert [document[key] for key in ("indexed", "unchanged", "embedded")] == [0, 4, 0]


def test_quiet_says_nothing(built: CommandLine) -> None:
    for command in ("rebuild", "sync"):
        result = built(command, "--quiet")
        assert (result.code, result.out, result.err) == (0, "", "")


def test_sync_takes_in_an_edit(built: CommandLine) -> None:
    built.write("home/tomatoes.md", "# Chess\n\nThe championship of 1987 was a draw in Seville.")
    result = built("sync")
    assert result.out.startswith("1 notes indexed (1 passages, 1 embedded), 3 unchanged, 0 removed")
    assert keys_found(built, "who won the chess championship?") == ["home/tomatoes.md"]


def test_a_dry_run_only_tells(built: CommandLine) -> None:
    built.write("new.md", "# New\n\nSomething new.")
    (built.notes / "home/tomatoes.md").unlink()
    result = built("sync", "--dry-run")
    assert result.out == "1 notes would be indexed, 1 removed; 3 are unchanged\n"
    assert built("sync", "--dry-run", "--json").json["indexed"] == 1
    assert built("sync", "--json").json["removed"] == 1


def test_only_some_paths(built: CommandLine) -> None:
    built.write("new.md", "# New\n\nSomething new.")
    path = built.write("work/more.md", "# More\n\nAnd something more.")
    document = built("sync", path, "--json").json
    assert (document["seen"], document["indexed"]) == (1, 1)
    built.environment.chdir(built.notes)
    document = built("sync", "new.md", "--json").json
    assert (document["seen"], document["indexed"]) == (1, 1)


def test_a_path_that_no_source_has_is_told(built: CommandLine) -> None:
    result = built("sync", built.notes / "nothing.md")
    assert result.code == 0
    assert result.err == "no source has a note there; see: prompt-rag source list\n"
    (built.notes / "home/tomatoes.md").unlink()
    assert built("sync", built.notes / "home/tomatoes.md").err == ""


def test_a_source_that_is_missing_is_a_warning_beside_others(
    built: CommandLine, tmp_path: Path
) -> None:
    more = tmp_path / "more"
    more.mkdir()
    assert built("source", "add", "markdown", more).code == 0
    assert built("sync", "--quiet").code == 0
    shutil.move(built.notes, tmp_path / "unplugged")
    for arguments in (["sync"], ["sync", "--quiet"], ["rebuild", "--quiet"]):
        result = built(*arguments)
        assert result.code == 0
        assert result.err.startswith("Warning: notes was left as it was: ")
        assert "does not exist" in result.err
    document = built("sync", "--json").json
    assert [each["source"] for each in document["kept"]] == ["notes"]
    assert keys_found(built) == ["work/wiki-token.md"]


def test_a_root_that_is_missing_is_an_error(built: CommandLine, tmp_path: Path) -> None:
    shutil.move(built.notes, tmp_path / "unplugged")
    result = built("sync")
    assert result.hint == "prompt-rag source remove notes"
    assert "does not exist" in result.err
    assert keys_found(built) == ["work/wiki-token.md"]


def test_a_shrink_is_an_error_with_the_way_out(built: CommandLine) -> None:
    for key in list(NOTES)[1:]:
        (built.notes / key).unlink()
    result = built("sync", "--json")
    assert result.hint == "prompt-rag sync --allow-shrink"
    assert "3 of 4 notes are gone" in result.err
    assert built("sync", "--allow-shrink", "--json").json["removed"] == 3


def test_without_index_or_sources(run: CommandLine) -> None:
    assert run("sync").hint == run("rebuild").hint == "prompt-rag source add markdown DIR"
    run.configure()
    assert run("sync").hint == "prompt-rag rebuild"


def test_another_writer_is_at_work(built: CommandLine) -> None:
    with fsio.Lock(str(built.home / "writer.lock")):
        for arguments in (["sync"], ["rebuild"], ["rebuild", "--json"]):
            result = built(*arguments)
            assert result.hint == "prompt-rag status"
            assert "another prompt-rag is writing" in result.err
        assert built("status").code == 0
        assert keys_found(built) == ["work/wiki-token.md"]


# --- status -------------------------------------------------------------------------------------

STATUS_KEYS = {
    "home",
    "config",
    "model",
    "index",
    "generation",
    "built_at",
    "notes",
    "passages",
    "sources",
    "thresholds",
    "daemon",
    "paused",
    "problems",
}


def test_status_of_an_index(built: CommandLine) -> None:
    document = built("status", "--json").json
    assert set(document) == STATUS_KEYS
    assert document["home"] == str(built.home)
    assert document["config"] == str(built.home / "config.toml")
    assert (document["notes"], document["passages"]) == (4, 5)
    assert document["sources"] == [
        {"source": "notes", "notes": 4, "passages": 5, "with_tldr": 1},
    ]
    assert document["thresholds"]["max_distance"] == 0.5
    assert document["daemon"] == "not running"
    assert document["paused"] is False
    assert document["problems"] == []
    text = built("status").out
    for word in ("all-MiniLM-L6-v2-int8", "4 notes, 5 passages, built just now", "not running"):
        assert word in text
    assert "max_distance 0.500, min_gap 0.050" in text


def test_status_tells_of_a_pause(built: CommandLine) -> None:
    built("pause", "1h")
    assert built("status", "--json").json["paused"] is True
    assert "prompt-rag pause off" in built("status").out


def test_status_without_daemon(built: CommandLine) -> None:
    built.environment.setenv("PROMPT_RAG_DAEMON_MODE", "off")
    assert built("status", "--json").json["daemon"] == "off"


def test_status_without_index(run: CommandLine) -> None:
    result = run("status")
    assert result.code == 0
    assert "Hint: prompt-rag rebuild" in result.err
    assert "none" in result.out
    assert not run.home.exists()  # who only looks leaves nothing
    document = run("status", "--json").json
    assert [each["hint"] for each in document["problems"]] == ["prompt-rag rebuild"]


def test_status_of_a_damaged_index(built: CommandLine) -> None:
    path = generations.current(built.home).catalog
    path.write_bytes(b"\xa5" * path.stat().st_size)
    document = built("status", "--json").json
    assert [each["hint"] for each in document["problems"]] == ["prompt-rag rebuild"]
    assert document["notes"] == 0
    assert "Problem: " in built("status").err


def test_status_and_commands_with_an_index_of_another_model(
    built: CommandLine, model: FastEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as other:
        other.setattr(model, "_identity", replace(model.identity, fingerprint="e" * 64))
        other.setattr("prompt_rag.embedder.identity_of", lambda _files: model.identity)
        built("rebuild", "--quiet")
    (problem,) = built("status", "--json").json["problems"]
    assert "another model" in problem["what"]
    assert problem["hint"] == "prompt-rag rebuild"
    for arguments in (["search", "x"], ["explain", "what is x?"], ["sync"]):
        assert built(*arguments).hint == "prompt-rag rebuild"
    assert built("rebuild", "--quiet").code == 0
    assert keys_found(built) == ["work/wiki-token.md"]


# --- inspect and forget -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["work/wiki-token.md", "wiki-token", "Rotating the wiki token", "rotating THE wiki token"],
)
def test_inspect_shows_the_passages(built: CommandLine, name: str) -> None:
    out = built("inspect", name).out
    assert out.splitlines()[:3] == [
        "Rotating the wiki token",
        str(built.notes / "work/wiki-token.md"),
        "2 passages",
    ]
    assert "[0] tldr  (top)\n    The wiki token is rotated" in out
    assert "[1] section  Steps\n" in out


def test_inspect_as_a_document(built: CommandLine) -> None:
    document = built("inspect", built.notes / "work/wiki-token.md", "--json").json
    assert set(document) == {"note", "passages"}
    assert document["note"]["key"] == "work/wiki-token.md"
    assert [each["kind"] for each in document["passages"]] == ["tldr", "section"]
    assert document["passages"][1]["heading_path"] == ["Steps"]


def test_inspect_lets_no_note_act_on_the_terminal(built: CommandLine) -> None:
    built.write("evil.md", "# Evil\n\nBefore \x1b[2J\x1b]0;owned\x07 after, and some more words.")
    built("sync")
    out = built("inspect", "evil").out
    assert "Before" in out
    assert not {"\x1b", "\x07"} & set(out)


def test_a_name_that_no_note_answers_to(built: CommandLine) -> None:
    assert built("inspect", "it's not here").hint == "prompt-rag search 'it'\"'\"'s not here'"
    assert built("forget", "nothing").hint == "prompt-rag search nothing"


@pytest.mark.parametrize("command", ["inspect", "forget"])
def test_a_name_that_several_answer_to(built: CommandLine, command: str) -> None:
    built.write("home/wiki-token.md", "# Other\n\nAnother text about something else.")
    built("sync")
    result = built(command, "wiki-token")
    assert "2 notes answer to wiki-token" in result.err
    chosen = re.fullmatch(rf"prompt-rag {command} ([0-9a-f]{{16}})", result.hint)
    assert chosen
    assert built(command, chosen[1]).code == 0


def holding(home: Path, text: str) -> list[str]:
    files = [path for path in home.rglob("*") if path.is_file()]
    return [str(path.relative_to(home)) for path in files if text.encode() in path.read_bytes()]


def test_forget_takes_a_note_out_for_good(built: CommandLine) -> None:
    built("rebuild", "--quiet")  # so that there is a generation before this one
    assert holding(built.home, "sourdough")
    result = built("forget", "home/rye-bread.md")
    assert (result.code, result.out) == (0, "")
    assert result.err == "forgotten: Rye bread (home/rye-bread.md)\n"
    assert holding(built.home, "sourdough") == []
    for arguments in (["sync"], ["rebuild"]):
        document = built(*arguments, "--json").json
        assert document["skipped"] == [{"note": "home/rye-bread.md", "why": "forgotten on request"}]
        assert "home/rye-bread.md" not in keys_found(built, "sourdough rye bread")
    assert (built.notes / "home/rye-bread.md").exists()
