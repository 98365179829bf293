"""A folder of Markdown files: what is read, what is left out and why, and what is never touched."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from prompt_rag.domain import ConfigError, Gone, Note, Scanned, Skipped, SourceError, Unchanged
from prompt_rag.sources import files, frontmatter, markdown, tree
from prompt_rag.sources.globs import Globs
from prompt_rag.sources.markdown import MarkdownSource

LONG_AGO = 1_600_000_000


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


def write(path: Path, text: str | bytes = "# Note\n\ntext\n", *, age: int = LONG_AGO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (age, age))
    return path


def scan(
    vault: Path,
    known: dict[str, str] | None = None,
    paths: list[Path] | None = None,
    **settings: tuple[str, ...],
) -> list[Scanned]:
    return list(MarkdownSource("notes", vault, **settings).scan(known or {}, paths))


def keys(found: list[Scanned]) -> list[str]:
    return [each.key for each in found]


def one(vault: Path, text: str | bytes, **settings: tuple[str, ...]) -> Note:
    write(vault / "one.md", text)
    (found,) = scan(vault, **settings)
    assert isinstance(found, Note)
    return found


def why(vault: Path, text: str | bytes, **settings: tuple[str, ...]) -> tuple[str, bool]:
    write(vault / "one.md", text)
    (found,) = scan(vault, **settings)
    assert isinstance(found, Skipped)
    return found.why, found.keep


# --- which files ------------------------------------------------------------


def test_files_of_a_folder_come_before_its_subfolders_by_name(vault: Path) -> None:
    for name in ("b.md", "a.markdown", "z.mkd", "a/y.mdown", "a/b/x.MD", "c/d.md", "no.txt", "md"):
        write(vault / name)
    assert keys(scan(vault)) == ["a.markdown", "b.md", "z.mkd", "a/y.mdown", "a/b/x.MD", "c/d.md"]


def test_hidden_and_foreign_folders_are_passed_over(vault: Path) -> None:
    for name in (".git/a.md", ".trash/a.md", ".obsidian/a.md", "node_modules/a.md", ".a.md"):
        write(vault / name)
    write(vault / "x/node_modules/b.md")
    write(vault / "x/seen.md")
    assert keys(scan(vault)) == ["x/seen.md"]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.draft.md", "a/b.draft.md", True),
        ("Archive", "x/Archive/y.md", True),
        ("Archive/", "x/Archive/y.md", True),
        ("/Archive", "Archive/y.md", True),
        ("/Archive", "x/Archive/y.md", False),
        ("Archive/**", "Archive/x/y.md", True),
        ("Archive/**", "x/Archive/y.md", False),
        ("**/Archive/**", "x/Archive/y.md", True),
        ("**/Archive/**", "Archive/y.md", True),
        ("**/*.md", "a.md", True),
        ("a/**/b.md", "a/b.md", True),
        ("a/**/b.md", "a/x/y/b.md", True),
        ("a/**/**/b.md", "a/x/b.md", True),
        ("a/*/b.md", "a/x/y/b.md", False),
        ("a/*/b.md", "a/x/b.md", True),
        ("a*", "xa.md", False),
        ("**", "x/y.md", True),
        ("n[1-3]?.md", "n2x.md", True),
        ("n[!1-3].md", "n2.md", False),
        ("n[!1-3].md", "n4.md", True),
        ("n[]].md", "n].md", True),
        ("n[a].md", "n/.md", False),
        ("n[.md", "n[.md", True),
        (r"a\*.md", "a*.md", True),
        (r"a\*.md", "ab.md", False),
        ("a?b", "a/b", False),
        ("Ж.md", "ж.md", False),
        ("u\u0308.md", "ü.md", True),
        ("(a+).md", "(a+).md", True),
        ("b.md", "ab.md", False),
        ("b", "b.md", False),
    ],
)
def test_globs(pattern: str, path: str, matches: bool) -> None:
    assert Globs([pattern]).match(path) is matches


@pytest.mark.parametrize("pattern", ["", "/", " ", "[z-a].md"])
def test_a_bad_pattern_is_a_setting_to_mend(vault: Path, pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"notes.*not a pattern") as error:
        MarkdownSource("notes", vault, exclude=[pattern])
    assert error.value.hint


def test_include_and_exclude(vault: Path) -> None:
    for name in ("a.md", "work/b.md", "work/old/c.md", "home/d.md"):
        write(vault / name)
    assert keys(scan(vault, include=("work",))) == ["work/b.md", "work/old/c.md"]
    assert keys(scan(vault, exclude=("work/old", "a.md"))) == ["home/d.md", "work/b.md"]
    assert keys(scan(vault, include=("work",), exclude=("old",))) == ["work/b.md"]


def test_odd_names_are_keys(vault: Path) -> None:
    names = ["a b.md", "a'b$%.md", "a\nb.md", "a-b.md", "a_b.md"]
    for name in names:
        write(vault / name)
    assert sorted(keys(scan(vault))) == sorted(names)


def test_keys_are_nfc_and_colliding_names_keep_their_spelling(vault: Path) -> None:
    composed, decomposed = "é", unicodedata.normalize("NFD", "é")
    write(vault / f"{decomposed}.md", "# alone")
    assert keys(scan(vault)) == [f"{composed}.md"]
    write(vault / f"{composed}.md", "# other")
    found = scan(vault)
    if len(found) == 1:
        pytest.skip("this file system does not tell the two names apart")
    assert keys(found) == [f"{decomposed}.md", f"{composed}.md"]
    assert keys(scan(vault)) == keys(found)


def test_names_that_differ_by_case_are_two_notes(vault: Path) -> None:
    write(vault / "README.md", "# one")
    write(vault / "readme.md", "# two")
    if len(list(vault.iterdir())) == 1:
        pytest.skip("this file system does not tell the two names apart")
    assert keys(scan(vault)) == ["README.md", "readme.md"]


def test_a_name_that_is_not_utf8_is_skipped(vault: Path) -> None:
    try:
        write(Path(os.fsdecode(os.fsencode(vault) + b"/\xff.md")))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (found,) = scan(vault)
    assert found == Skipped("\ufffd.md", "its name is not UTF-8", keep=False)


# --- links ------------------------------------------------------------


def test_links_never_lead_out_nor_round_in_circles(vault: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret.md")
    write(tmp_path / "vault2" / "x.md")
    write(vault / "real.md")
    write(vault / ".hidden/h.md")
    write(vault / "private/p.md")
    for name, target in {
        "self": ".",
        "up": "../..",
        "out.md": "../secret.md",
        "beside.md": "../vault2/x.md",
        "passwd.md": "/etc/hosts",
        "dangling.md": "nowhere.md",
        "loop.md": "loop.md",
        "hidden.md": ".hidden/h.md",
        "private.md": "private/p.md",
        "folder.md": "private",
        "inside.md": "real.md",
    }.items():
        (vault / name).symlink_to(target)
    found = {each.key: each for each in scan(vault, exclude=("private/",))}
    reasons = {key: each.why for key, each in found.items() if isinstance(each, Skipped)}
    out, left_out = "a link out of the folder", "a link to what is left out"
    assert reasons == {
        "out.md": out,
        "beside.md": out,
        "passwd.md": out,
        "dangling.md": "a link that leads to no file",
        "loop.md": "a link that leads to no file",
        "hidden.md": left_out,
        "private.md": left_out,
        "folder.md": left_out,
    }
    assert not any(each.keep for each in found.values() if isinstance(each, Skipped))
    assert sorted(set(found) - set(reasons)) == ["inside.md", "real.md"]


def test_the_folder_itself_may_be_a_link(vault: Path, tmp_path: Path) -> None:
    write(vault / "a.md")
    (vault / "b.md").symlink_to("a.md")
    (tmp_path / "link").symlink_to(vault)
    source = MarkdownSource("notes", tmp_path / "link")
    assert keys(list(source.scan({}))) == ["a.md", "b.md"]
    # A path is given by either name.
    assert keys(list(source.scan({}, [vault / "a.md"]))) == ["a.md"]
    assert keys(list(source.scan({}, [tmp_path / "link" / "b.md"]))) == ["b.md"]


# --- what changed ------------------------------------------------------------


def test_an_unchanged_file_is_not_read(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(vault / "a.md")
    (note,) = scan(vault)
    assert isinstance(note, Note)
    assert note.fingerprint

    def refuse(_path: str) -> bytes:
        raise AssertionError("read")

    with monkeypatch.context() as patch:
        patch.setattr(files, "read_bytes", refuse)
        assert scan(vault, {"a.md": note.fingerprint}) == [Unchanged("a.md")]
    write(path, "# Note\n\nTEXT\n", age=LONG_AGO + 1)  # as long as before
    (changed,) = scan(vault, {"a.md": note.fingerprint})
    assert isinstance(changed, Note)
    assert "TEXT" in changed.text
    # What leaves notes out belongs to the fingerprint.
    write(path)
    assert isinstance(scan(vault, {"a.md": note.fingerprint}, exclude_tags=("x",))[0], Note)


def test_a_file_changed_just_now_has_no_fingerprint(vault: Path) -> None:
    """A second edit within the clock's tick that keeps the size would not show otherwise."""
    for age in (time.time(), time.time() + 3600):
        path = write(vault / "a.md")
        os.utime(path, (age, age))
        for known in ({}, {"a.md": ""}):
            (note,) = scan(vault, known)
            assert isinstance(note, Note)
            assert note.fingerprint == ""


def test_paths_limit_the_scan_and_tell_what_is_gone(vault: Path, tmp_path: Path) -> None:
    for name in ("a.md", "b/c.md", "b/d.md", "bb/e.md"):
        write(vault / name)
    known = dict.fromkeys(("a.md", "b/c.md", "b/gone.md", "bb/e.md", "old/x/y.md"), "old")
    assert keys(scan(vault, known, [vault / "b"])) == ["b/c.md", "b/d.md", "b/gone.md"]
    assert scan(vault, known, [vault / "b"])[-1] == Gone("b/gone.md")
    assert scan(vault, known, [vault / "old"]) == [Gone("old/x/y.md")]
    assert scan(vault, known, [vault / "b" / "gone.md"]) == [Gone("b/gone.md")]
    assert keys(scan(vault, known, [vault / "b" / "c.md", vault / "a.md"])) == ["a.md", "b/c.md"]
    assert scan(vault, known, [tmp_path / "elsewhere.md", Path("/")]) == []
    assert scan(vault, known, []) == []
    assert len(scan(vault, known, [vault])) == 6
    assert scan(vault, known, [vault / "b" / ".." / "old"]) == [Gone("old/x/y.md")]


def test_a_path_is_found_in_any_normal_form(vault: Path) -> None:
    write(vault / "é" / "ü.md")
    path = vault / unicodedata.normalize("NFD", "é/ü.md")
    assert keys(scan(vault, {}, [path])) == ["é/ü.md"]
    assert scan(vault, {"é/weg.md": ""}, [vault / unicodedata.normalize("NFD", "é")])[1:] == [
        Gone("é/weg.md")
    ]


def test_a_path_that_is_now_excluded_is_gone(vault: Path) -> None:
    write(vault / "a.md")
    assert scan(vault, {"a.md": "x"}, [vault / "a.md"], exclude=("a.md",)) == [Gone("a.md")]
    assert scan(vault, {"a.md": "x"}, [vault / "a.md"], include=("b",)) == [Gone("a.md")]


# --- the folder as a whole ------------------------------------------------------------


def test_a_missing_folder_is_an_error_at_once(vault: Path, tmp_path: Path) -> None:
    source = MarkdownSource("notes", tmp_path / "missing")
    assert source.name == "notes"
    with pytest.raises(SourceError, match=r"notes.*missing does not exist") as error:
        source.scan({})
    assert error.value.hint == "prompt-rag source remove notes"
    file = write(vault / "a.md")
    with pytest.raises(SourceError, match="is not a folder"):
        MarkdownSource("notes", file).scan({}, [file])


def test_an_empty_folder_is_fine(vault: Path) -> None:
    assert scan(vault, {"a.md": "x"}) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(vault: Path) -> None:
    write(vault / "a.md").chmod(0)
    write(vault / "b" / "c.md")
    (vault / "b").chmod(0)
    try:
        _no_permission_checks(vault)
    finally:
        (vault / "b").chmod(0o700)


def _no_permission_checks(vault: Path) -> None:
    reason = "cannot be read: permission denied"
    assert scan(vault, {"b/c.md": "x", "bb.md": "y"}) == [
        Skipped("a.md", reason, keep=True),
        Skipped("b/", reason, keep=True),
        Skipped("b/c.md", reason, keep=True),
    ]


def failing(match: str, error: Exception, real: Callable[..., object]) -> Callable[..., object]:
    """Return ``real`` that raises ``error`` for paths that end in ``match``."""

    def call(path: str, *args: object) -> object:
        if str(path).endswith(match):
            raise error
        return real(path, *args)

    return call


def test_a_folder_that_cannot_be_listed_keeps_what_is_known(
    vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(vault / "a.md")
    write(vault / "b" / "c.md")
    known = {"b/c.md": "x", "bb/d.md": "y"}
    refused = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(tree, "_listed", failing("/b", refused, tree._listed))
    reason = "cannot be read: permission denied"
    assert scan(vault, known)[1:] == [
        Skipped("b/", reason, keep=True),
        Skipped("b/c.md", reason, keep=True),
    ]
    assert scan(vault, known, [vault / "b" / "c.md"]) == [
        Skipped("b/", reason, keep=True),
        Skipped("b/c.md", reason, keep=True),
    ]
    monkeypatch.setattr(tree, "_listed", failing("/vault", refused, tree._listed))
    assert keys(scan(vault, known)) == ["/", "b/c.md", "bb/d.md"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing("/vault", refused, os.scandir))
        with pytest.raises(SourceError, match="permission denied") as error:
            scan(vault)
        assert error.value.hint == "prompt-rag doctor"


def test_what_vanishes_during_the_scan_is_not_there(
    vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(vault / "a.md")
    write(vault / "b" / "c.md")
    gone = FileNotFoundError(errno.ENOENT, "No such file")
    monkeypatch.setattr(files, "read_bytes", failing("a.md", gone, files.read_bytes))
    monkeypatch.setattr(tree, "_listed", failing("/b", gone, tree._listed))
    assert scan(vault, {"a.md": "x"}) == []
    assert scan(vault, {"a.md": "x"}, [vault / "a.md"]) == [Gone("a.md")]


# --- one file ------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\xff", "binary"),
        (b"text\0text", "binary"),
        (b"caf\xe9", "not UTF-8"),
        ("x".encode("utf-32"), "binary"),
        (b"\xff\xfea", "not UTF-8"),
        (b"x" * (files.MAX_BYTES + 1), "larger than 2 MB"),
    ],
)
def test_what_is_no_text_is_no_note(vault: Path, data: bytes, reason: str) -> None:
    assert why(vault, data) == (reason, False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(vault: Path, encoding: str) -> None:
    note = one(vault, "---\r\ntags: x\r\n---\r\n# Tïtel\r\n\r\ntext 表\r".encode(encoding))
    assert (note.title, note.tags, note.blocks[0].text) == ("Tïtel", ("x",), "text 表")


def test_a_file_that_grows_while_it_is_read_is_still_capped(vault: Path) -> None:
    path = write(vault / "a.md", b"x" * (files.MAX_BYTES + 1))
    with pytest.raises(files.LeftOut, match="larger"):
        files.read_bytes(str(path))


def test_pipes_sockets_and_devices_are_never_opened(tmp_path: Path) -> None:
    # A socket's path must be short.
    os.mkfifo(tmp_path / "fifo.md")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)
        try:
            listener.bind("socket.md")
        finally:
            os.chdir(here)
        found = scan(tmp_path)
    assert found == [
        Skipped("fifo.md", "not a regular file", keep=False),
        Skipped("socket.md", "not a regular file", keep=False),
    ]
    with pytest.raises(files.LeftOut, match="regular"):  # even if it takes a file's place
        files.read_bytes(str(tmp_path / "fifo.md"))


def test_placeholders_are_kept_and_not_read(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(vault / "here.md")
    write(vault / "cloud.md")
    write(vault / "far" / "x.md")
    write(vault / ".stub.md.icloud", b"plist")
    write(vault / ".here.md.icloud", b"plist")  # left behind after the download
    write(vault / ".picture.png.icloud", b"plist")
    dataless = {(vault / name).stat().st_ino for name in ("cloud.md", "far")}
    monkeypatch.setattr(files, "is_placeholder", lambda status: status.st_ino in dataless)
    found = [each for each in scan(vault, {"far/x.md": "x"}) if not isinstance(each, Note)]
    reason = "not downloaded from iCloud"
    assert found == [
        Skipped("stub.md", reason, keep=True),
        Skipped("cloud.md", reason, keep=True),
        Skipped("far/", reason, keep=True),
        Skipped("far/x.md", reason, keep=True),
    ]
    assert scan(vault, {"stub.md": "x"}, [vault / "stub.md"]) == [found[0]]


def test_the_flag_of_a_placeholder() -> None:
    class Status:
        st_flags = 0x40000020

    assert files.is_placeholder(Status())  # type: ignore[arg-type]  # only macOS has the field
    assert not files.is_placeholder(Path("/").stat())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(11, "Resource deadlock avoided"), "not downloaded from iCloud"),
        (OSError(errno.EDEADLK, "Resource deadlock avoided"), "not downloaded from iCloud"),
        (OSError(errno.EIO, "Input/output error"), "cannot be read: input/output error"),
        (OSError("odd"), "cannot be read: odd"),
    ],
)
def test_a_file_that_cannot_be_read_now_is_kept(
    vault: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, reason: str
) -> None:
    monkeypatch.setattr(files, "read_bytes", failing("one.md", error, files.read_bytes))
    assert why(vault, "text") == (reason, True)


def test_a_read_that_hangs_is_left_behind(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcdef":
        write(vault / f"{name}.md")
    release = threading.Event()
    asked: list[str] = []
    real = files.read_bytes

    def hang(path: str) -> bytes:
        asked.append(Path(path).name)
        if not path.endswith(("a.md", "c.md")):
            release.wait()
        return real(path)

    monkeypatch.setattr(files, "read_bytes", hang)
    monkeypatch.setattr(files.Reader.__init__, "__defaults__", (0.05,))
    began = time.monotonic()
    found = scan(vault)
    took = time.monotonic() - began
    release.set()
    assert [type(each) for each in found] == [Note, Skipped, Note, Skipped, Skipped, Skipped]
    assert {each.why for each in found if isinstance(each, Skipped)} == {"reading it took too long"}
    assert all(each.keep for each in found if isinstance(each, Skipped))
    assert asked == ["a.md", "b.md", "c.md", "d.md", "e.md"]  # after three, nothing is asked for
    assert took < 5


def test_a_scan_given_up_leaves_no_thread(vault: Path) -> None:
    for name in "ab":
        write(vault / f"{name}.md")
    before = set(threading.enumerate())
    found = MarkdownSource("notes", vault).scan({})
    next(found)
    (reader,) = set(threading.enumerate()) - before
    found.close()  # type: ignore[attr-defined]  # the iterator is a generator
    reader.join(5)
    assert not reader.is_alive()


# --- what a note says ------------------------------------------------------------


def test_a_whole_note(vault: Path) -> None:
    text = """---
title: "No"
tags: [work, '#deep/er', 2024]
aliases: [Other name, "1.0"]
date: 2024-05-01
updated: 2024-06-02T10:00:00+02:00
---

# No

Text with #inline and #Work.
"""
    note = one(vault, text)
    assert note == Note(
        source="notes",
        key="one.md",
        title="No",
        text="# No\n\nText with #inline and #Work.\n",
        blocks=note.blocks,
        modified_at=datetime(2024, 6, 2, 8, tzinfo=UTC),
        created_at=datetime(2024, 5, 1, tzinfo=UTC),
        tags=("work", "deep/er", "2024", "inline"),
        uri=str(vault / "one.md"),
        aliases=("Other name", "1.0"),
        fingerprint=note.fingerprint,
    )
    assert [block.text for block in note.blocks] == ["Text with #inline and #Work."]


@pytest.mark.parametrize(
    ("text", "title", "left"),
    [
        ("# Heading\n\ntext", "Heading", ["text"]),
        ("intro\n\n# Heading\n\ntext", "Heading", ["intro", "text"]),
        ("## Two\n\n# One", "one", ["Two", "One"]),
        ("text", "one", ["text"]),
        ("", "one", []),
        ("#\n\ntext", "one", ["", "text"]),
        ("---\ntitle: T\n---\n# T\n\ntext", "T", ["text"]),
        ("---\ntitle: T\n---\n# Other\n\ntext", "T", ["Other", "text"]),
        ("---\ntitle: ''\n---\ntext", "one", ["text"]),
        ("---\ntitle: [a]\n---\ntext", "one", ["text"]),
    ],
)
def test_the_title(vault: Path, text: str, title: str, left: list[str]) -> None:
    note = one(vault, text)
    assert (note.title, [block.text for block in note.blocks]) == (title, left)


def test_a_title_has_an_end_and_is_never_empty(vault: Path) -> None:
    assert len(one(vault, f"---\ntitle: {'word ' * 500}\n---\nx").title) <= 300
    (vault / "one.md").unlink()
    write(vault / "  .md", "text")
    assert [each.title for each in scan(vault) if isinstance(each, Note)] == ["  .md"]


@pytest.mark.parametrize(
    "banner",
    [
        "---\n**NAME**\nstreet\n---\n",
        "---\nACME\n---\n",
        "---\n- a\n- b\n---\n",
        "---\ntitle: *Italic*\n---\n",
        "---\npath: C:\\x: y\n---\n",
        "---\n: : {{\n---\n",
        "---\n\ttab: x\n---\n",
        "---\nnever closed\n",
        "---\na: " + "[" * 30 + "]" * 30 + "\n---\n",
        "---\na: &a x\nb: [" + "*a, " * 20 + "]\n---\n",
        "---\na: " + "x" * 70_000 + "\n---\n",
        "---\n[a]: b\n---\n",
        "---\na: &a [*a]\n---\n",
    ],
)
def test_what_is_no_frontmatter_is_body(vault: Path, banner: str) -> None:
    note = one(vault, banner + "\nThe text.\n")
    assert note.text.startswith("---")
    assert any("The text." in block.text for block in note.blocks)
    assert note.title == "one"


def test_yaml_that_explodes_is_read_in_no_time(vault: Path) -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(20)
    )
    began = time.perf_counter()
    assert frontmatter.parse(bomb) is None
    assert frontmatter.parse("a: " + "[" * 60_000) is None
    assert frontmatter.parse("a: !!python/object/apply:os.system [x]") == frontmatter.Frontmatter()
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("raw", "tags"),
    [
        ("tags: [a, '#b', c/d/]", ("a", "b", "c/d")),
        ("tags: a b #c", ("a", "b")),  # YAML's comment
        ("tags: '#a #b'", ("a", "b")),
        ("tags: a, two words, A", ("a", "two words")),
        ("tags:\n  - a\n  - [x]\n  - 1", ("a", "1")),
        ("tag: a\ntags: b", ("b", "a")),
        ("Tags: a", ("a",)),
        ("tags:", ()),
        ("tags: {a: b}", ()),
    ],
)
def test_tags_of_the_frontmatter(raw: str, tags: tuple[str, ...]) -> None:
    parsed = frontmatter.parse(raw)
    assert parsed is not None
    assert parsed.tags == tags


def test_aliases() -> None:
    for raw, aliases in {
        "aliases: One name": ("One name",),
        "aliases: One, Two": ("One", "Two"),
        "alias:\n  - One\n  - one": ("One",),
    }.items():
        parsed = frontmatter.parse(raw)
        assert parsed is not None
        assert parsed.aliases == aliases


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-05-01", datetime(2024, 5, 1, tzinfo=UTC)),
        ("2024/5/1 9:30", datetime(2024, 5, 1, 9, 30, tzinfo=UTC)),
        ("2024-05-01T09:30:15.250Z", datetime(2024, 5, 1, 9, 30, 15, tzinfo=UTC)),
        ("2024-05-01 09:30:15 +0530", datetime(2024, 5, 1, 4, 0, 15, tzinfo=UTC)),
        ("2024-05-01T09:30-07:00", datetime(2024, 5, 1, 16, 30, tzinfo=UTC)),
        ("2024-05-01T09:30+02", datetime(2024, 5, 1, 7, 30, tzinfo=UTC)),
        ("2024-13-45", None),
        ("0001-01-01 00:00+10:00", None),
        ("2024-01-01 00:00+99:00", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates(text: str, instant: datetime | None) -> None:
    assert frontmatter.instant(text) == instant


def test_dates_fall_back(vault: Path) -> None:
    note = one(vault, "---\ncreated: 2024-13-45\ndate: 2023-01-02\nmodified: soon\n---\nx")
    assert note.created_at == datetime(2023, 1, 2, tzinfo=UTC)
    assert note.modified_at == datetime.fromtimestamp(LONG_AGO, UTC)
    assert one(vault, "x").created_at is None
    assert markdown._instant(1e20) is None


@pytest.mark.parametrize("line", ["prompt-rag: false", "prompt_rag: No", "Prompt-RAG: 'off'"])
def test_a_note_may_opt_out(vault: Path, line: str) -> None:
    assert why(vault, f"---\n{line}\n---\ntext") == ("prompt-rag: false in its frontmatter", False)


def test_a_note_may_say_that_it_is_in(vault: Path) -> None:
    assert one(vault, "---\nprompt-rag: true\n---\ntext").title == "one"


@pytest.mark.parametrize(
    "text",
    [
        "---\ntags: [private]\n---\n",
        "---\ntags: Private/x\n---\n",
        "text #PRIVATE",
        "text #private/deep/er.",
        "#private notes about C#",
    ],
)
def test_excluded_tags_roll_up(vault: Path, text: str) -> None:
    reason, keep = why(vault, text, exclude_tags=("#Private", ""))
    assert reason.startswith("excluded by its tag")
    assert not keep


def test_a_tag_that_only_begins_alike_is_not_excluded(vault: Path) -> None:
    assert one(vault, "#privately and `#private`", exclude_tags=("private",)).tags == ("privately",)


def test_the_vault_is_not_touched(vault: Path) -> None:
    write(vault / "a.md")
    before = [(path, path.stat().st_mtime_ns) for path in sorted(vault.rglob("*"))]
    scan(vault)
    assert [(path, path.stat().st_mtime_ns) for path in sorted(vault.rglob("*"))] == before
