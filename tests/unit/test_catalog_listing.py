"""The catalog as a list: notes by tag and date, tags with their counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from small_world import IDENTITY

from prompt_rag.catalog import Catalog, IndexedNote
from prompt_rag.domain import Note

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOTE = Note("notes", "a.md", "A", "", (), NOON, None, (), "/n/a.md")


def put(catalog: Catalog, key: str, modified_at: datetime | None, *tags: str, **more: str) -> None:
    note = replace(NOTE, key=key, uri=f"/n/{key}", modified_at=modified_at, tags=tags, **more)
    catalog.replace([IndexedNote(note, "", [])])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.create(tmp_path / "c.sqlite", IDENTITY, "1") as catalog:
        put(catalog, "old.md", NOON - timedelta(days=30), "work/rag", "Home")
        put(catalog, "noon.md", NOON, "work")
        put(catalog, "later.md", NOON + timedelta(microseconds=1), "home")
        put(catalog, "undated.md", None, "work/ops/wiki")
        yield catalog


def keys(catalog: Catalog, *tags: str, **more: datetime) -> list[str]:
    return [head.key for head in catalog.notes_where(tags, **more)]


def test_the_newest_come_first_and_the_undated_last(catalog: Catalog) -> None:
    assert keys(catalog) == ["later.md", "noon.md", "old.md", "undated.md"]


def test_notes_of_one_instant_are_in_the_order_of_source_and_key(catalog: Catalog) -> None:
    put(catalog, "z.md", NOON, source="bear")
    put(catalog, "a.md", NOON)
    assert keys(catalog, since=NOON, before=NOON + timedelta(microseconds=1)) == [
        *("z.md", "a.md", "noon.md")
    ]


def test_a_tag_finds_those_below_it_and_several_tags_are_any_of_them(catalog: Catalog) -> None:
    assert keys(catalog, "#Work/") == ["noon.md", "old.md", "undated.md"]
    assert keys(catalog, "work/ops", "HOME") == ["later.md", "old.md", "undated.md"]
    assert keys(catalog, "wor") == []


def test_dates_bound_from_an_instant_up_to_another(catalog: Catalog) -> None:
    assert keys(catalog, since=NOON) == ["later.md", "noon.md"]
    assert keys(catalog, before=NOON) == ["old.md"]
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    assert keys(catalog, since=elsewhere) == ["later.md", "noon.md"]
    assert keys(catalog, "work", since=NOON) == ["noon.md"]


def test_tags_are_counted_with_those_below_them(catalog: Catalog) -> None:
    assert catalog.tag_counts() == [
        *(("work", 3), ("home", 2), ("work/ops", 1), ("work/ops/wiki", 1), ("work/rag", 1))
    ]


def test_an_empty_catalog_lists_nothing(tmp_path: Path) -> None:
    with Catalog.create(tmp_path / "e.sqlite", IDENTITY, "1") as catalog:
        assert catalog.notes_where() == []
        assert catalog.tag_counts() == []
