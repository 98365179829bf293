"""Queries from own notes: which are drawn, and that what they come from does not help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_world import World, words

from prompt_rag import pseudo
from prompt_rag.calibration import Calibration
from prompt_rag.catalog import Catalog
from prompt_rag.domain import Thresholds
from prompt_rag.policy import Weights
from prompt_rag.pseudo import HEADING, TITLE, TLDR

LOCKS = f"""# Postgres blocking sessions

## TL;DR

- [ ] **Ask** `pg_blocking_pids` which backend waits
- Short
- {words("toolong", 60)}

## Steps

{words("locks")}

## Terminate the oldest backend

{words("backend")} zebra

### Quarantine afterwards carefully

{words("quarantine")}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"))
    world.write("locks.md", LOCKS)
    world.write("bread.md", f"# Rye bread baking\n\n{words('bread')}\n")
    for place in ("left", "right"):
        world.write(
            f"{place}.md",
            f"# Boiler {place} side\n\n## Refill water pressure\n\n{words(place)}\n\n"
            f"## Vent {place} radiators\n\n{words('vent' + place)}\n",
        )
    world.rebuild()
    return world


@pytest.fixture
def catalog(world: World) -> Iterator[Catalog]:
    with world.catalog() as opened:
        yield opened


def texts(catalog: Catalog, **options: Any) -> dict[str, str]:
    return {each.prompt.prompt: each.prompt.kind for each in pseudo.draw(catalog, **options)}


def test_what_is_drawn(catalog: Catalog) -> None:
    assert texts(catalog) == {
        "Postgres blocking sessions": TITLE,
        "Boiler left side": TITLE,
        "Boiler right side": TITLE,
        "Ask pg_blocking_pids which backend waits": TLDR,
        "Terminate the oldest backend": HEADING,
        "Quarantine afterwards carefully": HEADING,
        "Vent left radiators": HEADING,
        "Vent right radiators": HEADING,
        # not: "Steps" and "Short" (one word), a line that is a paragraph, "Refill water pressure"
        # (in two notes), and "Rye bread baking", whose note has one passage
    }


def test_a_few_are_spread_over_kinds_and_notes(catalog: Catalog) -> None:
    few = pseudo.draw(catalog, 5)
    assert sorted(each.prompt.kind for each in few) == [HEADING, HEADING, TITLE, TITLE, TLDR]
    headings = [each.owner for each in few if each.prompt.kind == HEADING]
    assert len(set(headings)) == 2
    assert few == pseudo.draw(catalog, 5) == pseudo.draw(catalog)[:5]
    assert len({each.prompt.id for each in pseudo.draw(catalog)}) == 8


def hidden(catalog: Catalog, text: str) -> str:
    (drawn,) = [each for each in pseudo.draw(catalog) if each.prompt.prompt == text]
    return " ".join(passage.text for passage, _ in catalog.passages(drawn.hidden).values())


def test_what_is_held_out(catalog: Catalog) -> None:
    section = hidden(catalog, "Terminate the oldest backend")
    assert "backend3" in section
    assert "quarantine3" in section  # a section ends with what is below it
    assert "locks3" not in section
    assert "backend3" not in hidden(catalog, "Quarantine afterwards carefully")
    short = hidden(catalog, "Ask pg_blocking_pids which backend waits")
    assert "Short" in short
    assert "locks3" not in short


def measured(world: World, catalog: Catalog) -> dict[str, Any]:
    cases = pseudo.measure(pseudo.draw(catalog), catalog, world.model)
    return {case.prompt.prompt: case for case in cases}


def test_what_is_held_out_does_not_help(world: World, catalog: Catalog) -> None:
    case = measured(world, catalog)["Terminate the oldest backend"]
    own = next((each for each in case.candidates if each.note.key == "locks.md"), None)
    assert own is not None
    assert "backend3" not in own.passage.text
    assert "quarantine3" not in own.passage.text
    # "backend" stands in the TL;DR as well, "terminate" and "oldest" only in what is held out.
    whole = pseudo.candidates.find(
        "Terminate the oldest backend",
        world.model.embed_query("Terminate the oldest backend"),
        catalog,
        pseudo._index(*catalog.matrix(), ()),
    )
    known = next(each for each in whole if each.note.key == "locks.md")
    assert own.distance > known.distance
    assert own.evidence["whole_note"] > known.evidence["whole_note"]
    assert 0.0 < own.evidence["coverage"] < known.evidence["coverage"] == pytest.approx(1.0)


def test_words_of_a_title_count_only_where_they_stand_elsewhere(
    world: World, catalog: Catalog
) -> None:
    case = measured(world, catalog)["Boiler left side"]
    own = next(each for each in case.candidates if each.note.key == "left.md")
    assert own.evidence["coverage"] < 0.9  # "side" is in no passage, "left" in a heading
    assert case.prompt.relevant == ("left.md",)
    assert case.prompt.id.startswith("own-title-")


def test_progress_is_told(world: World, catalog: Catalog) -> None:
    told: list[tuple[str, int, int]] = []
    draws = pseudo.draw(catalog, 2)
    pseudo.measure(draws, catalog, world.model, lambda *step: told.append(step))
    assert told == [("own notes", 1, 2), ("own notes", 2, 2)]


def test_the_summary(world: World, catalog: Catalog) -> None:
    cases = list(measured(world, catalog).values())
    everything = Thresholds(2.0, -2.0, 2.0, 2.0, "f")
    found = pseudo.summary(cases, Calibration("m", everything, None, {}))
    assert list(found) == [TITLE, TLDR, HEADING, "all"]
    assert [each["queries"] for each in found.values()] == [3, 1, 4, 8]
    right = sum(case.ranked[0][0] in case.prompt.relevant for case in cases)
    assert found["all"]["found_first"] == found["all"]["injected"] == right / 8
    assert right >= 4
    no = Weights(-50.0, {}, {})
    strict = Thresholds(2.0, -2.0, 0.0, 2.0, "f", min_probability=0.5)
    silent = pseudo.summary(cases, Calibration("m", strict, no, {}))
    assert silent["all"]["injected"] == 0.0
    assert pseudo.summary([], Calibration("m", strict, no, {})) == {}


def test_an_index_without_notes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.rebuild()
    with world.catalog() as catalog:
        assert pseudo.draw(catalog) == []
        assert pseudo.measure([], catalog, world.model) == []
