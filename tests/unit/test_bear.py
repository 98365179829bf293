"""The Bear source against real SQLite files laid out as Bear lays out its own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prompt_rag_fixtures import bear_database as fixture

from prompt_rag.domain import Gone, Note, Skipped, SourceError, Unchanged
from prompt_rag.sources import bear_database
from prompt_rag.sources.bear import BearSource, candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from prompt_rag.domain import Scanned

CREATED = datetime(2025, 3, 2, 9, 15, tzinfo=UTC)
MODIFIED = datetime(2026, 1, 20, 17, 40, tzinfo=UTC)
TEXT = "# Locks\n\nPostgres locks. #work/project"
NOBODY = 65534  # a user id that owns nothing


def bear_note(uid: str = "A", text: str = TEXT, **changes: Any) -> Any:
    """Return a note as the fixture takes it, with ``changes`` by field."""
    return replace(fixture.BearNote(uid, "Locks", text, CREATED, MODIFIED), **changes)


def build(path: Path, *notes: Any, **options: Any) -> Path:
    fixture.build(path, notes or [bear_note()], **options)
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return build(tmp_path / "database.sqlite")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def scan(
    path: Path | None,
    known: Mapping[str, str] | None = None,
    paths: Collection[Path] | None = None,
    **options: Any,
) -> list[Scanned]:
    return list(BearSource("bear", path, **options).scan(known or {}, paths))


def notes_of(source: BearSource) -> dict[str, Note]:
    """Return the notes of a source that has nothing else to tell, by key."""
    found = list(source.scan({}))
    notes = {note.key: note for note in found if isinstance(note, Note)}
    assert len(notes) == len(found)
    return notes


def only(path: Path, **options: Any) -> Note:
    """Return the one note of a database."""
    (note,) = notes_of(BearSource("bear", path, **options)).values()
    return note


def failure(path: Path | None, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        scan(path, **options)
    return caught.value


# --- what a note becomes ----------------------------------------------------------------------


def test_note_carries_what_bear_holds(database: Path) -> None:
    note = only(database)
    assert note.source == BearSource("bear").name == "bear"
    assert note.key == "bear:A"
    assert note.title == "Locks"
    assert note.text == "# Locks\n\nPostgres locks. #work/project"
    assert note.created_at == CREATED
    assert note.modified_at == MODIFIED
    assert note.tags == ("work", "work/project")
    assert note.uri == "bear://x-callback-url/open-note?id=A"
    assert any("Postgres locks" in block.text for block in note.blocks)


def test_identifier_is_quoted_in_the_link(tmp_path: Path) -> None:
    assert only(build(tmp_path / "db", bear_note("a b&c/d"))).uri.endswith("?id=a%20b%26c%2Fd")


def test_one_title_twice_is_two_notes(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note("A"), bear_note("B"))
    assert {note.key for note in scan(path)} == {"bear:A", "bear:B"}


@pytest.mark.parametrize("stored", [None, "", " \n"])
@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Before.\n\n## First *heading*\n\nAfter.", "First heading"),
        ("Buy oat milk tomorrow", "Buy oat milk tomorrow"),
    ],
)
def test_title_is_made_from_the_text_where_bear_has_none(
    tmp_path: Path, stored: str | None, text: str, title: str
) -> None:
    assert only(build(tmp_path / "db", bear_note(text=text, title=stored))).title == title


def test_title_made_from_a_long_text_is_cut(tmp_path: Path) -> None:
    title = only(build(tmp_path / "db", bear_note(text="word " * 90, title=None))).title
    assert title.startswith("word word")
    assert len(title) <= 60


def test_long_first_line_is_cut_where_bear_makes_it_the_title(tmp_path: Path) -> None:
    line = "A sentence of some words. " * 40
    title = only(build(tmp_path / "db", bear_note(text=line, title=line))).title
    assert len(title) <= 300
    assert title.endswith("words.")


def test_note_of_nothing_but_a_comment_has_a_name(tmp_path: Path) -> None:
    note = only(build(tmp_path / "db", bear_note(text="<!-- later -->", title=None)))
    assert note.title == "untitled"
    assert note.blocks == ()


@pytest.mark.parametrize("title", ["Locks in Postgres", "Other", "", "**Locks** in Postgres"])
@pytest.mark.parametrize("level", ["#", "##"])
def test_first_line_is_the_title_and_no_section(tmp_path: Path, title: str, level: str) -> None:
    text = f"{level} **Locks** in Postgres\n\n## Advisory\n\nText.\n\n# Other\n\nMore."
    note = only(build(tmp_path / "db", bear_note(text=text, title=title)))
    headings = [block.text for block in note.blocks if block.kind == "heading"]
    assert headings == ["Advisory", "Other"]
    assert note.title == (title or "Locks in Postgres")


def test_heading_below_the_first_line_that_repeats_the_title_is_no_section(tmp_path: Path) -> None:
    text = "Tuesday\n\n# Locks\n\n## Advisory\n\nText."
    note = only(build(tmp_path / "db", bear_note(text=text)))
    assert [block.text for block in note.blocks] == ["Tuesday", "Advisory", "Text."]


def test_frontmatter_is_read_as_in_a_file(tmp_path: Path) -> None:
    text = "---\naliases: [latches]\ntags: [db]\n---\n# Locks\n\nText. #work"
    path = build(tmp_path / "db", bear_note(text=text, title="---"))
    note = only(path)
    assert (note.title, note.text) == ("Locks", "# Locks\n\nText. #work")
    assert note.aliases == ("latches",)
    assert note.tags == ("work",), "what Bear itself does not call a tag is none"
    assert scan(path, exclude_tags=["db"]) == [Skipped("bear:A", "excluded by a tag", keep=False)]


def test_rules_around_a_first_line_are_no_frontmatter(tmp_path: Path) -> None:
    text = "---\n**ACME** letter\n---\n\nText."
    note = only(build(tmp_path / "db", bear_note(text=text, title="---")))
    assert note.text == text
    assert any("ACME" in block.text for block in note.blocks)


def test_note_can_keep_itself_out(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note(text="---\nprompt-rag: false\n---\n# Diary"))
    assert scan(path) == [Skipped("bear:A", "prompt-rag: false in its frontmatter", keep=False)]


def test_title_is_one_line(tmp_path: Path) -> None:
    assert only(build(tmp_path / "db", bear_note(title=" Two\n lines "))).title == "Two lines"


@pytest.mark.parametrize("value", ["NULL", "9e999", "-9e999", "1e12", "-1e10", "'soon'", "x'00'"])
def test_senseless_dates_are_none(database: Path, value: str) -> None:
    change(database, f"UPDATE ZSFNOTE SET ZCREATIONDATE = {value}, ZMODIFICATIONDATE = {value}")
    note = only(database)
    assert note.created_at is None
    assert note.modified_at is None


def test_text_that_is_not_utf8_costs_no_other_note(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note("A"), bear_note("B"))
    change(path, "UPDATE ZSFNOTE SET ZTEXT = CAST(x'61ff62' AS TEXT) WHERE ZUNIQUEIDENTIFIER = 'A'")
    notes = notes_of(BearSource("bear", path))
    assert {key: note.text[:3] for key, note in notes.items()} == {"bear:A": "a�b", "bear:B": "# L"}


# --- what stays out ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("ZTRASHED = 1", "in the trash"),
        ("ZARCHIVED = 1", "archived"),
        ("ZENCRYPTED = 1", "encrypted"),
        ("ZENCRYPTED = 1, ZTEXT = NULL", "encrypted"),
        ("ZLOCKED = 1", "locked"),
        ("ZPERMANENTLYDELETED = 1", "deleted"),
        ("ZPERMANENTLYDELETED = 1, ZTRASHED = 1", "deleted"),
        ("ZTEXT = NULL", "no text"),
        ("ZTEXT = ''", "no text"),
        ("ZTEXT = ' ' || char(10, 160)", "no text"),
        ("ZTEXT = x'2320'", "no text"),
    ],
)
def test_note_that_must_not_be_indexed_is_skipped_without_its_title(
    database: Path, changes: str, why: str
) -> None:
    change(database, f"UPDATE ZSFNOTE SET {changes}")
    assert scan(database) == [Skipped("bear:A", why, keep=False)]


def test_text_too_large_for_a_note_is_skipped(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note("A", "x" * (2 << 20)), bear_note("B", "x" * (2 << 20)))
    change(path, "UPDATE ZSFNOTE SET ZTEXT = ZTEXT || 'x' WHERE ZUNIQUEIDENTIFIER = 'B'")
    assert [type(item) for item in scan(path)] == [Note, Skipped]
    assert scan(path)[1] == Skipped("bear:B", "larger than 2 MB", keep=False)


@pytest.mark.parametrize("state", ["trashed", "archived", "encrypted", "locked", "deleted"])
def test_every_state_of_the_fixture_is_skipped(tmp_path: Path, state: str) -> None:
    path = build(tmp_path / "db", bear_note("A"), bear_note("B", state=state))
    by_key = {item.key: type(item) for item in scan(path)}
    assert by_key == {"bear:A": Note, "bear:B": Skipped}


@pytest.mark.parametrize("uid", ["NULL", "''", "x'41'"])
def test_note_without_identifier_is_skipped_by_its_primary_key(database: Path, uid: str) -> None:
    change(database, f"UPDATE ZSFNOTE SET ZUNIQUEIDENTIFIER = {uid}")
    assert scan(database) == [Skipped("bear:pk:1", "no identifier", keep=False)]


def test_two_rows_with_one_identifier_are_one_note(tmp_path: Path) -> None:
    older = CREATED
    path = build(
        tmp_path / "db",
        bear_note(text="newest"),
        bear_note(text="trashed", state="trashed"),
        bear_note(text="older", modified=older),
    )
    assert only(path).text == "newest"


def test_trashing_is_seen_though_the_date_stands_still(database: Path) -> None:
    note = only(database)
    change(database, "UPDATE ZSFNOTE SET ZTRASHED = 1")
    assert scan(database, {note.key: note.fingerprint}) == [
        Skipped("bear:A", "in the trash", keep=False)
    ]


@pytest.mark.parametrize("excluded", ["work", "#Work", "work/project", "#work/project#", "WORK/"])
def test_excluded_tags_stand_for_what_is_below_them(database: Path, excluded: str) -> None:
    assert scan(database, exclude_tags=[excluded]) == [
        Skipped("bear:A", "excluded by a tag", keep=False)
    ]


@pytest.mark.parametrize("excluded", ["wor", "project", "work/project/x"])
def test_other_tags_exclude_nothing(database: Path, excluded: str) -> None:
    assert only(database, exclude_tags=[excluded]).key == "bear:A"


def test_tag_in_the_text_excludes_where_the_tables_lag_behind(database: Path) -> None:
    change(database, "DELETE FROM Z_5TAGS")
    assert only(database).tags == ()
    assert scan(database, exclude_tags=["work"]) == [
        Skipped("bear:A", "excluded by a tag", keep=False)
    ]


def test_doubtful_tag_excludes_only_where_the_tables_do_not_tell(tmp_path: Path) -> None:
    note = bear_note(text="#private about C#")
    excluded = [Skipped("bear:A", "excluded by a tag", keep=False)]
    known = build(tmp_path / "known", note)
    assert only(known, exclude_tags=["private"]).tags == ("private about C",)
    assert scan(known, exclude_tags=["private about c"]) == excluded
    assert (
        scan(build(tmp_path / "db", note, join_table=False), exclude_tags=["private"]) == excluded
    )


# --- what has changed -------------------------------------------------------------------------


def test_unchanged_note_is_told_so(database: Path) -> None:
    note = only(database)
    assert scan(database, {note.key: note.fingerprint}) == [Unchanged("bear:A")]


@pytest.mark.parametrize(
    "changes",
    [
        "UPDATE ZSFNOTE SET Z_OPT = 2",
        "UPDATE ZSFNOTE SET ZMODIFICATIONDATE = ZMODIFICATIONDATE + 0.001",
        "UPDATE ZSFNOTE SET ZTEXT = ZTEXT || '.'",
        "UPDATE ZSFNOTE SET ZTITLE = 'Latches'",
        "UPDATE ZSFNOTETAG SET ZTITLE = 'play' WHERE ZTITLE = 'work'",
        "DROP TABLE Z_5TAGS",
    ],
)
def test_changed_note_is_read_again(database: Path, changes: str) -> None:
    known = {"bear:A": only(database).fingerprint}
    change(database, changes)
    (note,) = scan(database, known)
    assert isinstance(note, Note)
    assert note.fingerprint != known["bear:A"]


def test_other_exclusions_make_every_note_read_again(database: Path) -> None:
    change(database, "DELETE FROM Z_5TAGS")
    note = only(database)
    (skipped,) = scan(database, {note.key: note.fingerprint}, exclude_tags=["work"])
    assert skipped == Skipped("bear:A", "excluded by a tag", keep=False)


def test_without_a_save_counter_a_note_is_read_every_time(database: Path) -> None:
    change(database, "ALTER TABLE ZSFNOTE DROP COLUMN Z_OPT")
    note = only(database)
    assert note.fingerprint == ""
    assert scan(database, {note.key: ""}) == [note]


def test_revision_follows_the_database_and_its_log(database: Path) -> None:
    source = BearSource("bear", database)
    first = source.revision()
    list(source.scan({}))
    assert source.revision() == first, "reading is no change"
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("UPDATE ZSFNOTE SET ZTRASHED = 1")
        writer.commit()
        second = source.revision()
        writer.execute("UPDATE ZSFNOTE SET ZTRASHED = 0")
        writer.commit()
        third = source.revision()
    assert len({first, second, third}) == 3


def test_revision_of_a_missing_database(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no Bear database"):
        BearSource("bear", tmp_path / "none").revision()


# --- scanning by path -------------------------------------------------------------------------


def test_other_paths_are_no_business_of_bear(database: Path, tmp_path: Path) -> None:
    assert scan(database, {"bear:A": "x"}, [tmp_path / "note.md"]) == []
    assert scan(tmp_path / "missing", {}, [tmp_path / "note.md"]) == []
    assert scan(database, {}, []) == []


@pytest.mark.parametrize("name", ["database.sqlite", "database.sqlite-wal", "."])
def test_path_of_the_database_scans_it_and_tells_what_is_gone(database: Path, name: str) -> None:
    found = scan(database, {"bear:B": "x"}, [database.parent / name])
    assert [type(item) for item in found] == [Note, Gone]
    assert found[1] == Gone("bear:B")


# --- tags -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("note_entity", "tag_entity"), [(5, 10), (5, 13), (6, 13), (7, 14)])
@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_tags_are_found_under_every_numbering(
    tmp_path: Path, note_entity: int, tag_entity: int, journal_mode: str
) -> None:
    path = build(
        tmp_path / "db",
        bear_note("A", "plain #a/b and #two words#"),
        bear_note("B", "none"),
        note_entity=note_entity,
        tag_entity=tag_entity,
        journal_mode=journal_mode,
    )
    source = BearSource("bear", path)
    tags = {key: note.tags for key, note in notes_of(source).items()}
    assert tags == {"bear:A": ("a", "a/b", "two words"), "bear:B": ()}
    assert source.warnings == ()


# The text says one thing and the tables another: which of them was read shows.
LAGGING = "UPDATE ZSFNOTETAG SET ZTITLE = 'table/' || Z_PK"
FROM_TABLES = ("table", "table/1", "table/2")
FROM_TEXT = ("work", "work/project")


@pytest.mark.parametrize(
    ("statements", "tags"),
    [
        ([], FROM_TABLES),
        (["DROP TABLE Z_PRIMARYKEY"], FROM_TABLES),
        (["DELETE FROM Z_PRIMARYKEY"], FROM_TABLES),
        (["UPDATE Z_PRIMARYKEY SET Z_ENT = 99 WHERE Z_NAME = 'SFNote'"], FROM_TABLES),
        (["ALTER TABLE Z_5TAGS RENAME TO Z_13NOTES"], FROM_TABLES),
        # A table that an older version left behind is not the one that the numbers name.
        (["CREATE TABLE Z_4TAGS (Z_4NOTES INTEGER, Z_9TAGS INTEGER)"], FROM_TABLES),
        (
            [
                "CREATE TABLE Z_4TAGS (Z_4NOTES INTEGER, Z_9TAGS INTEGER)",
                "DELETE FROM Z_PRIMARYKEY",
            ],
            FROM_TEXT,
        ),
        (["DROP TABLE Z_5TAGS"], FROM_TEXT),
        (["ALTER TABLE Z_5TAGS RENAME COLUMN Z_13TAGS TO Z_13LABELS"], FROM_TEXT),
        (["ALTER TABLE Z_5TAGS RENAME COLUMN Z_5NOTES TO Z_NOTES"], FROM_TEXT),
        (["DROP TABLE ZSFNOTETAG"], FROM_TEXT),
        (["ALTER TABLE ZSFNOTETAG RENAME COLUMN ZTITLE TO ZNAME"], FROM_TEXT),
    ],
)
def test_tags_come_from_the_tables_or_else_from_the_text(
    database: Path, statements: list[str], tags: tuple[str, ...]
) -> None:
    change(database, LAGGING, *statements)
    source = BearSource("bear", database)
    assert notes_of(source)["bear:A"].tags == tags
    assert bool(source.warnings) == (tags == FROM_TEXT)
    assert all("tags come from the text" in warning for warning in source.warnings)


def test_missing_join_table_excludes_by_the_text(tmp_path: Path) -> None:
    path = build(tmp_path / "db", join_table=False)
    assert only(path).tags == FROM_TEXT
    assert scan(path, exclude_tags=["work"]) == [Skipped("bear:A", "excluded by a tag", keep=False)]


def test_tag_without_a_title_is_none(database: Path) -> None:
    change(database, "UPDATE ZSFNOTETAG SET ZTITLE = NULL")
    assert only(database).tags == ()


def test_warning_goes_when_the_tags_are_back(database: Path) -> None:
    change(database, "ALTER TABLE Z_5TAGS RENAME TO hidden")
    source = BearSource("bear", database)
    assert not source.warnings
    list(source.scan({}))
    assert len(source.warnings) == 1
    change(database, "ALTER TABLE hidden RENAME TO Z_5TAGS")
    list(source.scan({}))
    assert not source.warnings


@pytest.mark.parametrize(
    "column",
    [
        "ZENCRYPTED",
        "ZPERMANENTLYDELETED",
        "ZLOCKED",
        "ZARCHIVED",
        "ZTRASHED",
        "ZTITLE",
        "ZCREATIONDATE",
        "ZMODIFICATIONDATE",
    ],
)
def test_column_that_older_versions_lack_is_not_missed(database: Path, column: str) -> None:
    change(database, f"ALTER TABLE ZSFNOTE DROP COLUMN {column}")
    assert only(database).title == "Locks"


# --- the database is somebody else's ----------------------------------------------------------


def digests(path: Path) -> dict[str, str]:
    """Return the sha256 of the database and its log, read where no lock of ours can be lost."""
    script = (
        "import hashlib,sys,pathlib\n"
        "for p in map(pathlib.Path, sys.argv[1:]):\n"
        "    print(hashlib.sha256(p.read_bytes()).hexdigest() if p.exists() else '')"
    )
    names = [str(path), f"{path}-wal"]
    done = subprocess.run(
        [sys.executable, "-c", script, *names], check=True, capture_output=True, text=True
    )
    return dict(zip(names, done.stdout.split("\n"), strict=False))


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_bytes_are_the_same_after_a_scan(tmp_path: Path, journal_mode: str) -> None:
    path = build(tmp_path / "db", journal_mode=journal_mode)
    before, written = digests(path), path.stat().st_mtime_ns
    only(path)
    after = digests(path)
    assert after[str(path)] == before[str(path)]
    assert path.stat().st_mtime_ns == written
    # A reader may leave an empty log, never a byte in one.
    assert after[f"{path}-wal"] in ("", sha256(b"").hexdigest())


def test_log_is_read_and_left_alone(database: Path) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("UPDATE ZSFNOTE SET ZTEXT = 'only in the log'")
        writer.commit()
        before = digests(database)
        assert b"only in the log" not in Path(database).read_bytes()
        assert only(database).text == "only in the log"
        assert digests(database) == before


def test_uncommitted_change_is_not_seen(database: Path) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("UPDATE ZSFNOTE SET ZTEXT = 'not yet'")
        assert only(database).text.startswith("# Locks")
        writer.rollback()


@pytest.mark.parametrize("mode", ["ro", "rw"])
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO ZSFNOTETAG (Z_PK) VALUES (99)",
        "UPDATE ZSFNOTE SET ZTRASHED = 1",
        "DELETE FROM ZSFNOTE",
        "DROP TABLE ZSFNOTE",
    ],
)
def test_nothing_can_be_written_through_the_connection(
    database: Path, mode: str, statement: str
) -> None:
    with (
        closing(bear_database.connect(database, 0, mode)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly database"),
    ):
        connection.execute(statement)


def test_notes_and_tags_are_of_one_moment(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bear_database.read_tags

    def read_tags_before_a_write(connection: sqlite3.Connection) -> Any:
        tags = plain(connection)
        change(database, "UPDATE ZSFNOTE SET ZTEXT = '#later'", "DELETE FROM Z_5TAGS")
        return tags

    with monkeypatch.context() as patch:
        patch.setattr(bear_database, "read_tags", read_tags_before_a_write)
        note = only(database)
    assert (note.text, note.tags) == (TEXT, FROM_TEXT)
    assert only(database).text == "#later"


def test_database_is_free_before_the_first_note_is_yielded(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note("A"), bear_note("B"), journal_mode="delete")
    notes = BearSource("bear", path).scan({})
    next(notes)
    with closing(sqlite3.connect(path, timeout=0)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        writer.rollback()
    assert next(notes).key == "bear:B"


@contextmanager
def locked_for(path: Path, seconds: float) -> Iterator[None]:
    """Let another process hold the database for ``seconds``, or until the block is left."""
    script = (
        "import sqlite3,sys,time\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE')\n"
        "print('held', flush=True)\n"
        "time.sleep(float(sys.argv[2]))\n"
        "c.execute('ROLLBACK')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(seconds)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.kill()


def test_short_lock_is_waited_for(tmp_path: Path) -> None:
    path = build(tmp_path / "db", journal_mode="delete")
    with locked_for(path, 1.0):
        assert only(path).key == "bear:A"


def test_long_lock_is_an_error_that_leaves_the_index_alone(tmp_path: Path) -> None:
    path = build(tmp_path / "db", journal_mode="delete")
    with locked_for(path, 60.0):
        error = failure(path, wait_seconds=0.2)
    assert "still locked after 0.2 s" in error.message
    assert error.hint == "prompt-rag sync"


def test_writer_does_not_hold_up_a_reader_in_wal_mode(database: Path) -> None:
    with locked_for(database, 60.0):
        assert only(database, wait_seconds=0).key == "bear:A"


# --- where SQLite may not open it -------------------------------------------------------------


@contextmanager
def as_stranger(folder: Path) -> Iterator[None]:
    """Run the block where ``folder`` cannot be written, as another user where we are root."""
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        assert not os.access(folder, os.W_OK, effective_ids=True)
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(mode)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_folder_that_cannot_be_written(open_folder: Path, journal_mode: str) -> None:
    path = build(open_folder / "database.sqlite", journal_mode=journal_mode)
    with as_stranger(open_folder):
        assert only(path).key == "bear:A"
        assert list(open_folder.iterdir()) == [path]


def leave_behind(path: Path, script: str) -> None:
    """Write to the database in a process that dies without closing it."""
    prelude = "import os,sqlite3,sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    subprocess.run([sys.executable, "-c", f"{prelude}{script}\nos._exit(0)", str(path)], check=True)


# With next to no cache a change reaches the file before it is committed.
HALF_DONE = (
    "c.execute('PRAGMA cache_size = 1')\n"
    "c.execute('BEGIN')\n"
    "c.execute('UPDATE ZSFNOTE SET ZTEXT = \"half done\"')\n"
    "c.execute('INSERT INTO ZSFNOTEFILE (ZENCRYPTEDDATA) VALUES (zeroblob(1000000))')"
)


def test_log_in_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    path = build(open_folder / "database.sqlite")
    leave_behind(path, "c.execute('UPDATE ZSFNOTE SET ZTEXT = \"only in the log\"')")
    (open_folder / "database.sqlite-shm").unlink()
    before = digests(path)
    with as_stranger(open_folder):
        assert only(path).text == "only in the log"
    assert digests(path) == before


def test_half_done_write_of_a_crashed_process_is_undone_in_the_copy_only(open_folder: Path) -> None:
    path = build(open_folder / "database.sqlite", journal_mode="delete")
    text = only(path).text
    leave_behind(path, HALF_DONE)
    assert (open_folder / "database.sqlite-journal").exists()
    assert b"half done" in path.read_bytes()
    before = digests(path)
    with as_stranger(open_folder):
        assert only(path).text == text
    assert digests(path) == before
    assert (open_folder / "database.sqlite-journal").exists()


def test_what_a_crashed_process_left_is_read_and_left_to_bear(tmp_path: Path) -> None:
    log = build(tmp_path / "log.sqlite")
    leave_behind(log, "c.execute('UPDATE ZSFNOTE SET ZTEXT = \"only in the log\"')")
    journal = build(tmp_path / "journal.sqlite", journal_mode="delete")
    text = only(journal).text
    leave_behind(journal, HALF_DONE)
    before = digests(log), digests(journal), digests(Path(f"{journal}-journal"))
    assert only(log).text == "only in the log"
    assert only(journal).text == text
    assert (digests(log), digests(journal), digests(Path(f"{journal}-journal"))) == before


def test_copies_are_removed(
    open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(open_folder / "database.sqlite")
    private = open_folder / "tmp"
    private.mkdir()
    private.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    with as_stranger(open_folder):
        assert only(path).key == "bear:A"
        assert not list(private.iterdir())


def test_database_that_keeps_changing_is_not_copied_half(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(open_folder / "database.sqlite")
    stamps = iter(range(100))
    monkeypatch.setattr(bear_database, "file_stamp", lambda _: next(stamps))
    with as_stranger(open_folder):
        assert "changed while it was copied" in failure(path).message


def test_second_copy_is_whole_where_the_first_was_not(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(open_folder / "database.sqlite")
    stamps = iter([1, 2, 3, 3])
    monkeypatch.setattr(bear_database, "file_stamp", lambda _: next(stamps))
    with as_stranger(open_folder):
        assert only(path).key == "bear:A"


# --- what cannot be read at all ---------------------------------------------------------------


def test_missing_database(tmp_path: Path) -> None:
    error = failure(tmp_path / "none.sqlite")
    assert error.message == f"there is no Bear database at {tmp_path / 'none.sqlite'}"
    assert error.hint == "prompt-rag source add bear DB"
    assert not list(tmp_path.iterdir()), "looking for a database does not make one"


def test_missing_database_below_a_file(database: Path) -> None:
    assert "no Bear database" in failure(database / "deeper").message


def test_denied_database_is_told_apart_from_a_missing_one(open_folder: Path) -> None:
    path = build(open_folder / "database.sqlite")
    path.chmod(0)
    with as_stranger(open_folder):
        error = failure(path)
    assert "not allowed to read" in error.message
    assert "Full Disk Access" in error.hint


def test_denied_folder_is_told_apart_from_a_missing_database(open_folder: Path) -> None:
    inner = open_folder / "container"
    inner.mkdir()
    path = build(inner / "database.sqlite")
    inner.chmod(0)
    with as_stranger(open_folder):
        error = failure(path)
        with pytest.raises(SourceError, match="not allowed to read"):
            BearSource("bear", path).revision()
    inner.chmod(0o755)
    assert "not allowed to read" in error.message
    assert "Full Disk Access" in error.hint


def test_refusal_by_the_driver_is_told_as_denied(database: Path) -> None:
    def refuse(connection: sqlite3.Connection) -> None:
        connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)

    error = failure_while_querying(database, refuse)
    assert "not allowed to read" in error.message


def test_interrupted_query_is_told_as_it_is(database: Path) -> None:
    def interrupt(connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(lambda: 1, 1)

    error = failure_while_querying(database, interrupt)
    assert error.message.endswith("interrupted")
    assert error.hint == "prompt-rag doctor"


def failure_while_querying(
    path: Path, prepare: Callable[[sqlite3.Connection], None]
) -> SourceError:
    """Return the error of a scan whose connection was spoilt by ``prepare`` before the queries."""
    plain = bear_database.connect

    def spoilt(*arguments: Any) -> sqlite3.Connection:
        connection = plain(*arguments)
        prepare(connection)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bear_database, "connect", spoilt)
        return failure(path)


def test_folder_is_no_database(tmp_path: Path) -> None:
    assert "Is a directory" in failure(tmp_path).message


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"x" * 900]
)
def test_other_files_are_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    error = failure(path)
    assert "not a database, or is damaged" in error.message
    assert path.read_bytes() == content


def test_other_databases_are_not_bear(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    other = tmp_path / "other"
    change(other, "CREATE TABLE ZSFNOTE (Z_PK INTEGER PRIMARY KEY, ZBODY VARCHAR)")
    for path in (empty, other):
        error = failure(path)
        assert error.message == f"{path} is not a Bear database: it has no table of notes"
        assert error.hint == "prompt-rag source add bear DB"


@pytest.mark.parametrize(
    "name",
    [
        "Max O'Neil/Group Containers/database.sqlite",
        "a#b/c?mode=rwc.sqlite",
        "100%/%41.sqlite",
        "a&b=c;d.sqlite",
        "Notizbücher 表 🏠.sqlite",
        "line\nbreak.sqlite",
    ],
)
@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_odd_paths(tmp_path: Path, name: str, journal_mode: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    build(path, journal_mode=journal_mode)
    assert only(path).key == "bear:A"
    assert failure(path.with_name(f"missing {path.name}")).message.startswith("there is no")


# --- where Bear keeps it ----------------------------------------------------------------------


def set_times(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """The places below a home of our own, with the folders made, today's first."""
    found = candidates(tmp_path)
    for place in found:
        place.parent.mkdir(parents=True)
    return found


def test_todays_place_comes_first_where_there_is_none(places: list[Path], tmp_path: Path) -> None:
    group = "Library/Group Containers/9K33E3U3T4.net.shinyfrog.bear/Application Data"
    assert places[0] == tmp_path / group / "database.sqlite"
    assert candidates(tmp_path) == places


def test_older_place_is_found(places: list[Path], tmp_path: Path) -> None:
    build(places[1])
    assert candidates(tmp_path) == [places[1], places[0], places[2]]


@pytest.mark.parametrize("newest", [0, 1, 2])
def test_newest_database_wins(places: list[Path], tmp_path: Path, newest: int) -> None:
    for number, place in enumerate(places):
        build(place)
        set_times(place, 2000 if number == newest else 1000)
    assert candidates(tmp_path)[0] == places[newest]


def test_log_counts_for_the_age(places: list[Path], tmp_path: Path) -> None:
    for place, written in ((places[0], 1000), (places[1], 2000)):
        build(place)
        set_times(place, written)
    log = Path(f"{places[0]}-wal")
    log.write_bytes(b"log")
    set_times(log, 3000)
    assert candidates(tmp_path)[0] == places[0]
    log.write_bytes(b"")
    assert candidates(tmp_path)[0] == places[1]


def test_source_without_a_path_reads_the_newest(
    places: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    source = BearSource("bear")
    with pytest.raises(SourceError, match="no Bear database where Bear keeps one"):
        list(source.scan({}))
    build(places[1])
    assert source.database == places[1]
    assert [item.key for item in source.scan({})] == ["bear:A"]


def test_denied_place_comes_before_a_missing_one(open_folder: Path) -> None:
    places = candidates(open_folder)
    places[2].parent.mkdir(parents=True)
    places[2].parent.chmod(0)
    with as_stranger(open_folder):
        assert candidates(open_folder)[0] == places[2]
    places[2].parent.chmod(0o755)


# --- the fixture itself -----------------------------------------------------------------------

HEADER = "---\nuid: U1\ncreated: 2025-03-02T09:15:00Z\nmodified: 2026-01-20T17:40:00Z\n"


def test_fixture_reads_note_files(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text(f"{HEADER}---\n# Head #x\n\nBody.\n---\nMore.\n")
    (tmp_path / "a.md").write_text(
        HEADER.replace("U1", "U2") + "title: Given\nstate: archived\n---\nBody"
    )
    (tmp_path / "other.txt").write_text("no note")
    assert fixture.read_notes(tmp_path) == [
        fixture.BearNote("U2", "Given", "Body", CREATED, MODIFIED, "archived"),
        fixture.BearNote("U1", "Head #x", "# Head #x\n\nBody.\n---\nMore.\n", CREATED, MODIFIED),
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("# No header", "no header"),
        (HEADER, "no header"),
        (HEADER + "colour: red\n---\n", "colour"),
        (HEADER + "nothing\n---\n", "nothing"),
        (HEADER + "state: odd\n---\n", "odd"),
        (HEADER.replace("uid: U1\n", "") + "---\n", "lacks uid"),
        (HEADER.replace("15:00Z", "15:00") + "---\n", "no time zone"),
        (HEADER.replace("2025-", "last-") + "---\n", "last-"),
    ],
)
def test_fixture_refuses_wrong_headers(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "a.md").write_text(content)
    with pytest.raises(ValueError, match=complaint) as caught:
        fixture.read_notes(tmp_path)
    assert "a.md" in str(caught.value)


def test_fixture_refuses_one_identifier_twice(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(HEADER + "---\nText")
    with pytest.raises(ValueError, match="has the uid of"):
        fixture.read_notes(tmp_path)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("#work/project/x", ["work", "work/project", "work/project/x"]),
        ("a #multi word# b #one, #two.", ["multi word", "one", "two"]),
        ("#work and #home", ["home", "work"]),
        ("# Heading\n## Other", []),
        ("a#b `#code` \\#escaped [x](#anchor) #12", []),
        ("```sh\n#!/bin/sh\n#comment\n```\n#real", ["real"]),
    ],
)
def test_fixture_reads_tags_as_bear_does(text: str, tags: list[str]) -> None:
    assert fixture.inline_tags(text) == tags


def test_fixture_never_overwrites(database: Path) -> None:
    before = database.read_bytes()
    with pytest.raises(FileExistsError):
        build(database)
    assert database.read_bytes() == before


def test_fixture_knows_its_attachments(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note(text="![](a%20b.png) [x](c.pdf) [y](http://d.e)"))
    with closing(sqlite3.connect(path)) as connection:
        files = connection.execute("SELECT ZFILENAME, ZNOTE FROM ZSFNOTEFILE").fetchall()
        flags = connection.execute("SELECT ZHASFILES, ZHASIMAGES FROM ZSFNOTE").fetchone()
    assert files == [("a b.png", 1), ("c.pdf", 1)]
    assert flags == (1, 1)


def test_fixture_hides_the_text_of_an_encrypted_note(tmp_path: Path) -> None:
    path = build(tmp_path / "db", bear_note(text="a secret #tag", state="encrypted"))
    assert b"a secret" not in path.read_bytes()


def test_fixture_builds_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text(f"{HEADER}---\n# Title\n\n#tag\n")
    output = tmp_path / "db"
    fixture.main([str(output), "--notes", str(notes), "--note-entity", "7", "--tag-entity", "14"])
    assert capsys.readouterr().out == f"{output}\n"
    note = only(output)
    assert (note.key, note.title, note.tags) == ("bear:U1", "Title", ("tag",))
