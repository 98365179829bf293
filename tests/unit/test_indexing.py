"""Notes to index and back: rebuild and sync on real folders and databases, with a fake model."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prompt_rag_fixtures import bear_database
from small_world import IDENTITY, FakeEmbedder, World, note, words

from prompt_rag import embedder, fsio, generations, indexing
from prompt_rag.config import SourceSettings
from prompt_rag.domain import (
    ConfigError,
    IndexDamaged,
    IndexIncompatible,
    IndexMissing,
    SourceError,
    WriterBusy,
)
from prompt_rag.sources import files, tree
from prompt_rag.sources.bear import BearSource


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Four notes in two folders, not indexed yet."""
    world = World(tmp_path)
    world.write("a.md", note("Alpha", ("One", "apple"), ("Two", "banana")))
    world.write("b.md", note("Beta", ("One", "cherry")))
    world.write("deep/c.md", note("Gamma", ("One", "date")))
    world.write("deep/er/d.md", note("Delta", ("One", "elder")))
    return world


@pytest.fixture
def built(world: World) -> World:
    world.rebuild()
    world.model.texts.clear()
    return world


# --- rebuild ------------------------------------------------------------------------------------


def test_a_rebuild_says_what_it_did_and_publishes(world: World) -> None:
    (world.notes / "picture.md").write_bytes(b"\x89PNG\0\0")
    report = world.rebuild()
    assert (report.seen, report.indexed, report.unchanged, report.removed) == (5, 4, 0, 0)
    assert report.skipped == (("picture.md", "binary"),)
    assert (report.passages, report.embedded, report.reused) == (5, 5, 0)
    assert (report.kept, report.warnings) == ((), ())
    assert 0 <= report.seconds < 10
    assert report.generation == generations.current(world.home).id
    assert world.indexed() == {"a.md", "b.md", "deep/c.md", "deep/er/d.md"}


def test_a_rebuild_embeds_everything_anew_and_keeps_one_generation_before(world: World) -> None:
    first, second, third = (world.rebuild() for _ in range(3))
    assert [each.embedded for each in (first, second, third)] == [5, 5, 5]
    assert world.generations() == sorted([second.generation, third.generation])


def test_equal_texts_are_embedded_once(world: World) -> None:
    world.write("a-again.md", note("Alpha", ("One", "apple"), ("Two", "banana")))
    report = world.rebuild()
    assert (report.passages, report.embedded, report.reused) == (7, 5, 2)


def test_a_rebuild_that_fails_leaves_the_old_generation_and_no_trace(built: World) -> None:
    before, texts = built.generations(), built.content()
    built.write("z.md", note("Omega", ("One", "poison")))
    built.model.fails_at = "poison1"
    with pytest.raises(RuntimeError):
        built.rebuild()
    assert built.generations() == before
    assert built.content() == texts


def test_a_first_rebuild_that_fails_leaves_nothing(world: World) -> None:
    world.model.fails_at = "apple1"
    with pytest.raises(RuntimeError):
        world.rebuild()
    assert world.generations() == []
    with pytest.raises(IndexMissing):
        generations.current(world.home)


def test_without_sources_there_is_nothing_to_build(world: World) -> None:
    world.sources = []
    with pytest.raises(ConfigError) as caught:
        world.rebuild()
    assert caught.value.hint == "prompt-rag source add markdown DIR"
    assert not world.home.exists()


def test_an_empty_folder_is_an_index_of_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    report = world.rebuild()
    assert (report.seen, report.passages) == (0, 0)
    assert world.indexed() == set()
    world.write("a.md", note("Alpha", ("One", "apple")))
    assert world.sync().indexed == 1


def test_a_source_without_a_path_is_told_apart() -> None:
    with pytest.raises(ConfigError):
        indexing.make_source(SourceSettings("notes", "markdown"))


# --- a rebuild and what cannot be read now ------------------------------------------------------


def second_source(world: World) -> Path:
    folder = world.folder / "more"
    folder.mkdir()
    (folder / "m.md").write_text(note("More", ("One", "mango")))
    world.sources.append(SourceSettings("more", "markdown", folder))
    return folder


def test_a_source_that_is_missing_is_taken_over(built: World) -> None:
    second_source(built)
    before = built.content()
    built.notes.rename(built.folder / "unplugged")
    report = built.rebuild()
    assert [source for source, _ in report.kept] == ["notes"]
    assert "does not exist" in report.kept[0][1]
    assert "prompt-rag source remove notes" in report.kept[0][1]
    assert report.indexed == 1
    after = built.content()
    assert {key: after[key] for key in before} == before
    assert built.indexed("more") == {"m.md"}


def test_a_source_that_was_never_read_does_not_stop_the_others(world: World) -> None:
    second_source(world)
    world.sources.append(SourceSettings("gone", "markdown", world.folder / "gone"))
    report = world.rebuild()
    assert report.indexed == 5
    assert [source for source, _ in report.kept] == ["gone"]


def test_where_no_source_can_be_read_nothing_is_published(world: World) -> None:
    world.notes.rename(world.folder / "unplugged")
    world.sources.append(SourceSettings("gone", "markdown", world.folder / "gone"))
    with pytest.raises(SourceError) as caught:
        world.rebuild()
    assert caught.value.message.count("does not exist") == 2
    assert caught.value.hint == "prompt-rag source remove notes"
    assert world.generations() == []


def test_all_sources_missing_are_taken_over_from_an_index_that_fits(built: World) -> None:
    before = built.content()
    built.notes.rename(built.folder / "unplugged")
    report = built.rebuild()
    assert (report.indexed, report.embedded) == (0, 0)
    assert built.content() == before


def test_notes_are_not_lost_where_the_old_vectors_are_of_no_use(built: World) -> None:
    second_source(built)
    before = built.generations()
    built.notes.rename(built.folder / "unplugged")
    built.model = FakeEmbedder(replace(IDENTITY, fingerprint="e" * 64))
    with pytest.raises(SourceError, match="does not exist"):
        built.rebuild()
    assert built.generations() == before


def placeholder(world: World, key: str) -> None:
    """Let iCloud have taken a file away, as it did before it had flags for that."""
    path = world.notes / key
    path.unlink()
    (path.parent / f".{path.name}.icloud").write_bytes(b"bplist00")


def test_a_file_that_is_in_the_cloud_stays_indexed(built: World) -> None:
    before = built.content()
    placeholder(built, "deep/c.md")
    report = built.sync()
    assert report.skipped == (("deep/c.md", files.NOT_DOWNLOADED),)
    assert report.removed == 0
    assert built.content() == before
    report = built.rebuild()
    assert report.skipped == (("deep/c.md", files.NOT_DOWNLOADED),)
    assert built.content() == before


def test_a_folder_that_cannot_be_listed_stays_indexed(
    built: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = built.content()
    closed = (built.notes / "deep").stat().st_ino
    monkeypatch.setattr(files, "is_placeholder", lambda status: status.st_ino == closed)
    monkeypatch.setattr(tree.files, "is_placeholder", lambda status: status.st_ino == closed)
    assert built.sync().removed == 0
    assert built.content() == before
    report = built.rebuild()
    assert ("deep/c.md", files.NOT_DOWNLOADED) in report.skipped
    assert built.content() == before


# --- a rebuild and an old index that is no help -------------------------------------------------


def test_a_rebuild_mends_an_index_of_another_model(built: World) -> None:
    built.model = FakeEmbedder(replace(IDENTITY, name="other", fingerprint="e" * 64))
    with pytest.raises(IndexIncompatible) as caught:
        built.sync()
    assert caught.value.hint == "prompt-rag rebuild"
    assert built.rebuild().embedded == 5
    assert built.sync().unchanged == 4


def test_other_tiers_need_a_rebuild(built: World) -> None:
    built.set(tiers=("section",))
    with pytest.raises(IndexIncompatible, match="chunker"):
        built.sync()
    built.rebuild()
    assert built.sync().unchanged == 4


@pytest.mark.parametrize("where", ["all", "head", "tail", "truncated"])
def test_a_rebuild_mends_a_damaged_index(built: World, where: str) -> None:
    path = generations.current(built.home).catalog
    data = bytearray(path.read_bytes())
    if where == "truncated":
        del data[len(data) // 2 :]
    else:
        half = len(data) // 2
        start, end = {"all": (0, None), "head": (0, half), "tail": (half, None)}[where]
        data[start:end] = b"\xa5" * len(data[start:end])
    path.write_bytes(data)
    placeholder(built, "b.md")
    report = built.rebuild()
    assert report.indexed == 3
    assert built.indexed() == {"a.md", "deep/c.md", "deep/er/d.md"}


def test_a_damaged_index_is_said_to_be_damaged(built: World) -> None:
    generations.current(built.home).catalog.write_bytes(b"no database" * 1000)
    with pytest.raises(IndexDamaged) as caught:
        built.sync()
    assert caught.value.hint == "prompt-rag rebuild"


# --- sync ---------------------------------------------------------------------------------------


def test_a_sync_needs_an_index(world: World) -> None:
    with pytest.raises(IndexMissing) as caught:
        world.sync()
    assert caught.value.hint == "prompt-rag rebuild"


def test_a_sync_after_nothing_embeds_and_writes_nothing(built: World) -> None:
    before = built.bytes()
    report = built.sync()
    assert (report.seen, report.indexed, report.unchanged, report.removed) == (4, 0, 4, 0)
    assert (report.passages, report.embedded, report.reused) == (0, 0, 0)
    assert built.model.texts == []
    assert built.bytes() == before


def test_a_sync_after_nothing_does_not_load_the_model(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexing.rebuild(world.config)  # with the model that comes with the program

    def load(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(embedder, "FastEmbedder", load)
    assert indexing.sync(world.config).unchanged == 4
    world.remove("a.md")
    assert indexing.sync(world.config).removed == 1
    world.write("b.md", note("Beta", ("One", "fig")))
    with pytest.raises(AssertionError, match="loaded"):
        indexing.sync(world.config)


def test_a_sync_after_one_edit_touches_one_note(built: World) -> None:
    before = built.content()
    built.write("a.md", note("Alpha", ("One", "apple"), ("Two", "fig")), age=-60)
    report = built.sync()
    assert (report.seen, report.indexed, report.unchanged, report.removed) == (4, 1, 3, 0)
    assert (report.passages, report.embedded, report.reused) == (2, 1, 1)
    assert [text for text in built.model.texts if "fig1" not in text] == []
    after = built.content()
    assert {key for key in after if after[key] != before[key]} == {("notes", "a.md")}


def test_a_file_that_was_only_saved_again_is_unchanged(built: World) -> None:
    built.write("a.md", (built.notes / "a.md").read_text(), age=-60)
    report = built.sync()
    assert (report.indexed, report.unchanged, report.embedded) == (0, 4, 0)
    with built.catalog() as catalog:
        (head,) = catalog.find_notes("a.md")
    assert head.modified_at == datetime.fromtimestamp((built.notes / "a.md").stat().st_mtime, UTC)


def test_a_new_note_a_gone_note(built: World) -> None:
    built.write("new.md", note("New", ("One", "fig")))
    built.remove("a.md")
    report = built.sync()
    assert (report.indexed, report.removed) == (1, 1)
    assert built.indexed() == {"new.md", "b.md", "deep/c.md", "deep/er/d.md"}


def test_a_renamed_folder_loses_nothing_and_embeds_nothing(built: World) -> None:
    before = built.content()
    (built.notes / "deep").rename(built.notes / "archive")
    report = built.sync()
    assert (report.indexed, report.removed, report.kept) == (2, 2, ())
    assert (report.embedded, report.reused) == (0, 2)
    renamed = {
        (source, key.replace("deep/", "archive/")): passages
        for (source, key), passages in before.items()
    }
    assert built.content() == renamed


def test_all_notes_may_move_at_once(built: World) -> None:
    for key in built.indexed():
        built.move(key, f"new/{key}")
    report = built.sync()
    assert (report.removed, report.embedded, report.kept) == (4, 0, ())
    assert built.indexed() == {"new/a.md", "new/b.md", "new/deep/c.md", "new/deep/er/d.md"}


def test_a_note_that_wants_to_stay_out_leaves(built: World) -> None:
    built.write("a.md", f"---\nprompt-rag: false\n---\n{words('apple')}")
    report = built.sync()
    assert report.removed == 1
    assert report.skipped == (("a.md", "prompt-rag: false in its frontmatter"),)
    assert "a.md" not in built.indexed()


def test_a_tag_that_is_excluded_takes_its_notes_out(built: World) -> None:
    built.write("a.md", f"# Alpha\n\n{words('apple')} #private/diary\n", age=-60)
    assert built.sync().indexed == 1
    built.sources = [replace(built.sources[0], exclude_tags=("private",))]
    report = built.sync()
    assert (report.removed, len(report.skipped)) == (1, 1)
    assert "a.md" not in built.indexed()


def test_progress_counts_over_all_sources(world: World) -> None:
    second_source(world)
    calls: list[tuple[str, int, int]] = []
    world.rebuild(progress=lambda *call: calls.append(call))
    scans = [done for stage, done, _ in calls if stage == "scan"]
    assert scans == [1, 2, 3, 4, 5]
    embeds = [(done, total) for stage, done, total in calls if stage == "embed"]
    assert embeds[-1] == (5, 5)
    assert embeds == sorted(embeds)
    calls.clear()
    world.sync(progress=lambda *call: calls.append(call))
    assert [done for _, done, _ in calls] == [1, 2, 3, 4, 5]


def test_a_killed_sync_goes_on_where_it_stopped(
    built: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "NOTES_PER_BATCH", 1)
    for key, topic in (("a.md", "fig"), ("b.md", "grape"), ("deep/c.md", "poison")):
        built.write(key, note("New", ("One", topic)), age=-60)
    built.model.fails_at = "poison1"
    with pytest.raises(RuntimeError):
        built.sync()
    with built.catalog() as catalog:
        assert catalog.check() == []
    built.model.fails_at = "\0"
    report = built.sync()
    assert (report.indexed, report.embedded) == (1, 1)


def test_a_sync_that_was_killed_before_it_removed_leaves_no_note_twice(
    built: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (built.notes / "deep").rename(built.notes / "archive")
    with monkeypatch.context() as broken:
        broken.setattr(indexing.Catalog, "remove", lambda *_: (_ for _ in ()).throw(OSError()))
        with pytest.raises(OSError):
            built.sync()
    assert len(built.indexed()) == 6
    assert built.sync().removed == 2
    assert built.indexed() == {"a.md", "b.md", "archive/c.md", "archive/er/d.md"}


# --- what looks like a missing disk -------------------------------------------------------------


def test_a_root_that_is_missing_keeps_everything(built: World) -> None:
    before = built.content()
    built.notes.rename(built.folder / "unplugged")
    with pytest.raises(SourceError, match="does not exist") as caught:
        built.sync()
    assert caught.value.hint == "prompt-rag source remove notes"
    assert built.content() == before
    (built.folder / "unplugged").rename(built.notes)
    assert built.sync().unchanged == 4


def test_a_root_that_is_missing_does_not_stop_the_others(built: World) -> None:
    folder = second_source(built)
    built.sync()
    (folder / "m.md").write_text(note("More", ("One", "melon")))
    built.notes.rename(built.folder / "unplugged")
    report = built.sync()
    assert report.indexed == 1
    assert [source for source, _ in report.kept] == ["notes"]
    assert len(built.indexed()) == 4


def test_more_than_half_gone_is_refused(built: World) -> None:
    before = built.content()
    for key in ("a.md", "b.md", "deep/c.md"):
        built.remove(key)
    with pytest.raises(SourceError, match="3 of 4 notes are gone") as caught:
        built.sync()
    assert caught.value.hint == "prompt-rag sync --allow-shrink"
    assert built.content() == before
    report = built.sync(allow_shrink=True)
    assert (report.removed, report.kept) == (3, ())
    assert built.indexed() == {"deep/er/d.md"}


def test_an_empty_mount_point_is_refused(built: World) -> None:
    for path in sorted(built.notes.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(SourceError, match="4 of 4"):
        built.sync()
    assert len(built.indexed()) == 4


def test_what_changed_is_taken_in_where_a_shrink_is_refused(built: World) -> None:
    for key in ("a.md", "b.md", "deep/c.md"):
        built.remove(key)
    built.write("deep/er/d.md", note("Delta", ("One", "fig")), age=-60)
    report = built.sync()
    assert (report.indexed, report.removed) == (1, 0)
    ((source, why),) = report.kept
    assert source == "notes"
    assert "3 of 4 notes are gone" in why
    assert "prompt-rag sync --allow-shrink" in why
    assert len(built.indexed()) == 4
    assert "fig1" in built.content()["notes", "deep/er/d.md"][0][-1]


def test_half_gone_is_believed(built: World) -> None:
    built.remove("a.md")
    built.remove("b.md")
    assert built.sync().removed == 2


# --- forgotten ----------------------------------------------------------------------------------


def forget(world: World, key: str) -> None:
    with world.catalog(writable=True) as catalog:
        (head,) = catalog.find_notes(key)
        catalog.forget([head.id])


def test_what_was_forgotten_stays_out(built: World) -> None:
    forget(built, "a.md")
    built.write("a.md", note("Alpha", ("One", "apple"), ("Two", "fig")), age=-60)
    others = {"b.md", "deep/c.md", "deep/er/d.md"}
    for report in (built.sync(), built.rebuild(), built.rebuild(), built.sync()):
        assert report.skipped == (("a.md", "forgotten on request"),)
        assert built.indexed() == others
    assert not [text for text in built.model.texts if "fig1" in text]


@pytest.mark.parametrize("what", ["model", "tiers"])
def test_what_was_forgotten_stays_out_of_an_index_of_another_make(built: World, what: str) -> None:
    forget(built, "a.md")
    if what == "model":
        built.model = FakeEmbedder(replace(IDENTITY, fingerprint="e" * 64))
    else:
        built.set(tiers=("tldr",))
    assert built.rebuild().indexed == 3
    assert "a.md" not in built.indexed()


# --- settings that changed ----------------------------------------------------------------------


def test_a_source_that_left_the_settings_leaves_the_index(built: World) -> None:
    second_source(built)
    built.sync()
    built.sources = built.sources[1:]
    report = built.sync()
    assert (report.removed, report.unchanged) == (4, 1)
    assert built.indexed() == set()
    assert built.indexed("more") == {"m.md"}


def test_the_last_source_leaves_the_index_too(built: World) -> None:
    built.sources = []
    assert built.sync().removed == 4
    assert built.content() == {}


def test_without_index_and_sources_the_hint_is_a_source(world: World) -> None:
    world.sources = []
    with pytest.raises(ConfigError) as caught:
        world.sync()
    assert caught.value.hint == "prompt-rag source add markdown DIR"


def test_a_source_with_a_new_name_keeps_its_vectors(built: World) -> None:
    built.sources = [replace(built.sources[0], name="renamed")]
    report = built.sync()
    assert (report.indexed, report.removed, report.embedded) == (4, 4, 0)
    assert len(built.indexed("renamed")) == 4


# --- only some paths ----------------------------------------------------------------------------


def test_only_the_paths_that_are_named(built: World, monkeypatch: pytest.MonkeyPatch) -> None:
    built.write("a.md", note("Alpha", ("One", "fig")), age=-60)
    built.write("b.md", note("Beta", ("One", "grape")), age=-60)
    built.remove("deep/c.md")
    report = built.sync(paths=[built.notes / "a.md"])
    assert (report.seen, report.indexed, report.removed) == (1, 1, 0)
    monkeypatch.chdir(built.notes)
    report = built.sync(paths=[Path("deep/c.md")])
    assert (report.seen, report.removed) == (0, 1)
    report = built.sync(paths=[built.folder / "elsewhere.md"])
    assert (report.seen, report.removed) == (0, 0)
    assert built.sync().indexed == 1


def test_a_folder_among_the_paths_holds_all_below(built: World) -> None:
    built.write("deep/new.md", note("New", ("One", "fig")))
    built.write("other.md", note("Other", ("One", "grape")))
    report = built.sync(paths=[built.notes / "deep"])
    assert (report.seen, report.indexed) == (3, 1)
    assert "other.md" not in built.indexed()


def test_paths_do_not_empty_a_source_that_left_the_settings(built: World) -> None:
    folder = second_source(built)
    built.sync()
    built.sources = built.sources[1:]
    report = built.sync(paths=[folder])
    assert report.removed == 0
    assert len(built.indexed()) == 4


# --- writers ------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(built: World) -> None:
    built.write("a.md", note("Alpha", ("One", "fig")), age=-60)
    built.write("new.md", note("New", ("One", "grape")))
    built.remove("b.md")
    before = built.bytes()
    report = built.sync(dry_run=True)
    assert (report.indexed, report.removed, report.unchanged) == (2, 1, 2)
    assert built.model.texts == []
    assert built.bytes() == before
    built.sync()
    assert built.bytes() != before


def test_one_writer_at_a_time(built: World) -> None:
    lock = fsio.Lock(str(built.home / "writer.lock"))
    with lock:
        for write in (built.rebuild, built.sync):
            with pytest.raises(WriterBusy) as caught:
                write()
            assert caught.value.hint == "prompt-rag status"
        assert built.sync(dry_run=True).unchanged == 4
    assert built.sync().unchanged == 4


def test_a_sync_can_wait_for_the_other_writer(built: World) -> None:
    lock = fsio.Lock(str(built.home / "writer.lock"))
    lock.acquire()
    timer = threading.Timer(0.2, lock.release)
    timer.start()
    assert built.sync(wait_seconds=10.0).unchanged == 4
    timer.join()


def test_two_builds_at_once(world: World) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(FakeEmbedder):
        def count_tokens(self, text: str) -> int:
            begun.set()
            assert go_on.wait(10)
            return super().count_tokens(text)

    first = threading.Thread(
        target=lambda: indexing.rebuild(world.config, make_embedder=lambda: Slow(IDENTITY))
    )
    first.start()
    assert begun.wait(10)
    with pytest.raises(WriterBusy):
        world.rebuild()
    go_on.set()
    first.join()
    assert len(world.generations()) == 1
    assert len(world.indexed()) == 4


# --- Bear ---------------------------------------------------------------------------------------

CREATED = datetime(2025, 3, 2, 9, 15, tzinfo=UTC)


def bear(world: World, *topics: str, **options: Any) -> Path:
    """Make Bear's database the only source: a note for each topic, by the topic's name."""
    path = world.folder / "database.sqlite"
    notes = [
        bear_database.BearNote(
            topic, topic.title(), f"# {topic.title()}\n{words(topic)}", CREATED, CREATED
        )
        for topic in topics
    ]
    bear_database.build(path, notes, **options)
    world.sources = [SourceSettings("bear", "bear", path)]
    return path


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def test_bear_is_read_and_not_changed(world: World) -> None:
    path = bear(world, "apple", "banana", "cherry")
    before = sha256(path.read_bytes()).digest()
    assert world.rebuild().indexed == 3
    assert world.sync().unchanged == 3
    assert world.indexed("bear") == {"bear:apple", "bear:banana", "bear:cherry"}
    assert sha256(path.read_bytes()).digest() == before


def test_a_bear_note_that_changed_and_one_that_was_trashed(world: World) -> None:
    path = bear(world, "apple", "banana", "cherry")
    world.rebuild()
    change(
        path,
        "UPDATE ZSFNOTE SET ZTEXT = ?, Z_OPT = Z_OPT + 1 WHERE ZUNIQUEIDENTIFIER = 'apple'",
        f"# Apple\n{words('fig')}",
    )
    change(path, "UPDATE ZSFNOTE SET ZTRASHED = 1 WHERE ZUNIQUEIDENTIFIER = 'banana'")
    report = world.sync()
    assert (report.indexed, report.removed, report.unchanged) == (1, 1, 1)
    assert report.skipped == (("bear:banana", "in the trash"),)
    assert world.indexed("bear") == {"bear:apple", "bear:cherry"}


def test_what_of_bear_cannot_be_read_is_told(world: World) -> None:
    bear(world, "apple", join_table=False)
    for report in (world.rebuild(), world.sync()):
        ((source, warning),) = report.warnings
        assert source == "bear"
        assert "no table joins notes to tags" in warning


def test_a_bear_that_is_locked_keeps_what_was_indexed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bear(world, "apple", "banana", journal_mode="delete")
    world.sources.append(SourceSettings("notes", "markdown", world.notes))
    world.rebuild()
    make = indexing.make_source

    def impatient(settings: SourceSettings) -> Any:
        if settings.kind == "bear":
            return BearSource(settings.name, settings.path, wait_seconds=0.1)
        return make(settings)

    monkeypatch.setattr(indexing, "make_source", impatient)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        for report in (world.sync(), world.rebuild()):
            ((source, why),) = report.kept
            assert source == "bear"
            assert "still locked" in why
    assert world.indexed("bear") == {"bear:apple", "bear:banana"}


# --- any history --------------------------------------------------------------------------------

NAMES = ("a.md", "b.md", "x/c.md", "x/d.md", "y/z/e.md")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "remove", "move", "sync", "rebuild"]),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.sampled_from(["apple", "banana", "cherry"]),
    ),
    max_size=12,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_happened_a_sync_ends_where_a_rebuild_would(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str, str]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    world.write("a.md", note("A", ("One", "apple")))
    world.rebuild()
    for age, (step, key, other, topic) in enumerate(steps):
        there = (world.notes / key).exists()
        if step == "write":
            world.write(key, note(key, ("One", topic), ("Two", f"{topic}s")), age=-age - 1)
        elif step == "remove" and there:
            world.remove(key)
        elif step == "move" and there and not (world.notes / other).exists():
            world.move(key, other)
        elif step == "sync":
            world.sync(allow_shrink=True)
        elif step == "rebuild":
            world.rebuild()
    world.sync(allow_shrink=True)
    synced = world.content()
    world.rebuild()
    assert synced == world.content()
