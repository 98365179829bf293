"""``replay``: a log of real decisions under other thresholds."""

from __future__ import annotations

import time

import pytest
from cli_world import FAR, QUESTION, CommandLine

from prompt_rag import config
from prompt_rag.answer import Answerer


@pytest.fixture
def asked(built: CommandLine) -> CommandLine:
    """Decisions on a prompt that finds a note, one that finds none, and one that nobody typed."""
    answerer = Answerer(config.load(built.home))
    for prompt in (QUESTION, FAR, "<task-notification>done</task-notification>"):
        request = {"kind": "prompt", "host": "claude", "session": prompt, "prompt": prompt}
        answerer.answer(request, time.monotonic() + 10)
    answerer.close()
    return built


def test_the_bar_in_use_changes_nothing(asked: CommandLine) -> None:
    document = asked("replay", "--max-distance", "0.5", "--json").json
    assert (document["decisions"], document["changes"]) == (2, [])
    assert document["injected_before"] == document["injected_after"] == 1
    out = asked("replay", "--min-gap", "0.05").out
    assert "0 of 2 decisions would fall otherwise" in out


def test_a_stricter_bar(asked: CommandLine) -> None:
    document = asked("replay", "--max-distance", "0.01", "--json").json
    (change,) = document["changes"]
    assert change["before"] == ["work/wiki-token.md"]
    assert (change["after"], change["reason"]) == ([], "too-far")
    assert document["thresholds"]["max_distance"] == 0.01
    lines = asked("replay", "--max-distance", "0.01").out.splitlines()
    assert lines[0].split() == ["when", "id", "before", "after", "because"]
    assert "work/wiki-token.md" in lines[1]
    assert "silence" in lines[1]
    assert "is above max_distance 0.010" in lines[1]
    assert QUESTION not in lines[1]
    assert "1 of 2 decisions would fall otherwise: 0 more with notes, 1 fewer" in lines[-1]


def test_a_wider_bar(asked: CommandLine) -> None:
    limits = ("--max-distance", "2", "--min-gap", "-2", "--min-probability", "0")
    out = asked("replay", *limits).out
    assert "with max_distance 2.000, min_gap -2.000, min_probability 0.000" in out
    assert "1 more with notes" in out


def test_a_rate_of_false_injections(asked: CommandLine) -> None:
    document = asked("replay", "--max-false-injection", "0.02", "--json").json
    assert 0.5 <= document["thresholds"]["min_probability"] < 1.0
    strict = asked("replay", "--max-false-injection", "0.007", "--json")
    assert "the nearest bar that keeps to it is the one for 0.5%" in strict.err
    bar = strict.json["thresholds"]["min_probability"]
    assert bar >= document["thresholds"]["min_probability"]
    unknown = asked("replay", "--max-false-injection", "0.001")
    assert unknown.hint == "prompt-rag tune --max-false-injection 0.001 --apply"


def test_something_must_be_tried(asked: CommandLine) -> None:
    assert asked("replay").code == 2
    both = asked("replay", "--max-false-injection", "0.02", "--min-probability", "0.5")
    assert both.code == 2


def test_an_empty_log(built: CommandLine) -> None:
    assert "0 of 0 decisions" in built("replay", "--min-gap", "0").out


def test_thresholds_of_no_model(asked: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompt_rag.cli.replay.calibration.of_model", lambda *_: None)
    assert asked("replay", "--min-gap", "0").hint == "prompt-rag tune --apply"
