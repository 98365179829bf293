"""Labels on decisions: what each says, what may be stored, and what holds in the end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from prompt_rag import evaluation, feedback, wire
from prompt_rag.domain import ConfigError, Reason

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def record(name: str = "d1", *, injected: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "outcome": "inject" if injected else "abstain",
        "reason": "confident" if injected else "low-probability",
        "prompt": wire.digest(f"prompt of {name}"),
        "excerpts": [{"note": key, "text": "t", "distance": 0.3} for key in injected],
        **more,
    }


def test_what_each_label_says() -> None:
    spoke, silent = record(injected=("a.md", "b.md", "a.md")), record()
    assert feedback.label(spoke, "good", now=NOON) == feedback.Label(
        "d1", "2026-05-01T12:00:00+00:00", "good", spoke["prompt"], ("a.md", "b.md")
    )
    assert feedback.label(spoke, "bad").relevant == ()
    assert feedback.label(spoke, "bad", notes=["c.md", "c.md"]).relevant == ("c.md",)
    assert feedback.label(silent, "good").relevant == ()
    assert feedback.label(silent, "bad", notes=["c.md"]).relevant == ("c.md",)


def test_silence_was_wrong_only_where_something_should_have_come() -> None:
    with pytest.raises(ConfigError, match="say which note should have come") as caught:
        feedback.label(record(), "bad")
    assert caught.value.hint == "prompt-rag feedback bad d1 --note NOTE"


@pytest.mark.parametrize("reason", sorted(set(Reason) - feedback.JUDGED))
def test_what_says_nothing_about_the_notes_is_neither(reason: Reason) -> None:
    assert not feedback.can_be_judged(record(reason=reason.value))
    with pytest.raises(ConfigError, match=rf"\({reason}\), so it cannot be good"):
        feedback.label(record(reason=reason.value), "good")


def test_text_comes_from_the_log_or_from_the_person() -> None:
    assert feedback.label(record(), "good").text == ""
    assert feedback.label(record(text="prompt of d1"), "good").text == "prompt of d1"
    assert feedback.label(record(), "good", text="prompt of d1").text == "prompt of d1"
    with pytest.raises(ConfigError, match="about another prompt"):
        feedback.label(record(), "good", text="prompt of d1 ")


def test_labels_are_stored_for_this_person_alone(tmp_path: Path) -> None:
    feedback.append(tmp_path, feedback.label(record(), "good"))
    file = tmp_path / feedback.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert "text" not in orjson.loads(file.read_bytes())
    assert feedback.read(tmp_path) == [feedback.label(record(), "good", now=_time(file))]


def _time(file: Path) -> datetime:
    return datetime.fromisoformat(orjson.loads(file.read_bytes())["time"])


def test_the_latest_label_of_a_prompt_holds(tmp_path: Path) -> None:
    one, other = record("d1", injected=("a.md",)), record("d2")
    again = {**record("d3"), "prompt": one["prompt"]}
    feedback.append(tmp_path, feedback.label(one, "good", text="prompt of d1"))
    feedback.append(tmp_path, feedback.label(other, "good"))
    feedback.append(tmp_path, feedback.label(again, "bad", notes=["b.md"]))
    second, first = feedback.read(tmp_path)
    assert (second.id, second.text) == ("d2", "")
    # What was said earlier is replaced, what is known of the text is not lost.
    assert (first.id, first.verdict, first.relevant) == ("d3", "bad", ("b.md",))
    assert first.text == "prompt of d1"


def test_a_damaged_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    assert feedback.read(tmp_path) == []
    feedback.append(tmp_path, feedback.label(record(), "good"))
    with (tmp_path / feedback.FILE).open("ab") as file:
        file.write(b'{"id": 1}\n[]\n7\n{"id": "x", "time": "", "verdict": "fine", "relevant": [],')
        file.write(b'"prompt": ""}\n{"id": "x", "time": "", "verdict": "good", "relevant": "a",')
        file.write(b'"prompt": ""}\n\xff\n{"id')
    assert [each.id for each in feedback.read(tmp_path)] == ["d1"]


def test_labels_become_a_prompt_file(tmp_path: Path) -> None:
    known = [
        feedback.label(record("d1", injected=("a.md",)), "good", text="prompt of d1"),
        feedback.label(record("d2"), "good"),
        feedback.label(record("d3", text="two\nlines"), "good"),
    ]
    prompts = feedback.prompts(known)
    assert [each.id for each in prompts] == ["feedback-d1", "feedback-d3"]
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b"".join(feedback.line(each) for each in prompts))
    assert evaluation.load_prompts(file) == prompts
    assert prompts[0].relevant == ("a.md",)
    assert (prompts[1].relevant, prompts[1].kind, prompts[1].split) == ((), "feedback", "tune")
