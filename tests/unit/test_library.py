"""The notes as somebody asks for them, and the tools over them, without a process or a model."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from small_world import IDENTITY, World, note, words

from prompt_rag import config, library, mcp_server, replies, wire
from prompt_rag.domain import (
    ConfigError,
    IndexMissing,
    NoteUnknown,
    SourceError,
)
from prompt_rag.library import AskedWrongly, Library

SETTINGS = """
[thresholds]
max_distance = 0.7
min_gap = 0.05
search_distance = 0.8
"""
SOURCE = '\n[[source]]\nname = "notes"\nkind = "markdown"\npath = "{path}"\n'
APPLE, BANANA = words("apple", 12), words("banana", 12)


class Shelf(World):
    """A world with a library; every note of it is an hour old or older."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home.mkdir()
        self.configure()
        self.write("a.md", note("Alpha", ("One", "apple"), ("Two", "apricot")) + "\n#fruit/red\n")
        self.write("sub/b.md", note("Beta", ("One", "banana")) + "\n#fruit\n", age=86400)
        self.rebuild()
        self.library = Library(self.home)

    def configure(self, more: str = SETTINGS) -> None:
        text = more + SOURCE.format(path=self.notes)
        (self.home / "config.toml").write_text(text)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    monkeypatch.setattr(library, "SharedEmbedder", lambda _config: shelf.model)
    yield shelf
    shelf.library.close()


# --- search --------------------------------------------------------------------------------------


def test_a_search_marks_what_passes_the_bar(shelf: Shelf) -> None:
    found = shelf.library.search(f"{APPLE} and more")
    assert [hit.path for hit in found.hits][:1] == ["a.md"]
    assert found.hits[0].strong
    assert found.hits[0].heading == "One"
    assert found.advice == library.SOME_STRONG
    assert not any(hit.strong for hit in found.hits[1:])


def test_what_is_too_far_is_no_hit(shelf: Shelf) -> None:
    found = shelf.library.search("quagga")
    assert (found.hits, found.advice) == ([], library.NOTHING)


def test_a_hit_below_the_bar_is_a_suggestion(shelf: Shelf) -> None:
    shelf.configure(SETTINGS.replace("0.7", "0.0"))
    found = shelf.library.search("apple1 apple2 apple3")
    assert found.hits
    assert not found.hits[0].strong
    assert found.advice == library.ONLY_WEAK


def test_without_a_calibration_everything_is_a_suggestion(shelf: Shelf) -> None:
    shelf.configure("")
    found = shelf.library.search("zebra")
    assert len(found.hits) == 2
    assert found.advice == library.ONLY_WEAK


def test_few_rivals_do_not_make_a_hit_strong(shelf: Shelf) -> None:
    # Two notes as near as each other: neither leads, though with the tag one is alone.
    shelf.write("c.md", note("Alpha", ("One", "apple")) + "\ncopy\n\n#alone\n")
    shelf.configure(SETTINGS.replace("min_gap = 0.05", "min_gap = 0.9"))
    shelf.sync()
    alone = shelf.library.search(f"{APPLE} and more", tags=["alone"])
    everywhere = shelf.library.search(f"{APPLE} and more")
    strong = {hit.id for hit in everywhere.hits if hit.strong}
    assert {hit.id for hit in alone.hits if hit.strong} <= strong


def test_tags_and_limit(shelf: Shelf) -> None:
    assert [hit.path for hit in shelf.library.search(BANANA, tags=["fruit/red"]).hits] == []
    assert [hit.path for hit in shelf.library.search(BANANA, tags=["fruit"]).hits] == ["sub/b.md"]
    shelf.configure("")
    assert len(shelf.library.search(APPLE, limit=1).hits) == 1


@pytest.mark.parametrize("query", ["", " ", "\n\t"])
def test_an_empty_query_is_refused(shelf: Shelf, query: str) -> None:
    with pytest.raises(AskedWrongly):
        shelf.library.search(query)


def test_the_reader_stays_open_and_follows(shelf: Shelf) -> None:
    shelf.library.search(APPLE)
    first = shelf.library._reader
    shelf.write("new.md", note("Gamma", ("One", "cherry")))
    shelf.sync()
    assert shelf.library.search(words("cherry")).hits[0].path == "new.md"
    assert shelf.library._reader is first
    shelf.configure(SETTINGS.replace("0.8", "0.75"))
    shelf.library.search(APPLE)
    assert shelf.library._reader is not first


def test_a_long_passage_is_cut(shelf: Shelf) -> None:
    shelf.write("long.md", "# Long\n\n" + "banana" * 600 + " durian\n")
    shelf.sync()
    hit = shelf.library.search("durian").hits[0]
    assert hit.excerpt.endswith("banana …")
    assert len(hit.excerpt) == replies.EXCERPT_CHARS + 2


# --- reading -------------------------------------------------------------------------------------


def test_a_note_is_read_from_its_source(shelf: Shelf) -> None:
    shelf.write("a.md", "# Alpha\n\nWritten anew.\n")
    found = shelf.library.read("a.md")
    assert found.text == "# Alpha\n\nWritten anew."
    assert (found.title, found.source, found.path) == ("Alpha", "notes", "a.md")
    assert (found.offset, found.next_offset, found.masked) == (0, None, 0)


def test_parts_do_not_halve_a_secret(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "PAGE_CHARS", 20)
    shelf.write("a.md", "# Alpha\n\nfoo\n\npassword: hunter2xyz9 and some words after it\n")
    first = shelf.library.read("a.md")
    assert first.next_offset == 20
    assert first.masked == 1
    rest, offset = first.text, first.next_offset
    while offset is not None:
        part = shelf.library.read("a.md", offset)
        rest, offset = rest + part.text, part.next_offset
    assert rest == "# Alpha\n\nfoo\n\npassword: [secret hidden] and some words after it"


@pytest.mark.parametrize("name", ["nothing", "", " ", "\0", "\ud800"])
def test_a_name_of_nothing(shelf: Shelf, name: str) -> None:
    with pytest.raises(NoteUnknown, match="no note in the index"):
        shelf.library.read(name)


def test_a_note_that_is_gone_excluded_or_unreadable(shelf: Shelf) -> None:
    shelf.remove("a.md")
    with pytest.raises(NoteUnknown, match="no longer exists") as caught:
        shelf.library.read("a.md")
    assert caught.value.hint == "sync_notes"
    (shelf.notes / "sub" / "b.md").write_bytes(b"\0\1\2")
    with pytest.raises(SourceError, match="cannot be read now") as refused:
        shelf.library.read("sub/b.md")
    assert refused.value.hint.startswith("prompt-rag inspect ")
    shutil.rmtree(shelf.notes)
    with pytest.raises(SourceError):
        shelf.library.read("a.md")
    (shelf.home / "config.toml").write_text(SETTINGS)
    with pytest.raises(ConfigError, match="no longer set up"):
        shelf.library.read("a.md")


def test_other_notes_of_a_source_are_passed_over(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that answers with more than it was asked for, as Bear's does."""
    whole = library.indexing.make_source

    def without_paths(settings: Any) -> Any:
        source = whole(settings)
        return SimpleNamespace(name=source.name, scan=lambda known, _paths: source.scan(known))

    monkeypatch.setattr(library.indexing, "make_source", without_paths)
    assert shelf.library.read("sub/b.md").title == "Beta"
    shelf.remove("sub/b.md")
    with pytest.raises(NoteUnknown, match="no longer exists"):
        shelf.library.read("sub/b.md")


# --- lists and state -----------------------------------------------------------------------------


def test_lists(shelf: Shelf) -> None:
    everything = shelf.library.notes()
    assert [each.path for each in everything.notes] == ["a.md", "sub/b.md"]
    assert shelf.library.notes(limit=1).total == 2
    assert [each.path for each in shelf.library.notes(tag="fruit/red").notes] == ["a.md"]
    assert [each.path for each in shelf.library.notes(title="BET").notes] == ["sub/b.md"]
    assert {each.tag: each.notes for each in shelf.library.tags().tags} == {
        "fruit": 2,
        "fruit/red": 1,
    }


def test_a_date_is_the_beginning_of_its_day_here(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert library._parsed("2026-05-31") == datetime(2026, 5, 30, 15, tzinfo=UTC)
        assert library._parsed("2026-05-31T00:00Z") == datetime(2026, 5, 31, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()
    now = datetime.now(UTC)
    recent = shelf.library.notes(since=(now - timedelta(hours=6)).isoformat())
    assert [each.path for each in recent.notes] == ["a.md"]
    old = shelf.library.notes(before=(now - timedelta(hours=6)).isoformat())
    assert [each.path for each in old.notes] == ["sub/b.md"]


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "0001-01-01T00:00+23:59", "\ud800"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(AskedWrongly, match="is no date"):
        library._parsed(text)


def test_no_date_is_no_bound() -> None:
    assert library._parsed(None) is None
    assert library._parsed("") is None


def test_the_state_names_what_is_wrong(shelf: Shelf) -> None:
    state = shelf.library.state("1.2.3")
    # The index of this world is of another model than the settings name.
    assert [problem.hint for problem in state.problems] == ["prompt-rag rebuild"]
    shelf.configure('[model]\nname = "no-such-model"\n')
    state = shelf.library.state("1.2.3")
    assert "no-such-model" in state.problems[0].what
    assert (state.version, state.notes, state.daemon) == ("1.2.3", 2, "not running")
    assert state.built_at is not None
    shutil.rmtree(shelf.home / "generations")
    (shelf.home / "CURRENT").unlink()
    assert len(shelf.library.state("1").problems) == 2


def test_the_state_of_an_index_in_order(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library.embedder, "identity_of", lambda _files: IDENTITY)
    state = shelf.library.state("1")
    assert state.problems == []
    assert state.calibrated
    assert [(each.source, each.notes) for each in state.sources] == [("notes", 2)]
    assert state.passages == state.sources[0].passages >= 3
    assert state.built_at is not None
    assert state.written_at is not None
    assert state.built_at <= state.written_at


def test_the_daemon_is_off_stuck_or_not_there(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_more: object) -> None:
        raise wire.Unanswered(reason)

    monkeypatch.setattr(wire, "ask", refuse)
    reason = wire.DEADLINE
    assert library._daemon(config.load(shelf.home)) == "does not answer"
    reason = wire.DAEMON_UNAVAILABLE
    assert library._daemon(config.load(shelf.home)) == "not running"
    monkeypatch.setattr(wire, "ask", lambda *_arguments, **_more: {"outcome": "status"})
    assert library._daemon(config.load(shelf.home)) == "running"
    shelf.configure('[daemon]\nmode = "off"\n')
    assert library._daemon(config.load(shelf.home)) == "off"


def test_without_an_index(tmp_path: Path) -> None:
    empty = Library(tmp_path / "none")
    for ask in (
        lambda: empty.search("x"),
        lambda: empty.read("x"),
        empty.notes,
        empty.tags,
    ):
        with pytest.raises(IndexMissing):
            ask()
    empty.close()


# --- texts ---------------------------------------------------------------------------------------


def test_places_of_the_machine_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    home = Path("/home/somebody/data")
    text = (
        f"/home/somebody/data/generations/1 and {wire.runtime_folder(str(home))}/daemon.sock and"
        f" {library.launch.PARENT}/prompt_rag/x.py and /home/somebody/Notes/a.md"
    )
    assert library.placeless(text, home) == (
        "PROMPT_RAG_HOME/generations/1 and RUNTIME/daemon.sock and"
        " INSTALLATION/prompt_rag/x.py and ~/Notes/a.md"
    )


@given(st.text())
def test_a_line_is_one_harmless_line(text: str) -> None:
    line = replies.line(text)
    assert len(line) <= replies.LINE_CHARS
    assert line.isprintable() or not line.isascii()
    assert not set(line) & set("\n\r\t\x1b\x00")
    assert replies.line(line) == line or "[secret hidden]" in line


# --- the tools -----------------------------------------------------------------------------------


def with_tools(shelf: Shelf, ask: Callable[[Client], Awaitable[None]]) -> None:
    async def session() -> None:
        async with Client(mcp_server.make(shelf.library)) as client:
            await ask(client)

    anyio.run(session)


def test_the_tools_answer(shelf: Shelf) -> None:
    async def ask(client: Client) -> None:
        for tool, arguments, part in (
            ("search_notes", {"query": APPLE}, "a.md"),
            ("read_note", {"note": "a.md"}, "apricot1"),
            ("list_notes", {"tag": "fruit"}, "sub/b.md"),
            ("list_tags", {}, "fruit/red"),
            ("status", {}, IDENTITY.name),
        ):
            result = await client.call_tool(tool, arguments)
            assert not result.is_error
            assert part in result.content[0].text
        result = await client.call_tool("read_note", {"note": "c.md"})
        assert result.is_error
        assert "\nHint: search_notes" in result.content[0].text

    with_tools(shelf, ask)


def test_an_unknown_error_tells_nothing_of_a_note(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("the text of a note")

    broken.__name__ = "tags"
    monkeypatch.setattr(shelf.library, "tags", broken)

    async def ask(client: Client) -> None:
        result = await client.call_tool("list_tags", {})
        assert result.is_error
        assert result.content[0].text.endswith("an unexpected error; the server's log says where")

    with caplog.at_level(logging.DEBUG):
        with_tools(shelf, ask)
    assert "the text of a note" not in caplog.text
    assert "tags: RuntimeError test_library.py:" in caplog.text


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        (b"", b"Error: PLACE/x is busy\nHint: prompt-rag status\n", "HOME/x is busy\nHint: prompt"),
        (b"", b"Error: no hint\n", "no hint"),
        (b"", b"\xff", "ended without a word"),
        (b"{", b"", "ended without a word"),
    ],
)
def test_a_sync_that_fails_is_told(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, stdout: bytes, stderr: bytes, said: str
) -> None:
    async def run(*_arguments: object, **_more: object) -> SimpleNamespace:
        place = str(shelf.home).encode()
        return SimpleNamespace(stdout=stdout, stderr=stderr.replace(b"PLACE", place))

    monkeypatch.setattr(mcp_server.anyio, "run_process", run)

    async def ask(client: Client) -> None:
        result = await client.call_tool("sync_notes", {})
        assert result.is_error
        assert said in result.content[0].text

    with_tools(shelf, ask)


def test_a_sync_names_the_first_that_were_left_out() -> None:
    report = {
        **dict.fromkeys(("seen", "indexed", "unchanged", "removed"), 1),
        "skipped": [{"note": f"{number}\n.md", "why": "binary"} for number in range(30)],
        "kept": [{"source": "notes", "why": "gone"}],
        "warnings": [{"source": "bear", "why": "\x1b[1mtags"}],
        "seconds": 0.5,
    }
    synced = mcp_server._synced(report)
    assert synced.skipped == 30
    assert len(synced.left_out) == mcp_server.MOST_LEFT_OUT
    assert synced.left_out[0].name == "0 .md"
    assert [each.why for each in synced.unread_sources] == ["gone", "tags"]
