"""The decision log: what is in it, what is not, and what it sums up to."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from prompt_rag import __version__, decisions, fsio, wire
from prompt_rag.decisions import DecisionLog, percentile, record, summarise
from prompt_rag.domain import (
    Candidate,
    Decision,
    Excerpt,
    NoteHead,
    Passage,
    Reason,
    Thresholds,
    Verdict,
)

REQUEST = {"prompt": "a secret prompt", "session": "session id", "host": "claude", "cwd": "/p"}


def candidate(number: int) -> Candidate:
    note = NoteHead(f"id{number}", "md", f"note{number}.md", "Title", "file:///x", None, ())
    passage = Passage(f"p{number}", note.id, 0, "section", ("A",), "the passage", "hash")
    return Candidate(passage, note, 0.1 * number + 1e-9, number, {"coverage": 0.25})


def decision(**changes: object) -> Decision:
    found = [candidate(number) for number in range(1, 8)]
    values = {
        "outcome": "inject",
        "reason": Reason.CONFIDENT,
        "query": "a secret query",
        "verdicts": tuple(Verdict(each, each.rank == 1, "near enough") for each in found),
        "excerpts": (Excerpt(found[0], "the text", truncated=False),),
        "block": "x" * 120,
        "best_distance": 0.1000000014901161,
        "gap": 0.1,
        "thresholds": Thresholds(0.5, 0.02, 0.3, 0.7, "fingerprint"),
        "generation": "g1",
        "model": "m1",
        "timings_ms": {"embed": 5.12345, "total": 9.0},
    }
    return Decision(**{**values, **changes})


def test_a_line_without_others() -> None:
    few = decision().verdicts[:5]
    assert record(decision(verdicts=few), REQUEST)["others"] is None
    copies = [replace(candidate(n), evidence={"to_best": 0.01}) for n in range(1, 8)]
    found = tuple(Verdict(each, accepted=False, why="") for each in copies)
    assert record(decision(verdicts=found), REQUEST)["others"] is None


@pytest.fixture
def log(tmp_path: Path) -> DecisionLog:
    return DecisionLog(tmp_path / "decisions.jsonl")


# --- a line -----------------------------------------------------------------------------------


def test_a_line_says_what_was_decided_and_why() -> None:
    now = datetime(2026, 12, 1, 10, 0, 0, 123456, timezone(timedelta(hours=2)))
    line = record(decision(), REQUEST, text_keys={"p1": "key1"}, repeats=2, now=now)
    assert line["time"] == "2026-12-01T08:00:00.123Z"
    assert (line["outcome"], line["reason"]) == ("inject", "confident")
    assert (line["session"], line["prompt"]) == (
        wire.digest("session id"),
        wire.digest("a secret prompt"),
    )
    assert (line["chars"], line["host"]) == (15, "claude")
    assert (line["best_distance"], line["gap"]) == (0.1, 0.1)
    assert line["excerpts"] == [{"note": "note1.md", "text": "key1", "distance": 0.1}]
    assert len(line["candidates"]) == 5
    assert line["candidates"][1] == {
        "note": "note2.md",
        "distance": 0.2,
        "rank": 2,
        "evidence": {"coverage": 0.25},
        "accepted": False,
        "why": "near enough",
        "probability": None,
    }
    # The two that are not listed are rivals of those that are.
    assert line["others"] == {"distance": 0.6, "coverage": 0.25}
    assert (line["injected_chars"], line["repeats"]) == (120, 2)
    assert line["timings_ms"] == {"embed": 5.123, "total": 9.0}
    assert line["thresholds"]["max_distance"] == 0.5
    assert (line["version"], line["model"], line["generation"]) == (__version__, "m1", "g1")


def test_a_line_for_nothing_at_all() -> None:
    line = record(Decision("abstain", Reason.INDEX_MISSING), {})
    assert (line["session"], line["chars"], line["injected_chars"]) == ("", 0, 0)
    assert line["best_distance"] is line["gap"] is line["thresholds"] is None
    assert line["excerpts"] == line["candidates"] == []
    at = datetime.fromisoformat(line["time"])
    assert abs((datetime.now(UTC) - at).total_seconds()) < 60


def test_ids_differ() -> None:
    assert len({decisions.new_id() for _ in range(1000)}) == 1000


# --- the file ---------------------------------------------------------------------------------


def test_no_text_of_a_prompt_by_default(log: DecisionLog) -> None:
    log.append(record(decision(), REQUEST))
    data = log.path.read_text()
    assert "secret" not in data
    assert "session id" not in data
    assert "the passage" not in data
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_the_text_of_prompts_on_request(log: DecisionLog) -> None:
    log.keep_text = True
    log.append(record(decision(), REQUEST))
    assert log.last(1)[0]["text"] == "a secret prompt"


def test_what_cannot_be_encoded_does_not_lose_the_line(log: DecisionLog) -> None:
    log.append({"id": 1, "reason": Reason.BUSY, "at": datetime(2026, 1, 1, tzinfo=UTC), "x": {1}})
    assert log.last(1)[0]["reason"] == "busy"


def test_the_last_ones_newest_first(log: DecisionLog) -> None:
    for number in range(5):
        log.append({"id": number})
    assert [line["id"] for line in log.last(2)] == [4, 3]
    assert [line["id"] for line in log.last(9)] == [4, 3, 2, 1, 0]
    assert log.last(0) == []
    assert [line["id"] for line in log] == [0, 1, 2, 3, 4]


def test_a_log_that_is_not_there(log: DecisionLog) -> None:
    assert log.last(3) == []
    assert list(log) == []


def test_broken_lines_are_skipped(log: DecisionLog) -> None:
    log.append({"id": 1})
    with log.path.open("ab") as file:
        file.write(b'nonsense\n\n[1]\n\xff\xfe\n{"id": 2}\n{"id": 3')
    assert [line["id"] for line in log] == [1, 2]
    assert [line["id"] for line in log.last(5)] == [2, 1]


def test_a_full_log_becomes_its_predecessor(
    log: DecisionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "ROTATE_BYTES", 1000)
    for number in range(300):
        log.append({"id": number})
        assert log.path.stat().st_size < 1100
    ids = [line["id"] for line in log]
    assert ids == list(range(ids[0], 300))
    assert 80 < len(ids) < 250
    assert [line["id"] for line in log.last(100)] == ids[:-101:-1]
    assert {path.name for path in log.path.parent.iterdir()} == {
        "decisions.jsonl",
        "decisions.jsonl.1",
        "decisions.jsonl.lock",
    }


def test_a_full_log_is_turned_once_however_many_find_it_so(
    log: DecisionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "ROTATE_BYTES", 1000)
    log.path.write_bytes(b'{"id":"old"}\n' * 100)
    sizes = iter([1300, 20])  # full at first sight; another process has turned it since
    monkeypatch.setattr(log, "_size", lambda: next(sizes))
    log.append({"id": "new"})
    assert not log.path.with_name("decisions.jsonl.1").exists()
    assert log.last(1)[0]["id"] == "new"


def test_a_log_that_another_is_turning_still_takes_a_line(
    log: DecisionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "ROTATE_BYTES", 100)
    log.path.write_bytes(b'{"id":"old"}\n' * 100)
    with fsio.Lock(str(log.path) + ".lock"):
        log.append({"id": "new"})
    assert log.last(1)[0]["id"] == "new"


def write_many(path: Path, name: int) -> None:
    log = DecisionLog(path)
    for number in range(200):
        log.append({"id": f"{name}-{number}", "pad": "x" * 100})


def test_several_processes_lose_nothing(log: DecisionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "ROTATE_BYTES", 70_000)  # turned once by four times 200 lines
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write_many, args=(log.path, n)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    ids = [line["id"] for line in log]
    assert sorted(ids) == sorted(f"{n}-{number}" for n in range(4) for number in range(200))


def test_a_log_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        DecisionLog(tmp_path / "missing" / "decisions.jsonl").append({"id": 1})


# --- the sum ----------------------------------------------------------------------------------


def line(reason: str, total: float | None = None, **more: object) -> dict:
    outcome = "inject" if reason == "confident" else "abstain"
    timings = {} if total is None else {"total": total}
    return {"reason": reason, "outcome": outcome, "timings_ms": timings, **more}


def test_the_sum_of_a_log() -> None:
    summary = summarise(
        [
            line("machine-prompt", 0.5, time="2026-01-01T00:00:00Z"),
            line("confident", 10, injected_chars=500, time="2026-01-02T00:00:00Z"),
            line("confident", 30, injected_chars=100, repeats=1),
            line("already-shown", 20, repeats=2),
            line("too-far", 40, time="2026-01-03T00:00:00Z"),
            line("too-far"),
            {"reason": "deadline", "timings_ms": None, "injected_chars": "many"},
        ]
    )
    assert (summary.decisions, summary.typed, summary.injected) == (7, 6, 2)
    assert summary.injection_rate == pytest.approx(1 / 3)
    assert summary.reasons == {
        "confident": 2,
        "too-far": 2,
        "machine-prompt": 1,
        "already-shown": 1,
        "deadline": 1,
    }
    assert summary.total_ms == {"p50": 20, "p95": 40, "p99": 40}
    assert (summary.chars_injected, summary.repeats_avoided) == (600, 3)
    assert (summary.first, summary.last) == ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z")


def test_the_sum_of_nothing() -> None:
    summary = summarise([])
    assert (summary.decisions, summary.injection_rate, summary.total_ms) == (0, None, {})
    assert summarise([line("empty")]).injection_rate is None


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (95, 95), (99, 99), (100, 100)]
)
def test_percentiles_by_hand(percent: float, expected: object) -> None:
    assert percentile([float(n) for n in range(1, 101)], percent) == expected
    assert percentile([7.0], percent) == 7.0


def test_the_hook_writes_the_same_keys(log: DecisionLog) -> None:
    """What the hook writes by itself is a part of what a decision says."""
    from prompt_rag import hook

    turn = hook.Turn()
    turn.home = str(log.path.parent)
    turn.call = hook.hosts.Call("claude", "prompt", prompt="a secret prompt", session="session id")
    hook._note(turn, "deadline")
    hook._note(turn, "busy")  # one line a call
    (written,) = log
    whole = json.loads(json.dumps(record(Decision("abstain", Reason.DEADLINE), REQUEST)))
    assert written.keys() < whole.keys()
    same = ("session", "prompt", "chars", "host", "outcome", "reason", "version")
    assert {key: written[key] for key in same} == {key: whole[key] for key in same}
    assert datetime.fromisoformat(written["time"]).tzinfo is not None
    assert summarise(log).decisions == 1
