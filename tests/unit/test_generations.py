"""Generations: what CURRENT names, publishing, pruning."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from prompt_rag import fsio, generations
from prompt_rag.domain import IndexMissing
from prompt_rag.generations import Generation


def built(home: Path) -> Generation:
    generation = generations.create(home)
    generation.catalog.write_bytes(b"a catalog")
    return generation


def published(home: Path) -> Generation:
    generation = built(home)
    generations.publish(home, generation.id)
    return generation


def test_a_new_home_has_no_index_and_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(IndexMissing) as caught:
        generations.current(tmp_path)
    assert caught.value.hint == "prompt-rag rebuild"
    with pytest.raises(IndexMissing):
        generations.current(tmp_path / "nowhere")


def test_a_new_generation_is_private_and_not_current(tmp_path: Path) -> None:
    generation = generations.create(tmp_path)
    assert list(generation.folder.iterdir()) == []
    assert stat.S_IMODE(generation.folder.stat().st_mode) == 0o700
    with pytest.raises(IndexMissing):
        generations.current(tmp_path)


def test_ids_sort_by_age_and_never_meet(tmp_path: Path) -> None:
    ids = [generations.create(tmp_path).id for _ in range(50)]
    assert len(set(ids)) == 50
    # The random end decides only between ids of the same microsecond.
    assert [name[:22] for name in sorted(ids)] == [name[:22] for name in ids]


def test_the_file_names_are_those_of_the_layout(tmp_path: Path) -> None:
    generation = Generation("x", tmp_path)
    names = [path.name for path in (generation.catalog, generation.graph, generation.manifest)]
    assert names == ["catalog.sqlite", "vectors.hnsw", "vectors.json"]
    assert {path.parent for path in (generation.catalog, generation.graph)} == {tmp_path}


def test_publish_makes_it_current_and_names_the_one_before(tmp_path: Path) -> None:
    first, second = built(tmp_path), built(tmp_path)
    assert generations.publish(tmp_path, first.id) is None
    assert generations.current(tmp_path) == first
    assert generations.publish(tmp_path, second.id) == first.id
    assert generations.current(tmp_path) == second
    assert (tmp_path / "CURRENT").read_text() == f"{second.id}\n"
    assert stat.S_IMODE((tmp_path / "CURRENT").stat().st_mode) == 0o600


def test_a_generation_without_a_catalog_is_not_published(tmp_path: Path) -> None:
    first = published(tmp_path)
    with pytest.raises(IndexMissing):
        generations.publish(tmp_path, generations.create(tmp_path).id)
    assert generations.current(tmp_path) == first


def test_a_publish_that_fails_leaves_the_old_one_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = published(tmp_path), built(tmp_path)

    def fail(*_args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        generations.publish(tmp_path, second.id)
    monkeypatch.undo()
    assert generations.current(tmp_path) == first
    assert generations.publish(tmp_path, second.id) == first.id


def test_everything_reaches_the_disk_before_its_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = built(tmp_path)
    generation.graph.write_bytes(b"graph")
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(fd: int) -> None:
        events.append(f"sync {os.path.realpath(f'/proc/self/fd/{fd}').rpartition('/')[2]}")
        fsync(fd)

    def note_replace(*args: str) -> None:
        events.append("CURRENT")
        replace(*args)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    generations.publish(tmp_path, generation.id)
    before = events[: events.index("CURRENT")]
    if Path("/proc/self/fd").exists():
        assert {"sync catalog.sqlite", "sync vectors.hnsw", f"sync {generation.id}"} <= set(before)
    else:
        assert len(before) >= 4


@pytest.mark.parametrize("content", [b"", b"\n", b"../..\n", b"a/b", b".hidden", b"\xff\xfe", b"."])
def test_a_pointer_that_names_nothing_is_no_index(tmp_path: Path, content: bytes) -> None:
    published(tmp_path)
    (tmp_path / "CURRENT").write_bytes(content)
    with pytest.raises(IndexMissing, match="names no generation"):
        generations.current(tmp_path)


def test_a_pointer_to_a_folder_that_is_gone_is_no_index(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / "CURRENT").write_text("20200101T000000.000000-00000000\n")
    with pytest.raises(IndexMissing, match="is gone"):
        generations.current(tmp_path)


def test_a_pointer_that_cannot_be_read_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "CURRENT").mkdir()
    with pytest.raises(IndexMissing, match="cannot be read"):
        generations.current(tmp_path)


def test_prune_keeps_the_current_and_the_named_and_removes_leftovers(tmp_path: Path) -> None:
    old = published(tmp_path)
    crashed_before = built(tmp_path)
    previous = published(tmp_path)
    now = built(tmp_path)
    kept = generations.publish(tmp_path, now.id)
    crashed_after = built(tmp_path)
    (tmp_path / ".CURRENT.1.abcd.tmp").write_bytes(b"half")
    assert kept == previous.id
    removed = generations.prune(tmp_path, keep=[kept])
    assert removed == sorted([old.id, crashed_before.id, crashed_after.id])
    left = {folder.name for folder in (tmp_path / "generations").iterdir()}
    assert left == {previous.id, now.id}
    assert not list(tmp_path.glob(".CURRENT*"))
    assert generations.prune(tmp_path) == [previous.id]


def test_prune_leaves_what_is_no_generation(tmp_path: Path) -> None:
    published(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    folder = tmp_path / "generations"
    (folder / "link").symlink_to(outside, target_is_directory=True)
    (folder / "note.txt").write_text("x")
    (folder / ".hidden").mkdir()
    assert generations.prune(tmp_path) == []
    assert (outside / "precious").exists()
    assert {"link", "note.txt", ".hidden"} < {each.name for each in folder.iterdir()}


def test_prune_without_a_current_generation_removes_nothing(tmp_path: Path) -> None:
    generation = built(tmp_path)
    with pytest.raises(IndexMissing):
        generations.prune(tmp_path)
    assert generation.catalog.exists()


def test_a_reader_goes_on_reading_a_pruned_generation(tmp_path: Path) -> None:
    old = published(tmp_path)
    with old.catalog.open("rb") as reader:
        published(tmp_path)
        assert generations.prune(tmp_path) == [old.id]
        assert not old.folder.exists()
        assert reader.read() == b"a catalog"


def test_the_pointer_is_replaced_and_never_written_in_place(tmp_path: Path) -> None:
    published(tmp_path)
    with (tmp_path / "CURRENT").open("rb") as reader:
        before = os.fstat(reader.fileno()).st_ino
        published(tmp_path)
        assert (tmp_path / "CURRENT").stat().st_ino != before
    assert fsio.FILE_MODE == 0o600
