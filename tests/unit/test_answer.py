"""From a request of the hook to its reply: switches, sessions, the log, and changes on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_world import IDENTITY, FakeEmbedder, World, note, words

from prompt_rag import answer, config, decisions, generations, pauses, search, sessions, wire
from prompt_rag.answer import Answerer
from prompt_rag.domain import (
    ConfigError,
    IndexDamaged,
    IndexIncompatible,
    IndexMissing,
    ModelUnavailable,
    PromptRagError,
    Reason,
)

APPLE = words("apple", 12)
SETTINGS = "[thresholds]\nmax_distance = 0.7\nmin_gap = 0.05\n"


class Asked(World):
    """A world with an answerer in it; ``loads`` counts how often a model was loaded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.loads = 0
        self.home.mkdir()
        self.configure()
        self.write("a.md", note("Alpha", ("One", "apple")), age=60)
        self.write("b.md", note("Beta", ("One", "banana")), age=60)
        self.rebuild()
        self.answerer = Answerer(config.load(self.home))

    def configure(self, more: str = "") -> None:
        (self.home / "config.toml").write_text(SETTINGS + more)

    def load(self, _config: object) -> FakeEmbedder:
        self.loads += 1
        return self.model

    def ask(self, prompt: str, session: str = "s", **more: Any) -> dict[str, Any]:
        request = {"kind": "prompt", "host": "claude", "session": session, "prompt": prompt}
        return self.answerer.answer({**request, **more}, time.monotonic() + 10)

    def start_session(self, source: str, session: str = "s") -> dict[str, Any]:
        request = {"kind": "session-start", "session": session, "source": source}
        return self.answerer.answer(request, time.monotonic() + 10)

    def log(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in (self.home / wire.LOG).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self.log()]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    world = Asked(tmp_path)
    monkeypatch.setattr(search, "load_embedder", world.load)
    monkeypatch.setattr(sessions, "TWICE_SECONDS", 0.0)  # nobody here types that quickly
    yield world
    world.answerer.close()


# --- answering ----------------------------------------------------------------------------------


def test_a_prompt_that_a_note_answers(world: Asked) -> None:
    reply = world.ask(APPLE)
    assert (reply["outcome"], reply["reason"]) == ("inject", "confident")
    assert "- [Alpha › One, " in reply["block"]
    assert words("apple") in reply["block"]
    assert world.loads == 1
    assert world.answerer.generation == generations.current(world.home).id


def test_a_prompt_that_none_answers(world: Asked) -> None:
    reply = world.ask(words("nothing", 12))
    assert reply == {"outcome": "abstain", "reason": "too-far", "block": ""}


def test_warming_loads_everything_and_answers_nothing(world: Asked) -> None:
    assert world.answerer.generation == ""
    world.answerer.warm()
    assert world.loads == 1
    assert world.answerer.generation
    world.ask(APPLE)
    assert world.loads == 1
    assert len(world.log()) == 1


@pytest.mark.parametrize("request_", [{}, {"kind": "prompt"}, {"prompt": 7, "session": None}])
def test_a_request_that_makes_no_sense(world: Asked, request_: dict[str, Any]) -> None:
    reply = world.answerer.answer(request_, time.monotonic() + 10)
    assert (reply["outcome"], reply["reason"]) == ("abstain", "empty")


# --- what a session has been shown --------------------------------------------------------------


def test_a_session_is_shown_a_text_once(world: Asked) -> None:
    assert world.ask(APPLE)["outcome"] == "inject"
    for prompt in (APPLE, words("apple", 15), words("apple", 20)):
        assert world.ask(prompt)["reason"] == "already-shown"
    assert world.ask(APPLE, session="another")["outcome"] == "inject"
    assert [line["repeats"] for line in world.log()] == [0, 1, 1, 1, 0]


def test_a_prompt_without_a_session_is_always_answered(world: Asked) -> None:
    assert [world.ask(APPLE, session="")["outcome"] for _ in range(2)] == ["inject", "inject"]


@pytest.mark.parametrize("source", ["compact", "clear"])
def test_a_session_that_lost_its_context_is_shown_it_again(world: Asked, source: str) -> None:
    world.ask(APPLE)
    assert world.start_session(source)["outcome"] == "abstain"
    assert world.ask(APPLE)["outcome"] == "inject"
    assert world.reasons() == ["confident", "confident"]


@pytest.mark.parametrize("source", ["startup", "resume", "", "fork"])
def test_a_session_that_goes_on_is_not(world: Asked, source: str) -> None:
    world.ask(APPLE)
    world.start_session(source)
    assert world.ask(APPLE)["reason"] == "already-shown"


def test_only_that_session_forgets(world: Asked) -> None:
    world.ask(APPLE)
    world.start_session("compact", session="another")
    assert world.ask(APPLE)["reason"] == "already-shown"


def test_a_note_that_changed_is_shown_again(world: Asked) -> None:
    world.ask(APPLE)
    world.write("a.md", note("Alpha", ("One", "apple")) + "\nAnd a word more.\n")
    world.sync()
    world.answerer.follow()
    reply = world.ask(APPLE)
    assert "And a word more." in reply["block"]
    assert world.ask(APPLE)["reason"] == "already-shown"


def test_the_same_text_out_of_another_note_is_a_repeat(world: Asked) -> None:
    world.ask(APPLE)
    world.move("a.md", "exported/a.md")
    world.sync()
    world.answerer.follow()
    assert world.ask(APPLE)["reason"] == "already-shown"


def test_what_was_shown_makes_room_for_what_was_not(world: Asked) -> None:
    for key in ("x.md", "y.md"):
        world.write(key, f"# Copy\n\n{words('fig')} edited {key[0] * 3}\n")
    world.configure("[hook]\nmax_excerpts = 1\n")
    world.sync()
    first, second, third = (
        (world.answerer.follow(), world.ask(words("fig", 12)))[1] for _ in range(3)
    )
    assert first["outcome"] == second["outcome"] == "inject"
    assert first["block"] != second["block"]
    assert third["reason"] == "already-shown"


def test_the_same_prompt_within_a_moment_is_answered_once(
    world: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TWICE_SECONDS", 60.0)
    assert world.ask(APPLE)["outcome"] == "inject"
    assert world.ask(APPLE)["reason"] == "duplicate-call"
    assert world.ask(APPLE, session="another")["outcome"] == "inject"
    assert world.reasons() == ["confident", "duplicate-call", "confident"]


# --- switches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt", [f"{APPLE} #nonotes", f"#nonotes {APPLE}", f"{APPLE}\n#nonotes.", "#nonotes"]
)
def test_a_prompt_can_say_that_it_wants_no_notes(world: Asked, prompt: str) -> None:
    assert world.ask(prompt)["reason"] == "switched-off"
    assert world.loads == 0
    assert world.reasons() == ["switched-off"]


@pytest.mark.parametrize("word", ["#nonotesplease", "x#nonotes", "#nonotes-x", "nonotes"])
def test_a_word_that_only_looks_like_the_switch(world: Asked, word: str) -> None:
    assert world.ask(f"{APPLE} {word}")["outcome"] == "inject"


@pytest.mark.parametrize("ending", [" #notes", "\n#notes?", " #notes!"])
def test_a_prompt_can_ask_for_all_that_is_near(world: Asked, ending: str) -> None:
    (world.home / "config.toml").write_text("[thresholds]\nmax_distance = 0.2\nmin_gap = 0.05\n")
    world.answerer.follow()
    assert world.ask(APPLE)["reason"] == "too-far"
    assert "Alpha" in world.ask(APPLE + ending)["block"]
    assert world.reasons() == ["too-far", "confident"]


def test_the_word_itself_is_not_looked_up(world: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    embed = world.model.embed_query

    def record(text: str) -> Any:
        queries.append(text)
        return embed(text)

    monkeypatch.setattr(world.model, "embed_query", record)
    world.ask(f"#notes about C#notes and {APPLE} #notes.")
    assert queries[-1].count("#notes") == 1  # the one inside a word


def test_the_words_are_settings_and_can_be_taken_away(world: Asked) -> None:
    world.configure('[hook]\nskip_word = ""\nwide_word = "!!"\n')
    world.answerer.follow()
    assert world.ask(f"{APPLE} #nonotes")["outcome"] == "inject"
    assert world.ask(f"{words('nothing', 9)} !!", session="t")["outcome"] == "inject"


def test_a_pause_silences_everything_until_it_ends(world: Asked) -> None:
    pauses.pause(world.home, time.time() + 60)
    assert world.ask(APPLE)["reason"] == "paused"
    assert world.loads == 0
    pauses.resume(world.home)
    assert world.ask(APPLE)["outcome"] == "inject"


# --- the log ------------------------------------------------------------------------------------


def test_every_line_says_how_long_it_took(world: Asked) -> None:
    world.ask(APPLE, sent_ms=12.5)
    world.ask(f"{APPLE} #nonotes", sent_ms=3)
    world.ask("yes", sent_ms=2)
    pauses.pause(world.home, time.time() + 60)
    world.ask(APPLE, sent_ms=1)
    found = [line["timings_ms"] for line in world.log()]
    assert [each["client"] for each in found] == [12.5, 3, 2, 1]
    assert all(each["total"] > each["client"] for each in found)
    inside = sum(found[0][stage] for stage in ("parse", "embed", "search", "decide", "render"))
    assert found[0]["total"] >= inside + 12.5
    assert set(found[1]) == set(found[3]) == {"client", "total"}
    summary = decisions.summarise(world.log())
    assert summary.decisions == 4
    assert summary.total_ms["p50"] > 0


@pytest.mark.parametrize("sent", [None, "soon", -5, [1]])
def test_a_client_that_does_not_tell_its_time(world: Asked, sent: object) -> None:
    world.ask(APPLE, sent_ms=sent)
    (line,) = world.log()
    assert line["timings_ms"]["client"] == 0.0
    assert line["timings_ms"]["total"] > 0.0


SECRET = "xylophone"


def holding(home: Path, text: str) -> list[str]:
    return [
        path.name
        for path in home.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_no_prompt_is_stored(world: Asked) -> None:
    for prompt in (
        f"{APPLE} {SECRET}",
        f"{SECRET} #nonotes",
        f"{SECRET} is where?",
        "/x " + SECRET,
    ):
        world.ask(prompt, session=f"session {SECRET}", cwd=f"/home/{SECRET}")
    assert len(world.log()) == 4
    assert holding(world.home, SECRET) == []


def test_prompts_are_stored_where_somebody_wants_that(world: Asked) -> None:
    world.configure("[log]\nprompt_text = true\n")
    world.answerer.follow()
    world.ask(f"{APPLE} {SECRET}")
    assert holding(world.home, SECRET) == [wire.LOG]
    assert world.log()[0]["text"] == f"{APPLE} {SECRET}"


def test_an_answer_that_comes_too_late_is_neither_logged_nor_remembered(world: Asked) -> None:
    request = {"kind": "prompt", "session": "s", "prompt": APPLE}
    reply = world.answerer.answer(request, time.monotonic() - 0.01)
    assert reply == {"outcome": "abstain", "reason": "deadline", "block": ""}
    assert world.log() == []  # the hook writes this line
    assert world.ask(APPLE)["outcome"] == "inject"


def test_a_log_that_cannot_be_written_costs_nothing(world: Asked) -> None:
    (world.home / wire.LOG).mkdir()
    assert world.ask(APPLE)["outcome"] == "inject"


def test_what_is_unexpected_is_logged_and_raised(
    world: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(_text: str) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(world.model, "embed_query", embed)
    with pytest.raises(ZeroDivisionError):
        world.ask(APPLE)
    (line,) = world.log()
    assert (line["outcome"], line["reason"]) == ("abstain", "error")
    assert line["timings_ms"]["total"] > 0
    assert holding(world.home, SECRET) == []


# --- failures that are known --------------------------------------------------------------------


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (IndexMissing("x"), Reason.INDEX_MISSING),
        (IndexIncompatible("x"), Reason.INDEX_INCOMPATIBLE),
        (IndexDamaged("x"), Reason.INDEX_DAMAGED),
        (ModelUnavailable("x"), Reason.MODEL_MISSING),
        (ConfigError("x"), Reason.BAD_CONFIG),
        (PromptRagError("x"), Reason.ERROR),
    ],
)
def test_a_known_failure_is_a_reason(
    world: Asked, monkeypatch: pytest.MonkeyPatch, error: PromptRagError, reason: Reason
) -> None:
    monkeypatch.setattr(search.Reader, "open", raising(error))
    reply = world.ask(APPLE)
    assert reply == {"outcome": "abstain", "reason": reason.value, "block": ""}
    assert world.reasons() == [reason.value]


def test_a_missing_index_is_found_once_it_is_there(world: Asked) -> None:
    current = world.home / "CURRENT"
    name = current.read_bytes()
    current.unlink()
    assert world.ask(APPLE)["reason"] == "index-missing"
    assert world.loads == 0
    current.write_bytes(name)
    assert world.ask(APPLE)["outcome"] == "inject"


def test_an_index_of_another_model_is_not_asked_and_the_model_is_loaded_once(world: Asked) -> None:
    world.model = FakeEmbedder(replace(IDENTITY, fingerprint="e" * 64))
    with pytest.raises(IndexIncompatible):
        world.answerer.warm()
    for _ in range(3):
        assert world.ask(APPLE)["reason"] == "index-incompatible"
    assert world.loads == 1
    world.rebuild()  # with the model that was loaded
    assert world.ask(APPLE)["outcome"] == "inject"
    assert world.loads == 1


def test_an_index_that_turns_out_to_be_damaged_is_opened_anew(world: Asked) -> None:
    world.answerer.warm()
    opened = world.answerer._reader
    assert opened is not None
    opened.decide = raising(IndexDamaged("torn"))  # type: ignore[method-assign]
    assert world.ask(APPLE)["reason"] == "index-damaged"
    assert world.ask(APPLE)["outcome"] == "inject"
    assert world.loads == 1


# --- settings that change -----------------------------------------------------------------------


def test_new_settings_hold_for_the_next_prompt(world: Asked) -> None:
    assert world.ask(APPLE)["outcome"] == "inject"
    (world.home / "config.toml").write_text("[thresholds]\nmax_distance = 0.1\nmin_gap = 0.0\n")
    world.answerer.follow()
    assert world.ask(APPLE, session="t")["reason"] == "too-far"
    (world.home / "config.toml").unlink()
    world.answerer.follow()
    assert world.ask(APPLE, session="u")["reason"] == "uncalibrated"


def test_settings_with_a_mistake_change_nothing(world: Asked) -> None:
    assert world.ask(APPLE)["outcome"] == "inject"
    (world.home / "config.toml").write_text("[thresholds]\nmax_distanze = 0.1\n")
    for _ in range(2):
        with pytest.raises(ConfigError):
            world.answerer.follow()
        assert world.ask(APPLE, session="")["outcome"] == "inject"
    (world.home / "config.toml").write_text("[thresholds]\nmax_distance = 0.1\nmin_gap = 0.0\n")
    world.answerer.follow()
    assert world.ask(APPLE, session="")["reason"] == "too-far"


def test_a_damaged_calibration_changes_nothing(world: Asked) -> None:
    assert world.ask(APPLE)["outcome"] == "inject"
    (world.home / "calibration.json").write_text("{}")
    with pytest.raises(ConfigError):
        world.answerer.follow()
    assert world.ask(APPLE, session="")["outcome"] == "inject"


def test_another_model_is_loaded_and_other_tiers_ask_for_a_rebuild(world: Asked) -> None:
    world.ask(APPLE)
    world.configure('[model]\nname = "BAAI/bge-small-en-v1.5"\n')
    world.answerer.follow()
    world.ask(APPLE)
    assert world.loads == 2
    (world.home / "config.toml").write_text('tiers = ["tldr"]\n' + SETTINGS)
    world.answerer.follow()
    assert world.ask(APPLE)["reason"] == "index-incompatible"


def test_explain_decides_as_the_hook_does(world: Asked) -> None:
    with search.Reader.open(config.load(world.home), lambda: world.model) as reader:
        assert answer.decide(reader, APPLE).block == world.ask(APPLE, session="")["block"]
        assert answer.decide(reader, f"{APPLE} #nonotes").reason is Reason.SWITCHED_OFF
        wide = answer.decide(reader, f"{words('nothing', 9)} #notes")
    assert wide.outcome == "inject"
