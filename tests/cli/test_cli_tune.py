"""``tune``: what is fitted, from what, and what is kept. The fixtures are a small stand-in."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli_world import FAR, NOTES, QUESTION, CommandLine, write_notes

from prompt_rag import calibration, config
from prompt_rag.answer import Answerer
from prompt_rag.cli import fixtures
from prompt_rag.config import SourceSettings
from prompt_rag.domain import LabelledPrompt

WIKI, LOCKS, BREAD = "work/wiki-token.md", "work/postgres-locks.md", "home/rye-bread.md"
ASKED = {
    "what renews the wiki token with a day of grace": WIKI,
    "the nightly export cannot log in to the wiki any more": WIKI,
    "which postgres session is blocking my query": LOCKS,
    "end the oldest idle transaction in postgres": LOCKS,
    "how long does rye bread rise": BREAD,
    "bake sourdough rye in a closed pot": BREAD,
    "potash for the tomatoes on the balcony": "home/tomatoes.md",
    "write a function that reverses a linked list": "",
    "how do I set up logical replication slots": "",
    "rename this variable everywhere": "",
    "explain monads to a child": "",
    "the tests fail on windows only": "",
    "hello, how are you": "",
    "looks good, commit it": "",
}
PROMPTS = [
    LabelledPrompt(f"p{i}", text, (note,) if note else (), "k", "tune", voice="v")
    for i, (text, note) in enumerate(ASKED.items())
]


@pytest.fixture(autouse=True)
def _small_fixtures(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> None:
    folder = write_notes(tmp_path_factory.mktemp("fixtures"))
    source = SourceSettings("v", "markdown", folder)
    monkeypatch.setattr(fixtures, "sources", lambda _home: [source])
    monkeypatch.setattr(fixtures, "prompts", lambda: PROMPTS)


@pytest.fixture
def plain(run: CommandLine) -> CommandLine:
    """An index, and no thresholds set by hand."""
    write_notes(run.notes)
    run.home.mkdir()
    source = f'[[source]]\nname = "notes"\nkind = "markdown"\npath = "{run.notes}"\n'
    (run.home / "config.toml").write_text(source)
    assert run("rebuild", "--quiet").code == 0
    return run


def own(run: CommandLine) -> Any:
    (found,) = calibration.read(run.home / calibration.OWN).values()
    return found


def test_what_is_fitted_is_shown_and_nothing_changes(plain: CommandLine) -> None:
    result = plain("tune", "--max-false-injection", "0.1")
    assert result.code == 0, result.err
    assert "at most 10.0% false injections" in result.out
    assert "Lines of your own notes as queries" in result.out
    assert "nothing was changed" in result.err
    assert not (plain.home / calibration.OWN).exists()


def test_apply(plain: CommandLine) -> None:
    document = plain("tune", "--apply", "--json").json
    assert document["applied"] is True
    fitted = own(plain)
    assert document["thresholds"]["min_probability"] == fitted.thresholds.min_probability
    assert list(fitted.facts["bars"]) == ["0.005", "0.01", "0.02", "0.05"]
    assert fitted.distance_gap is not None
    assert fitted.facts["own_notes"]["all"]["queries"] > 0
    assert fitted.facts["own_queries"] == 0  # the model has weights; the own notes only measure
    assert plain("explain", QUESTION, "--json").json["thresholds"]["min_probability"] == (
        fitted.thresholds.min_probability
    )
    assert plain("eval", "--system", "distance-gap", "--json").json["system"] == "distance-gap"
    assert plain("replay", "--max-false-injection", "0.01", "--json").code == 0


def test_a_model_without_weights_learns_from_the_own_notes(
    plain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SHIPPED", plain.home / "none.json")
    assert plain("explain", QUESTION, "--json").json["reason"] == "uncalibrated"
    facts = plain("tune", "--apply", "--json").json["facts"]
    kinds = {kind: each["queries"] for kind, each in facts["own_notes"].items()}
    assert facts["own_queries"] == kinds["all"] - kinds["own-title"] > 0
    assert plain("explain", QUESTION, "--json").json["reason"] != "uncalibrated"


def test_bars_are_raised_on_the_own_notes_together(plain: CommandLine) -> None:
    """Own notes about what the unanswerable prompts ask for."""
    before = plain("tune", "--json").json
    for i, (text, note) in enumerate(ASKED.items()):
        if not note:
            plain.write(f"more/{i}.md", f"# {text}\n\n{text}, and {text} again.\n")
    assert plain("sync", "--quiet").code == 0
    after = plain("tune", "--json").json
    assert after["facts"]["raised_on_own_notes"] is True
    assert before["facts"]["raised_on_own_notes"] is False
    assert after["thresholds"]["min_probability"] > before["thresholds"]["min_probability"]
    for rate, bar in after["facts"]["bars"].items():
        assert bar >= before["facts"]["bars"][rate]


def test_own_prompts_and_feedback_are_learnt_from(plain: CommandLine, tmp_path: Path) -> None:
    answerer = Answerer(config.load(plain.home))
    for prompt in (FAR, QUESTION):
        request = {"kind": "prompt", "host": "claude", "session": prompt, "prompt": prompt}
        answerer.answer(request, time.monotonic() + 10)
    answerer.close()
    assert plain("feedback", "bad", "--prompt", QUESTION, "--note", WIKI).code == 0
    facts = plain("tune", "--json").json["facts"]
    assert facts["own_prompts"] == 1
    assert plain("tune", "--no-feedback", "--json").json["facts"]["own_prompts"] == 0
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"id": "x", "prompt": "rye bread", "relevant": [BREAD]}))
    assert plain("tune", "--prompts", file, "--json").json["facts"]["own_prompts"] == 2
    (plain.notes / WIKI).unlink()
    plain("sync", "--quiet")
    assert plain("tune", "--json").json["facts"]["own_prompts"] == 0  # its note is gone


def test_the_report_is_for_this_person_alone(plain: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "out.html"
    result = plain("tune", "--report", file, "--json")
    assert "thresholds" in result.json
    assert f"the report is in {file}" in result.err
    assert file.stat().st_mode & 0o777 == 0o600
    page = file.read_text()
    assert "write a function that reverses a linked list" in page
    for system in ("prompt-rag", "distance-gap", "bm25", "like"):
        assert f">{system}</text>" in page


def test_without_an_index(run: CommandLine, tmp_path: Path) -> None:
    facts = run("tune", "--json").json["facts"]
    assert "own_notes" not in facts
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"id": "x", "prompt": "rye bread", "relevant": [BREAD]}))
    assert run("tune", "--prompts", file).hint == "prompt-rag rebuild"


def test_the_notes_that_the_stand_in_asks_for_are_there() -> None:
    assert {each.relevant[0] for each in PROMPTS if each.relevant} <= set(NOTES)
