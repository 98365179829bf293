"""Figures against tables worked out by hand, and systems on a small index."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_world import World, words

from prompt_rag import evaluation, policy
from prompt_rag.config import SourceSettings
from prompt_rag.domain import ConfigError, LabelledPrompt, Reason, Thresholds
from prompt_rag.evaluation import Case
from prompt_rag.policy import Weights
from prompt_rag.search import Reader

Keys = tuple[str, ...]


def case(
    name: str,
    relevant: str = "",
    ranked: Sequence[str | Keys] = (),
    injected: Sequence[str | Keys] = (),
    *,
    also_ok: str = "",
    kind: str = "k",
    **more: Any,
) -> Case:
    """A case whose notes are single letters; a tuple is one candidate with several origins."""
    prompt = LabelledPrompt(name, "prompt", tuple(relevant), kind, "test", tuple(also_ok))
    one = [tuple(each) if isinstance(each, tuple) else (each,) for each in ranked]
    two = [tuple(each) if isinstance(each, tuple) else (each,) for each in injected]
    outcome = "inject" if injected else "abstain"
    return Case(prompt, outcome, "", tuple(one), tuple(two), **more)


def row(*arguments: Any, **more: Any) -> dict[str, float]:
    """Return the retrieval measures of one case."""
    rows = evaluation.retrieval_rows([case("1", *arguments, **more)])
    return {name: values[0] for name, values in rows.items()}


# --- retrieval, by hand -------------------------------------------------------------------------

# Discounts 1 / log2(rank + 1) of the ranks 1 to 6.
D1, D2, D3, D4, D5, D6 = 1.0, 0.63093, 0.5, 0.43068, 0.38685, 0.35621


@pytest.mark.parametrize(
    ("relevant", "ranked", "recall", "reciprocal", "ndcg"),
    [
        ("a", "abc", 1.0, 1.0, 1.0),
        ("a", "bac", 1.0, 1 / 2, D2 / D1),
        ("a", "bcdea", 1.0, 1 / 5, D5 / D1),
        ("a", "bcdefa", 0.0, 1 / 6, D6 / D1),
        ("a", "bcdefghijka", 0.0, 1 / 11, 0.0),  # nDCG@10 ends before it
        ("a", "bcd", 0.0, 0.0, 0.0),
        ("a", "", 0.0, 0.0, 0.0),
        ("ab", "xaybz", 1.0, 1 / 2, (D2 + D4) / (D1 + D2)),
        # The ideal comes from all relevant notes, not from those that were found.
        ("abc", "a", 1 / 3, 1.0, D1 / (D1 + D2 + D3)),
        ("abcdef", "abcdef", 5 / 6, 1.0, 1.0),
        ("aa", "ba", 1.0, 1 / 2, D2 / D1),
    ],
)
def test_the_measures_of_a_ranking(
    relevant: str, ranked: str, recall: float, reciprocal: float, ndcg: float
) -> None:
    found = row(relevant, ranked)
    assert found == {
        "recall@5": pytest.approx(recall),
        "mrr": pytest.approx(reciprocal),
        "ndcg@10": pytest.approx(ndcg, abs=1e-4),
    }


def test_a_candidate_of_several_origins_counts_once() -> None:
    assert row("a", [("x", "a"), "y"])["mrr"] == 1.0
    assert row("a", ["y", ("x", "z"), ("x2", "a")])["mrr"] == 1 / 3
    # Both of its origins were asked for: both are found.
    assert row("ab", [("a", "b")])["recall@5"] == 1.0


def test_rows_keep_the_order_of_the_cases() -> None:
    cases = [case("2", "a", "ba"), case("10", "a", "a"), case("1", "a", "")]
    assert evaluation.retrieval_rows(cases)["mrr"] == [0.5, 1.0, 0.0]
    assert evaluation.retrieval_rows([])["mrr"] == []


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abc"), min_size=1), st.permutations("abcdefgh")),
        min_size=1,
        max_size=5,
    )
)
def test_two_computations_agree(judged: list[tuple[set[str], list[str]]]) -> None:
    cases = [case(str(i), "".join(rel), ranked) for i, (rel, ranked) in enumerate(judged)]
    rows = evaluation.retrieval_rows(cases)
    for position, (relevant, ranked) in enumerate(judged):
        places = [i for i, key in enumerate(ranked) if key in relevant]
        ideal = sum(1 / math.log2(i + 2) for i in range(len(relevant)))
        gained = sum(1 / math.log2(i + 2) for i in places)
        assert rows["recall@5"][position] == pytest.approx(
            sum(i < 5 for i in places) / len(relevant)
        )
        assert rows["mrr"][position] == pytest.approx(1 / (places[0] + 1))
        assert rows["ndcg@10"][position] == pytest.approx(gained / ideal)


# --- injection, by hand -------------------------------------------------------------------------

JUDGED = [
    case("hit", "a", "abc", "a"),
    case("hit beside a wrong one", "a", "ab", "ba"),
    case("wrong", "a", "ba", "b"),
    case("borderline", "a", "ca", "c", also_ok="c"),
    case("silent", "a", "a"),
    case("nothing there", "", "ab"),
    case("spoke", "", "ab", "a", kind="chatter"),
    case("spoke of a borderline one", "", "ab", "b", also_ok="b", kind="chatter"),
]


def test_the_rates_of_injection() -> None:
    found = evaluation.figures(JUDGED)
    assert {name: found[name] for name in evaluation.INJECTION} == {
        "precision": 0.5,  # 2 right of 4 that are right or wrong
        "coverage": 0.4,  # 2 of 5 answerable
        "false_injection_rate": 0.3333,  # 1 of 3 unanswerable
        "wrong_note_rate": 0.2,  # 1 of 5 answerable
    }


def test_borderline_is_neither_right_nor_wrong() -> None:
    for borderline in (JUDGED[3], JUDGED[7]):
        assert not borderline.hit
        assert not borderline.false
        assert evaluation.figures([borderline])["precision"] is None
    assert evaluation.figures([JUDGED[3]])["coverage"] == 0.0
    assert evaluation.figures([JUDGED[7]])["false_injection_rate"] == 0.0
    # A wrong note beside it does not make the prompt's injection wrong.
    assert not case("1", "a", "", ["b", "c"], also_ok="c").false


def test_the_two_kinds_of_prompts_are_never_averaged() -> None:
    answerable = [each for each in JUDGED if each.answerable]
    unanswerable = [each for each in JUDGED if not each.answerable]
    whole = evaluation.figures(JUDGED)
    only = evaluation.figures(answerable)
    for name in ("recall@5", "mrr", "ndcg@10", "coverage", "wrong_note_rate"):
        assert whole[name] == only[name]
        assert evaluation.figures(unanswerable)[name] is None
    assert only["false_injection_rate"] is None
    assert whole["mrr"] == round((1 + 1 + 1 / 2 + 1 / 2 + 1) / 5, 4)
    # Silence where nothing could be said improves no mean.
    more = [*JUDGED, *(case(f"more {i}") for i in range(50))]
    assert evaluation.figures(more)["mrr"] == whole["mrr"]


def test_nothing_to_measure() -> None:
    assert set(evaluation.figures([]).values()) == {None}
    assert evaluation.intervals([]) == {}


def test_groundedness() -> None:
    cases = [
        case("1", "a", grounded=1.0),
        case("2", "a", grounded=0.5),
        case("3", "a"),  # no keywords are given
        case("4", "", grounded=0.0),  # nothing to be grounded in
    ]
    assert evaluation.figures(cases)["groundedness"] == 0.75
    assert evaluation.figures(cases[2:])["groundedness"] is None


# --- intervals ----------------------------------------------------------------------------------


def test_intervals_are_the_same_each_time() -> None:
    first = evaluation.intervals(JUDGED)
    assert first == evaluation.intervals(JUDGED)
    assert set(first) == set(evaluation.figures(JUDGED)) - {"groundedness"}
    whole = evaluation.figures(JUDGED)
    for name, (low, high) in first.items():
        assert 0.0 <= low <= whole[name] <= high <= 1.0


def test_intervals_narrow_with_more_prompts() -> None:
    few = [case(str(i), "a", "a", "a" if i % 2 else "") for i in range(10)]
    many = [case(str(i), "a", "a", "a" if i % 2 else "") for i in range(400)]
    widths = [
        high - low for low, high in (evaluation.intervals(c)["coverage"] for c in (few, many))
    ]
    # A share of one half of n prompts lies within 1.96 × 0.5 / √n of it, either way.
    assert widths[0] == pytest.approx(0.62, abs=0.12)
    assert widths[1] == pytest.approx(0.098, abs=0.015)
    assert evaluation.intervals([case("1", "a", "a", "a")])["coverage"] == [1.0, 1.0]


# --- grounding ----------------------------------------------------------------------------------


def test_grounded(reader: Reader) -> None:
    def grounded(*keywords: str) -> float | None:
        return evaluation.grounded(keywords, found, reader.catalog)

    found = reader.candidates(words("locks", 6))[:1]
    assert grounded() is None
    assert grounded("LOCKS3") == 1.0
    assert grounded("locks3", "nowhere") == 0.5
    assert grounded("Locks note") == 1.0  # in a title
    assert grounded("bread3") == 0.0
    found = []
    assert grounded("locks3") == 0.0


def test_a_keyword_may_stand_anywhere_in_the_note(reader: Reader) -> None:
    found = reader.candidates(words("trains", 20))[:1]
    assert "signals3" not in found[0].passage.text
    assert evaluation.grounded(("trains3", "signals3"), found, reader.catalog) == 1.0


# --- prompt files -------------------------------------------------------------------------------

PROMPT = {"id": "p1", "prompt": "how?", "relevant": ["a.md"]}


def write(folder: Path, *lines: object) -> Path:
    file = folder / "prompts.jsonl"
    parts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    file.write_bytes(b"\n".join(parts))
    return file


def test_prompts(tmp_path: Path) -> None:
    full = {
        "id": 7,
        "prompt": "line\u2028separator",
        "relevant": ["a.md", "b.md", "a.md"],
        "also_ok": ["c.md"],
        "kind": "exact",
        "split": "tune",
        "keywords": ["five times"],
        "voice": "work",
        "remark": "ignored",
    }
    file = write(tmp_path, PROMPT, b"", b"  ", orjson.dumps(full), b"")
    assert evaluation.load_prompts(file) == [
        LabelledPrompt("p1", "how?", ("a.md",), "", ""),
        LabelledPrompt(
            "7",
            "line\u2028separator",
            ("a.md", "b.md"),
            "exact",
            "tune",
            ("c.md",),
            ("five times",),
            "work",
        ),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "unexpected end"),
        (b"\xff", ""),
        ([], "not an object with a prompt"),
        ({"id": "x", "relevant": []}, "not an object with a prompt"),
        ({**PROMPT, "prompt": 3}, "not an object with a prompt"),
        ({"prompt": "x", "relevant": []}, "id must be a string or a number"),
        ({**PROMPT, "id": None}, "id must be a string or a number"),
        ({"id": "x", "prompt": "x"}, "relevant is missing; [] means that nothing may be injected"),
        ({**PROMPT, "relevant": "a.md"}, "relevant must be a list of strings"),
        ({**PROMPT, "relevant": [1]}, "relevant must be a list of strings"),
        ({**PROMPT, "also_ok": None}, "also_ok must be a list of strings"),
        ({**PROMPT, "keywords": {}}, "keywords must be a list of strings"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: object, words: str) -> None:
    file = write(tmp_path, PROMPT, b"", line)
    with pytest.raises(ConfigError) as caught:
        evaluation.load_prompts(file)
    assert caught.value.message.startswith(f"{file}, line 3: ")
    assert words in caught.value.message
    assert caught.value.hint == f"edit {file}"


def test_an_id_that_occurs_twice(tmp_path: Path) -> None:
    file = write(tmp_path, PROMPT, {**PROMPT, "id": "p2"}, PROMPT)
    with pytest.raises(ConfigError, match="the id p1 occurs twice"):
        evaluation.load_prompts(file)


@pytest.mark.parametrize("lines", [[], [b" "]])
def test_a_file_without_prompts(tmp_path: Path, lines: list[bytes]) -> None:
    file = write(tmp_path, *lines)
    with pytest.raises(ConfigError, match=r"prompts\.jsonl holds no prompts"):
        evaluation.load_prompts(file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        evaluation.load_prompts(tmp_path / "none.jsonl")


# --- a small index ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Notes on topics of their own; one of them also lies in a second folder."""
    world = World(tmp_path_factory.mktemp("world"))
    for topic in ("locks", "bread", "trains"):
        world.write(f"{topic}.md", f"# {topic.title()} note\n\n{words(topic)}\n")
    with (world.notes / "trains.md").open("a") as file:
        file.write(f"\n## More\n\n{words('signals')}\n")
    second = world.folder / "second"
    second.mkdir()
    (second / "copy.md").write_text(f"# Locks note\n\n{words('locks')}\n")
    world.sources.append(SourceSettings("second", "markdown", second))
    world.rebuild()
    return world


@pytest.fixture
def reader(world: World) -> Iterator[Reader]:
    with Reader.open(world.config, lambda: world.model) as opened:
        yield opened


def prompt(name: str, text: str, *relevant: str, **more: Any) -> LabelledPrompt:
    return LabelledPrompt(name, text, relevant, more.pop("kind", "k"), "test", **more)


PROMPTS = [
    prompt("right", words("locks", 20), "locks.md", keywords=("locks3",)),
    prompt("by its copy", words("locks", 20), "copy.md"),
    prompt("wrong", words("bread", 20), "trains.md", keywords=("trains3",)),
    prompt("nothing", words("opera", 20), kind="chatter"),
    prompt("nobody typed it", "<task-notification>\nlocks1 locks2 done\n</task-notification>"),
]


def test_prompt_rag_does_what_the_hook_does(reader: Reader) -> None:
    told: list[tuple[str, int, int]] = []
    right, copy, wrong, nothing, untyped = evaluation.run(
        "prompt-rag", reader, PROMPTS, lambda *step: told.append(step)
    )
    assert (right.outcome, right.reason, right.hit) == ("inject", "confident", True)
    assert set(right.ranked[0]) == {"locks.md", "copy.md"}
    assert right.grounded == 1.0
    assert right.best_distance == right.candidates[0].distance
    assert right.milliseconds > 0
    assert copy.hit
    assert (wrong.hit, wrong.false, wrong.grounded) == (False, True, 1.0)
    assert (nothing.outcome, nothing.reason) == ("abstain", "too-far")
    assert nothing.ranked
    assert (untyped.outcome, untyped.reason) == ("abstain", "machine-prompt")
    assert not untyped.searched
    assert untyped.ranked  # what a search would have found is known all the same
    assert told == [("ask", number, 5) for number in range(1, 6)]
    assert all(each.searched for each in (right, copy, wrong, nothing))


def test_distance_and_gap_alone(reader: Reader) -> None:
    """The same ranking and the same candidates; only what is injected may differ."""
    assert reader.thresholds is not None
    reader.thresholds = replace(reader.thresholds, min_probability=0.5)
    reader.weights = Weights(-50.0, {"gap": 0.0}, {"gap": 0.0})  # they say no to everything
    reader.distance_gap = Thresholds(0.7, 0.05, 0.0, 1.0, "f")
    weighed = evaluation.run("prompt-rag", reader, PROMPTS)
    alone = evaluation.run("distance-gap", reader, PROMPTS)
    assert [each.ranked for each in alone] == [each.ranked for each in weighed]
    assert [each.outcome for each in weighed] == ["abstain"] * 5
    assert [each.outcome for each in alone] == ["inject"] * 3 + ["abstain"] * 2
    assert [each.reason for each in alone[2:]] == ["confident", "too-far", "machine-prompt"]
    assert all(len(each.injected) <= reader.config.settings.max_excerpts for each in alone)
    document = evaluation.report("distance-gap", reader, alone)
    assert document["thresholds"] == reader.distance_gap
    assert document["injection"]["coverage"] == pytest.approx(2 / 3, abs=1e-3)
    strict = Thresholds(0.0, 0.0, 0.0, 1.0, "f")
    reader.distance_gap = strict
    assert {each.outcome for each in evaluation.run("distance-gap", reader, PROMPTS)} == {"abstain"}


def test_distance_and_gap_alone_need_limits(reader: Reader) -> None:
    reader.distance_gap = None
    with pytest.raises(ConfigError, match="no limits of distance and gap alone") as caught:
        evaluation.run("distance-gap", reader, PROMPTS)
    assert caught.value.hint == "prompt-rag tune --apply"


def test_how_sure_a_system_is(reader: Reader) -> None:
    right, *_, untyped = evaluation.run("distance-gap", reader, PROMPTS)
    assert untyped.confidence is None
    first, *rivals = right.candidates
    features = policy.features_of(first, rivals)
    number = evaluation.GAP_WEIGHT * features["gap"] - first.distance
    assert right.confidence == pytest.approx(number)
    # Without weights the whole system is no more than that.
    assert evaluation.run("prompt-rag", reader, PROMPTS)[0].confidence == right.confidence
    reader.weights = Weights(0.5, {"gap": 1.0}, {"gap": 0.0})
    weighed = evaluation.run("prompt-rag", reader, PROMPTS)[0]
    assert weighed.confidence == pytest.approx(1 / (1 + math.exp(-0.5 - features["gap"])))
    for system in ("like", "bm25"):
        found = evaluation.run(system, reader, PROMPTS)
        assert found[0].confidence == -found[0].candidates[0].distance
        assert found[3].confidence is None


def test_the_curve_of_a_report(reader: Reader) -> None:
    cases = [
        case("1", "a", "ab", confidence=0.9),
        case("2", "a", "ba", confidence=0.8),
        case("3", "", "b", confidence=0.8),
        case("4", "x", "b", also_ok="b", confidence=0.7),  # borderline: neither way
        case("5", "a", ""),
    ]
    document = evaluation.report("prompt-rag", reader, cases)
    assert document["curve"] == [
        {"coverage": 0.25, "risk": 0.0},
        {"coverage": 0.75, "risk": round(2 / 3, 4)},
    ]
    assert document["aurc"] == round((0.25 * 0.0 + 0.5 * 2 / 3) / 0.75, 4)
    silent = evaluation.report("prompt-rag", reader, [case("1", "a", "")])
    assert (silent["curve"], silent["aurc"]) == ([], None)


def test_an_uncalibrated_model_still_ranks(reader: Reader) -> None:
    reader.thresholds = None
    (found,) = evaluation.run("prompt-rag", reader, PROMPTS[:1])
    assert (found.outcome, found.reason) == ("abstain", "uncalibrated")
    assert "locks.md" in found.ranked[0]
    assert found.searched


def test_what_could_not_be_shown_was_not_injected(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = reader.decide(PROMPTS[0].prompt)
    assert decided.excerpts
    silent = replace(decided, outcome="abstain", reason=Reason.NO_NOTES, block="")
    monkeypatch.setattr(reader, "decide", lambda _prompt: silent)
    (found,) = evaluation.run("prompt-rag", reader, PROMPTS[:1])
    assert (found.outcome, found.reason, found.injected) == ("abstain", "no-notes", ())


@pytest.mark.parametrize("system", ["like", "bm25"])
def test_the_baselines_find_words(reader: Reader, system: str) -> None:
    found = {each.prompt.id: each for each in evaluation.run(system, reader, PROMPTS)}
    right = found["right"]
    assert (right.outcome, right.reason, right.hit) == ("inject", "confident", True)
    assert right.best_distance is None
    assert (found["nothing"].outcome, found["nothing"].reason) == ("abstain", "")
    assert not found["nothing"].ranked
    assert found["nobody typed it"].searched
    for each in found.values():
        assert len(each.injected) <= evaluation.INJECTED_BY_BASELINES
        distances = [candidate.distance for candidate in each.candidates]
        assert distances == sorted(distances)
        assert all(0.0 <= distance <= 1.0 for distance in distances)


def test_like_injects_what_has_half_of_the_words(reader: Reader) -> None:
    decision, ranked, injected = evaluation.like(reader, "locks1 LOCKS2 other1 other2 of it")
    assert decision is None
    assert {each.note.key for each in ranked} == {"locks.md", "copy.md"}
    assert {each.note.key for each in injected} == {"locks.md", "copy.md"}
    assert evaluation.like(reader, "locks1 other1 other2")[2] == []
    assert evaluation.like(reader, "is it so")[1:] == ([], [])


def test_bm25_prefers_the_rarer_word(reader: Reader) -> None:
    _, ranked, _ = evaluation.bm25(reader, "bread7 note")
    assert ranked[0].note.key == "bread.md"
    assert len(ranked) == len({each.note.id for each in ranked}) == 4


# --- unknown notes ------------------------------------------------------------------------------


def test_prompts_about_another_folder_are_refused(reader: Reader) -> None:
    others = [prompt("1", "x", "old/b.md"), prompt("2", "x", "old/a.md"), prompt("3", "x")]
    with pytest.raises(ConfigError, match=r"none of the 2 notes .*for example old/a\.md") as caught:
        evaluation.require_known_notes(others, reader.catalog)
    assert caught.value.hint == "prompt-rag eval --notes DIR --prompts FILE"


def test_some_known_notes_are_enough(reader: Reader) -> None:
    evaluation.require_known_notes(PROMPTS, reader.catalog)
    evaluation.require_known_notes([*PROMPTS, prompt("x", "x", "gone.md")], reader.catalog)
    evaluation.require_known_notes([prompt("1", "x")], reader.catalog)


# --- report -------------------------------------------------------------------------------------


def test_the_report(reader: Reader) -> None:
    cases = evaluation.run("prompt-rag", reader, PROMPTS)
    document = evaluation.report("prompt-rag", reader, cases)
    plain = orjson.loads(orjson.dumps(document))
    assert list(plain) == [
        "system",
        "model",
        "notes",
        "passages",
        "prompts",
        "retrieval",
        "injection",
        "intervals",
        "by_kind",
        "by_voice",
        "curve",
        "aurc",
        "thresholds",
        "latency_ms",
        "cases",
    ]
    assert plain["model"] == {"name": "fake", "fingerprint": "f" * 64}
    assert (plain["notes"], plain["passages"]) == (4, 5)
    assert plain["prompts"] == {"answerable": 3, "unanswerable": 2}
    assert plain["retrieval"]["recall@5"] == 1.0
    assert plain["injection"] == {
        "precision": 0.6667,
        "coverage": 0.6667,
        "false_injection_rate": 0.0,
        "wrong_note_rate": 0.3333,
    }
    assert plain["thresholds"]["max_distance"] == 0.7
    assert 0 < plain["latency_ms"]["p50"] <= plain["latency_ms"]["p95"]
    first = plain["cases"][0]
    assert first["id"] == "right"
    assert first["outcome"] == "inject"
    assert first["relevant"] == ["locks.md"]
    assert first["injected"][0] in {"locks.md", "copy.md"}
    assert first["best_distance"] < 0.7
    assert len(plain["cases"]) == 5


def test_by_kind_and_by_voice(reader: Reader) -> None:
    cases = [replace(each, prompt=replace(each.prompt, voice="v")) for each in JUDGED]
    document = evaluation.report("prompt-rag", reader, cases)
    assert set(document["by_kind"]) == {"k", "chatter"}
    assert document["by_kind"]["chatter"] == {
        "prompts": 2,
        "precision": 0.0,
        "false_injection_rate": 0.5,
    }
    assert document["by_kind"]["k"]["coverage"] == 0.4
    assert document["by_kind"]["k"]["false_injection_rate"] == 0.0
    assert document["by_voice"] == {"v": {"prompts": 8, **_known(cases)}}


def _known(cases: Sequence[Case]) -> dict[str, float]:
    return {name: each for name, each in evaluation.figures(cases).items() if each is not None}


def test_a_report_on_nothing(reader: Reader) -> None:
    with pytest.raises(ConfigError, match="no prompts"):
        evaluation.report("prompt-rag", reader, [])


def test_a_report_without_thresholds(reader: Reader) -> None:
    reader.thresholds = None
    document = evaluation.report("like", reader, evaluation.run("like", reader, PROMPTS))
    assert document["thresholds"] is None
    reader.thresholds = Thresholds(0.5, 0.1, 0.0, 0.8, "f")
    assert evaluation.report("like", reader, JUDGED)["thresholds"] == reader.thresholds
