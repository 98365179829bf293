"""Prompt to candidates to decision on a real index, with a fake model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prompt_rag_fixtures import bear_database
from small_world import IDENTITY, FakeEmbedder, World, note, words

from prompt_rag import generations
from prompt_rag.config import SourceSettings
from prompt_rag.domain import (
    Candidate,
    Decision,
    IndexDamaged,
    IndexIncompatible,
    IndexMissing,
    ModelUnavailable,
    Reason,
)
from prompt_rag.search import Reader, load_embedder

WHEN = datetime(2026, 1, 20, 17, 40, tzinfo=UTC)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.write("a.md", note("Alpha", ("One", "apple"), ("Two", "banana")))
    world.write("b.md", f"---\ntags: [work/rag, fruit]\n---\n{note('Beta', ('One', 'cherry'))}")
    world.write("c.md", f"---\ntags: [home]\n---\n{note('Gamma', ('One', 'date'))}")
    world.rebuild()
    return world


def reader_of(world: World) -> Reader:
    return Reader.open(world.config, lambda: world.model)


@pytest.fixture
def reader(world: World) -> Iterator[Reader]:
    with reader_of(world) as reader:
        yield reader


def asking(topic: str, count: int = 12) -> str:
    return words(topic, count)


def keys(found: list[Candidate]) -> list[str]:
    return [each.note.key for each in found]


def injected(decision: Decision) -> set[str]:
    assert (decision.outcome == "inject") == bool(decision.excerpts) == bool(decision.block)
    return {each.candidate.note.key for each in decision.excerpts}


# --- candidates ---------------------------------------------------------------------------------


def test_the_best_passage_of_each_note_in_order(reader: Reader) -> None:
    found = reader.candidates(asking("banana"))
    assert [each.rank for each in found] == [1, 2, 3]
    assert found[0].note.key == "a.md"
    assert found[0].passage.heading_path == ("Two",)
    assert found[0].distance < 0.5 < found[1].distance
    assert len({each.note.id for each in found}) == 3


def test_ties_have_one_order(world: World) -> None:
    for key in ("z.md", "y.md", "x.md"):
        world.write(key, f"# {key}\n\n{words('fig')} {key[0] * 3}\n")
    world.sync()
    with reader_of(world) as reader:
        orders = {tuple(keys(reader.candidates(asking("grape")))) for _ in range(3)}
    assert len(orders) == 1


def test_any_of_the_tags_with_those_below(reader: Reader) -> None:
    query = asking("apple")
    assert keys(reader.candidates(query, tags=["work"])) == ["b.md"]
    assert keys(reader.candidates(query, tags=["#Work/RAG"])) == ["b.md"]
    assert set(keys(reader.candidates(query, tags=["work", "home"]))) == {"b.md", "c.md"}
    assert keys(reader.candidates(query, tags=["nobody"])) == []


def test_one_source_is_searched_as_if_it_were_alone(world: World) -> None:
    folder = world.folder / "small"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.md").write_text(f"# Small {number}\n\n{words(f'kiwi{number}')}")
    world.sources.append(SourceSettings("small", "markdown", folder))
    for number in range(80):  # more notes than one search looks at, all nearer than the three
        world.write(f"many/{number}.md", f"# {number}\n\n{asking('apple')} {words(f'n{number}')}")
    world.sync()
    with reader_of(world) as reader:
        assert not {each.note.source for each in reader.candidates(asking("apple"))} & {"small"}
        found = reader.candidates(asking("apple"), source="small")
        assert sorted(keys(found)) == ["0.md", "1.md", "2.md"]
        assert reader.candidates(asking("apple"), source="small", tags=["work"]) == []


def bear_with(world: World, **texts: str) -> None:
    path = world.folder / "bear.sqlite"
    notes = [bear_database.BearNote(uid, uid, text, WHEN, WHEN) for uid, text in texts.items()]
    bear_database.build(path, notes)
    world.sources.append(SourceSettings("bear", "bear", path))
    world.sync()


def test_the_same_text_in_two_sources_is_one_candidate_with_both_origins(world: World) -> None:
    bear_with(world, ONE=note("Gamma", ("One", "date")), TWO=note("Other", ("One", "elder")))
    with reader_of(world) as reader:
        found = reader.candidates(asking("date"))
        first = found[0]
        assert len(found) == 4
        paths = {str(world.notes / "c.md"), "bear://x-callback-url/open-note?id=ONE"}
        assert {first.note.uri, *first.note.also} == paths
        assert len(first.note.also) == 1
        decision = reader.decide(asking("date"))
    assert len(decision.excerpts) == 1
    assert "also in " in decision.block
    assert all(path in decision.block for path in paths)


def test_an_empty_index_answers_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.rebuild()
    with reader_of(world) as reader:
        assert reader.candidates("anything at all") == []
        assert reader.candidates("anything at all", tags=["work"]) == []
        decision = reader.decide("is there anything at all about bananas")
    assert decision.reason is Reason.NO_NOTES
    assert (decision.best_distance, decision.gap) == (None, None)


def test_one_note_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("a.md", note("Alpha", ("One", "apple")))
    world.rebuild()
    with reader_of(world) as reader:
        decision = reader.decide(asking("apple"))
    assert injected(decision) == {"a.md"}
    assert decision.gap is None


def test_many_equal_notes_are_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(30):
        world.write(f"{number}.md", note("Alpha", ("One", "apple")))
    world.rebuild()
    with reader_of(world) as reader:
        decision = reader.decide(asking("apple"))
    assert len(injected(decision)) == 1


# --- decisions ----------------------------------------------------------------------------------


def test_a_decision_tells_all_that_led_to_it(reader: Reader) -> None:
    decision = reader.decide(f"please tell me: {asking('apple')}")
    assert (decision.outcome, decision.reason) == ("inject", Reason.CONFIDENT)
    assert "apple1" in decision.query
    assert injected(decision) == {"a.md"}
    first = decision.verdicts[0]
    assert (first.accepted, first.candidate.note.key) == (True, "a.md")
    assert decision.best_distance == first.candidate.distance
    assert decision.gap is not None
    assert decision.gap > 0.05
    assert decision.thresholds == reader.thresholds
    assert decision.generation == reader.generation
    assert decision.model == "fake"
    stages = ["parse", "embed", "search", "decide", "render", "total"]
    assert list(decision.timings_ms) == stages
    parts = [decision.timings_ms[stage] for stage in stages[:-1]]
    assert decision.timings_ms["total"] == pytest.approx(sum(parts), abs=5)


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("", Reason.EMPTY),
        ("  \n ", Reason.EMPTY),
        ("<task-notification>\napple1 apple2\n</task-notification>", Reason.MACHINE_PROMPT),
        ("<system-reminder>apple1 apple2</system-reminder>", Reason.MACHINE_PROMPT),
        ("/deploy apple1 apple2", Reason.COMMAND),
        ("! ls apple1", Reason.COMMAND),
        ("yes", Reason.CONTENTLESS),
        ("looks good, commit it", Reason.CONTENTLESS),
    ],
)
def test_what_ends_before_the_model(
    reader: Reader, prompt: str, reason: Reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed(*_: object) -> None:
        raise AssertionError("the model was asked")

    monkeypatch.setattr(reader.embedder, "embed_query", embed)
    decision = reader.decide(prompt)
    assert (decision.outcome, decision.reason, decision.query) == ("abstain", reason, "")
    assert injected(decision) == set()
    assert set(decision.timings_ms) == {"parse", "total"}


def test_what_is_too_far_is_listed_by_a_search_and_refused_by_the_hook(world: World) -> None:
    world.set(max_distance=0.3)
    with reader_of(world) as reader:
        assert keys(reader.candidates(asking("apple")))[0] == "a.md"
        decision = reader.decide(asking("apple"))
        wide = reader.decide(asking("apple"), wide=True)
    assert decision.reason is Reason.TOO_FAR
    assert injected(decision) == set()
    assert not any(verdict.accepted for verdict in decision.verdicts)
    assert "a.md" in injected(wide)


def test_two_notes_that_are_equally_near_are_doubt(world: World) -> None:
    for key in ("x.md", "y.md"):
        world.write(key, f"# {key}\n\n{asking('fig')} {words(key[0] * 3, 30)}\n")
    world.sync()
    with reader_of(world) as reader:
        decision = reader.decide(asking("fig"))
    assert decision.reason is Reason.GAP_TOO_SMALL
    assert injected(decision) == set()


def test_two_passages_of_one_note_are_agreement(world: World) -> None:
    sections = [f"## {name}\n\n{asking('fig')} {words(name, 30)}" for name in ("One", "Two")]
    world.write("x.md", "# X\n\n" + "\n\n".join(sections))
    world.sync()
    with reader_of(world) as reader:
        decision = reader.decide(asking("fig"))
    assert injected(decision) == {"x.md"}


def test_near_copies_are_agreement(world: World) -> None:
    for key in ("x.md", "y.md"):
        world.write(key, f"# Copy\n\n{words('fig')} edited {key[0] * 3}\n")
    world.sync()
    with reader_of(world) as reader:
        decision = reader.decide(asking("fig"))
    assert injected(decision) == {"x.md", "y.md"}


def test_without_calibration_nothing_is_embedded(world: World) -> None:
    world.set(max_distance=None, min_gap=None)
    with reader_of(world) as reader:
        decision = reader.decide(asking("apple"))
        assert keys(reader.candidates(asking("apple")))[0] == "a.md"
    assert decision.reason is Reason.UNCALIBRATED
    assert decision.thresholds is None


def test_what_a_session_was_shown_makes_room_only_for_what_passes(world: World) -> None:
    for key in ("x.md", "y.md"):
        world.write(key, f"# Copy\n\n{words('fig')} edited {key[0] * 3}\n")
    world.sync()
    with reader_of(world) as reader:
        first = reader.decide(asking("fig"), unseen=lambda each: each.note.key != "x.md")
        none = reader.decide(asking("fig"), unseen=lambda _: False)
        far = reader.decide(asking("nothing"), unseen=lambda _: False)
    assert injected(first) == {"y.md"}
    assert (none.outcome, none.reason) == ("abstain", Reason.ALREADY_SHOWN)
    assert far.reason is Reason.TOO_FAR  # nothing would have been shown anyway


def test_secrets_are_masked(world: World) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    world.write("s.md", f"# Keys\n\n{words('fig')}\n\ntoken: {secret}\n")
    world.sync()
    with reader_of(world) as reader:
        decision = reader.decide(asking("fig"))
    assert secret not in decision.block
    assert [each.masked for each in decision.excerpts] == [1]


def test_a_block_has_at_most_the_room_that_is_set(world: World) -> None:
    world.write("long.md", "# Long\n\n" + "\n\n".join(words("fig", 60) for _ in range(40)))
    world.set(max_chars=900)
    world.sync()
    with reader_of(world) as reader:
        decision = reader.decide(asking("fig"))
    assert injected(decision) == {"long.md"}
    assert len(decision.block.encode()) <= 900


def test_where_nothing_fits_nothing_is_injected(world: World) -> None:
    world.write(f"{'far/away/' * 9}x.md", f"# A title\n\n{words('fig', 40)}")
    world.set(max_chars=300)
    world.sync()
    with reader_of(world) as reader:
        decision = reader.decide(asking("fig"))
    assert (decision.outcome, decision.reason) == ("abstain", Reason.NO_NOTES)
    assert injected(decision) == set()


# --- following ----------------------------------------------------------------------------------


def test_a_reader_follows_what_a_sync_commits(world: World, reader: Reader) -> None:
    assert reader.decide(asking("fig")).outcome == "abstain"
    world.write("f.md", note("Fig", ("One", "fig")))
    world.remove("a.md")
    world.sync()
    reader.follow()
    assert injected(reader.decide(asking("fig"))) == {"f.md"}
    assert "a.md" not in keys(reader.candidates(asking("apple")))


def test_a_reader_follows_a_rebuild(world: World, reader: Reader) -> None:
    before = reader.generation
    world.write("f.md", note("Fig", ("One", "fig")))
    world.rebuild()
    assert reader.decide(asking("apple")).outcome == "inject"  # the old one, until it looks
    reader.follow()
    assert reader.generation != before
    assert injected(reader.decide(asking("fig"))) == {"f.md"}


def test_a_reader_goes_on_where_it_cannot_follow(world: World, reader: Reader) -> None:
    world.model = FakeEmbedder(replace(IDENTITY, fingerprint="e" * 64))
    world.rebuild()
    with pytest.raises(IndexIncompatible):
        reader.follow()
    assert injected(reader.decide(asking("apple"))) == {"a.md"}
    (world.home / "CURRENT").unlink()
    with pytest.raises(IndexMissing):
        reader.follow()
    assert injected(reader.decide(asking("apple"))) == {"a.md"}


def test_new_settings_hold_at_once(world: World, reader: Reader) -> None:
    world.set(max_distance=0.1)
    reader.take_settings(world.config)
    assert reader.decide(asking("apple")).reason is Reason.TOO_FAR


# --- opening ------------------------------------------------------------------------------------


def test_a_missing_index_is_said_before_the_model_is_loaded(tmp_path: Path) -> None:
    def load() -> FakeEmbedder:
        raise AssertionError("the model was loaded")

    with pytest.raises(IndexMissing) as caught:
        Reader.open(World(tmp_path).config, load)
    assert caught.value.hint == "prompt-rag rebuild"


def test_an_index_of_another_model_or_chunker_is_refused(world: World) -> None:
    other = FakeEmbedder(replace(IDENTITY, query_prefix="query: "))
    with pytest.raises(IndexIncompatible) as caught:
        Reader.open(world.config, lambda: other)
    assert caught.value.hint == "prompt-rag rebuild"
    world.set(tiers=("tldr",))
    with pytest.raises(IndexIncompatible):
        reader_of(world)


def test_a_damaged_index_is_refused(world: World) -> None:
    path = generations.current(world.home).catalog
    path.write_bytes(b"\xa5" * path.stat().st_size)
    with pytest.raises(IndexDamaged):
        reader_of(world)


def test_a_damaged_graph_costs_nothing(world: World) -> None:
    path = generations.current(world.home).graph
    path.write_bytes(b"\xa5" * path.stat().st_size)
    with reader_of(world) as reader:
        assert injected(reader.decide(asking("apple"))) == {"a.md"}


def test_a_model_that_was_not_fetched_is_refused(world: World) -> None:
    world.set(model_name="BAAI/bge-small-en-v1.5")
    with pytest.raises(ModelUnavailable) as caught:
        load_embedder(world.config)
    assert caught.value.hint == "prompt-rag model pull BAAI/bge-small-en-v1.5"


def test_the_model_that_comes_with_the_program_loads(world: World) -> None:
    work = load_embedder(world.config)
    near, far = (work.embed_query(text) for text in ("rye bread dough", "a crashed database"))
    vector = work.embed_query("how do I bake bread")
    assert float(vector @ near) > float(vector @ far) + 0.2
