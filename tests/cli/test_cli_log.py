"""``why``, ``stats``, ``pause`` and ``daemon``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli_world import FAR, QUESTION, TLDR, CommandLine

from prompt_rag import config, pauses, wire
from prompt_rag.answer import Answerer


def ask(run: CommandLine, *prompts: str) -> None:
    """Answer prompts as the daemon does, which also logs them."""
    answerer = Answerer(config.load(run.home))
    for prompt in prompts:
        request = {"kind": "prompt", "host": "claude", "session": prompt, "prompt": prompt}
        answerer.answer({**request, "sent_ms": 2.0}, time.monotonic() + 10)
    answerer.close()


@pytest.fixture
def asked(built: CommandLine) -> CommandLine:
    ask(built, QUESTION, FAR, f"{FAR} #nonotes", "<task-notification>done</task-notification>")
    return built


# --- why ----------------------------------------------------------------------------------------


def test_why_tells_the_last_decisions(asked: CommandLine) -> None:
    out = asked("why").out
    first, second, *_ = out.splitlines()
    assert "silent: the prompt says that it wants no notes" in first
    assert "claude, id " in first
    assert "silent: no note is near enough" in second
    assert "injected: a note is near enough and stands out" in out
    assert "    in  0." in out
    assert "work/wiki-token.md: " in out
    assert "task-notification" not in out
    assert QUESTION not in out
    assert TLDR not in out


def test_why_as_a_document(asked: CommandLine) -> None:
    document = asked("why", "--json").json
    assert [each["reason"] for each in document] == ["switched-off", "too-far", "confident"]
    assert all(each["timings_ms"]["total"] >= 2.0 for each in document)
    document = asked("why", "--all", "--json").json
    assert document[0]["reason"] == "machine-prompt"
    assert len(asked("why", "1", "--json").json) == 1
    assert asked("why", "0").code == 2


def test_why_shows_a_prompt_that_was_stored_on_request(built: CommandLine) -> None:
    built.environment.setenv("PROMPT_RAG_LOG_PROMPT_TEXT", "true")
    ask(built, f"{QUESTION}\x1b[2J")
    out = built("why").out
    assert f"    prompt: {QUESTION}" in out
    assert "\x1b" not in out


def test_why_before_anybody_asked(run: CommandLine) -> None:
    result = run("why")
    assert (result.code, result.out) == (0, "")
    assert "prompt-rag explain" in result.err
    assert run("why", "--json").json == []


def test_a_damaged_log_is_read_as_far_as_it_goes(asked: CommandLine) -> None:
    lines: list[Any] = [
        {"reason": "unheard-of", "outcome": "inject", "timings_ms": None, "candidates": None},
        {"reason": None, "time": 7, "candidates": [{"distance": None}]},
        [],
        7,
    ]
    with (asked.home / wire.LOG).open("a") as log:
        log.write('half a li\n{"reason": "conf\n')
        log.writelines(f"{json.dumps(line)}\n" for line in lines)
    assert asked("why", "10").code == 0
    assert "unheard-of" in asked("why").out
    assert len(asked("why", "10", "--json").json) == 5
    assert asked("stats", "--json").json["decisions"] == 6


# --- stats --------------------------------------------------------------------------------------


def test_stats_sums_up(asked: CommandLine) -> None:
    document = asked("stats", "--json").json
    assert (document["decisions"], document["typed"], document["injected"]) == (4, 3, 1)
    assert document["injection_rate"] == pytest.approx(1 / 3)
    assert document["reasons"]["too-far"] == 1
    assert set(document["total_ms"]) == {"p50", "p95", "p99"}
    assert document["chars_injected"] > len(TLDR)
    out = asked("stats").out
    assert "1 (33% of those typed)" in out
    assert "machine-prompt" in out


def test_stats_before_anybody_asked(run: CommandLine) -> None:
    assert run("stats").err == "the hook has not been asked yet\n"
    assert run("stats", "--json").json["decisions"] == 0


# --- pause --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400)]
)
def test_pause_for_a_while(run: CommandLine, duration: str, seconds: int) -> None:
    before = time.time()
    result = run("pause", duration)
    assert result.code == 0
    assert result.err.startswith("silent until ")
    until = pauses.paused_until(run.home)
    assert until is not None
    assert before + seconds <= until <= time.time() + seconds


def test_pause_for_ever_and_the_end_of_it(run: CommandLine) -> None:
    assert "prompt-rag pause off" in run("pause", "forever").err
    assert pauses.paused_until(run.home) == float("inf")
    assert run("pause", "off").err == "the hook answers again\n"
    assert pauses.paused_until(run.home) is None
    assert run("pause", "off").code == 0


@pytest.mark.parametrize("duration", ["", "soon", "-5m", "5", "1.5h", "9999999999d", "5 m"])
def test_what_is_no_duration(run: CommandLine, duration: str) -> None:
    result = run("pause", "--", duration)
    assert result.code == 2
    assert "30m, 2h, 1d" in result.err
    assert pauses.paused_until(run.home) is None


# --- daemon -------------------------------------------------------------------------------------


def test_a_daemon_that_does_not_run(built: CommandLine) -> None:
    document = built("daemon", "status", "--json").json
    assert document["running"] is False
    assert built("daemon", "status").out.startswith("not running")
    assert built("daemon", "stop").err == "none was running\n"


def test_a_daemon_by_hand(built: CommandLine, tmp_path: Path) -> None:
    try:
        assert built("daemon", "start").err.startswith("running: process ")
        document = built("daemon", "status", "--json").json
        assert document["running"] is True
        assert document["home"] == str(built.home)
        again = built("daemon", "start").err
        assert again == f"running: process {document['pid']}\n"
        assert "served" in built("daemon", "status").out
        assert built("status", "--json").json["daemon"] == "running"
    finally:
        assert built("daemon", "stop", "--quiet").code == 0
    assert built("daemon", "status", "--json").json["running"] is False


def test_a_daemon_that_cannot_start(built: CommandLine) -> None:
    run_folder = Path(wire.runtime_folder(str(built.home)))
    run_folder.parent.mkdir(exist_ok=True)
    run_folder.write_text("in the way")
    try:
        result = built("daemon", "start")
        assert result.hint == f"see {run_folder}/daemon.log"
        assert "does not answer" in result.err
    finally:
        run_folder.unlink()
