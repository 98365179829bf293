"""``feedback``: from a decision in the log to a prompt file that ``eval`` reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli_world import FAR, QUESTION, CommandLine

from prompt_rag import config
from prompt_rag.answer import Answerer

BREAD = "home/rye-bread.md"
WIKI = "work/wiki-token.md"


def ask(run: CommandLine, *prompts: str) -> None:
    """Answer prompts as the daemon does, which also logs them."""
    answerer = Answerer(config.load(run.home))
    for prompt in prompts:
        request = {"kind": "prompt", "host": "claude", "session": prompt, "prompt": prompt}
        answerer.answer(request, time.monotonic() + 10)
    answerer.close()


def exported(run: CommandLine, file: Path) -> list[dict[str, Any]]:
    assert run("feedback", "export", file).code == 0
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_last_decision_is_meant(built: CommandLine, tmp_path: Path) -> None:
    ask(built, FAR, QUESTION, "<task-notification>done</task-notification>")
    label = built("feedback", "good", "--prompt", QUESTION, "--json").json
    assert (label["verdict"], label["relevant"], label["text"]) == ("good", [WIKI], QUESTION)
    file = built.home / "feedback.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    assert exported(built, tmp_path / "p.jsonl") == [
        {
            "id": f"feedback-{label['id']}",
            "prompt": QUESTION,
            "relevant": [WIKI],
            "kind": "feedback",
            "split": "tune",
        }
    ]
    found = built("eval", "--notes", built.notes, "--prompts", tmp_path / "p.jsonl", "--json").json
    assert found["injection"]["coverage"] == 1.0


def test_no_text_is_stored_that_was_not_given(built: CommandLine, tmp_path: Path) -> None:
    ask(built, QUESTION)
    result = built("feedback", "bad")
    assert (result.code, result.out) == (0, "")
    assert "the right answer is: no note" in result.err
    assert "--prompt TEXT" in result.err
    assert QUESTION not in (built.home / "feedback.jsonl").read_text()
    result = built("feedback", "export", tmp_path / "p.jsonl")
    assert "the text of 1 labelled prompts is not known" in result.err
    assert (tmp_path / "p.jsonl").read_text() == ""
    document = built("feedback", "export", "--json").json
    assert document["prompts"] == []
    assert len(document["without_text"]) == 1


def test_text_that_the_log_keeps_is_used(built: CommandLine) -> None:
    built.environment.setenv("PROMPT_RAG_LOG_PROMPT_TEXT", "true")
    ask(built, QUESTION)
    assert built("feedback", "bad").code == 0
    (line,) = built("feedback", "export").out.splitlines()
    assert (json.loads(line)["prompt"], json.loads(line)["relevant"]) == (QUESTION, [])


def test_a_named_decision(built: CommandLine) -> None:
    ask(built, FAR, QUESTION)
    far = next(each for each in built("why", "--json").json if each["reason"] == "too-far")["id"]
    result = built("feedback", "bad", far)
    assert result.hint == f"prompt-rag feedback bad {far} --note NOTE"
    label = built("feedback", "bad", far, "--note", "Rye bread", "--prompt", FAR, "--json").json
    assert (label["id"], label["relevant"]) == (far, [BREAD])
    label = built("feedback", "good", far, "--json").json
    assert (label["relevant"], label["text"]) == ([], None)
    (line,) = built("feedback", "export").out.splitlines()  # of one prompt the latest word
    assert json.loads(line)["relevant"] == []
    assert built("feedback", "good", "nosuch").hint == "prompt-rag why"


def test_the_prompt_must_be_that_of_the_decision(built: CommandLine) -> None:
    ask(built, QUESTION)
    assert "another prompt" in built("feedback", "good", "--prompt", "else").err
    prompt = QUESTION.encode()
    assert built("feedback", "good", "--prompt", "-", "--json", stdin=prompt).json["text"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("good", "--note", "Rye bread"), 2), (("bad", "--note", "nothing like it"), 1)],
)
def test_notes_that_make_no_sense(
    built: CommandLine, arguments: tuple[str, ...], code: int
) -> None:
    ask(built, QUESTION)
    result = built("feedback", *arguments)
    assert result.code == code
    assert not (built.home / "feedback.jsonl").exists()


def test_before_anybody_asked(run: CommandLine) -> None:
    assert run("feedback", "good").hint == "prompt-rag explain PROMPT"
    assert run("feedback", "export").out == ""
    assert run("feedback", "export", "--json").json == {"prompts": [], "without_text": []}
    assert not (run.home / "feedback.jsonl").exists()
