"""Other programs' files: replaced as a whole or not at all, links and modes kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from prompt_rag import fsio, settingsfile
from prompt_rag.domain import ConfigError
from prompt_rag.settingsfile import Change, apply, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.json"


def change(path: Path, after: bytes | None, *, keep_backup: bool = True) -> None:
    apply(Change(read(path), after), keep_backup=keep_backup)


def backup(path: Path) -> Path:
    return path.with_name("settings.json.prompt-rag.bak")


def test_the_first_change_leaves_a_copy_and_the_last_takes_it_away(path: Path) -> None:
    path.write_bytes(b"one")
    path.chmod(0o640)
    change(path, b"two")
    change(path, b"three")
    assert path.read_bytes() == b"three"
    assert backup(path).read_bytes() == b"one"
    assert read(path).backup_path == backup(path)
    assert read(path).backup == b"one"
    for file in (path, backup(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
    change(path, b"one", keep_backup=False)
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]


def test_nothing_is_written_where_nothing_changes(path: Path) -> None:
    path.write_bytes(b"one")
    path.chmod(0o444)
    before = path.stat()
    change(path, b"one")
    assert path.stat() == before
    assert not backup(path).exists()
    change(path.with_name("other.json"), None)
    assert sorted(each.name for each in path.parent.iterdir()) == ["settings.json"]


def test_a_file_is_made_with_its_folder_and_removed_again(path: Path) -> None:
    new = path.parent / "a" / "b" / "new.json"
    change(new, b"{}")
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert not new.with_name("new.json.prompt-rag.bak").exists()
    change(new, None, keep_backup=False)
    assert not new.exists()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_link_stays_a_link(path: Path, depth: int) -> None:
    target = path.parent / "dotfiles" / "real.json"
    target.parent.mkdir()
    target.write_bytes(b"one")
    middle = path.parent / "middle"
    middle.symlink_to(target)
    path.symlink_to(middle if depth == 2 else os.path.relpath(target, path.parent))
    change(path, b"two")
    assert path.is_symlink()
    assert target.read_bytes() == b"two"
    assert [each.name for each in target.parent.iterdir()] == ["real.json"]
    assert backup(path).read_bytes() == b"one"
    change(path, b"one", keep_backup=False)
    assert path.is_symlink()
    assert target.read_bytes() == b"one"


def test_a_link_to_nothing_gets_its_target(path: Path) -> None:
    path.symlink_to(path.parent / "real.json")
    change(path, b"{}")
    assert path.is_symlink()
    assert (path.parent / "real.json").read_bytes() == b"{}"


def test_links_in_a_circle(path: Path) -> None:
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read(path)


def test_a_folder_where_a_file_should_be(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigError, match=r"settings\.json cannot be read: Is a directory"):
        read(path)


def test_a_read_only_file_is_left_alone(path: Path) -> None:
    path.write_bytes(b"one")
    path.chmod(0o444)
    with pytest.raises(ConfigError, match=r"settings\.json is read-only") as caught:
        change(path, b"two")
    assert caught.value.hint == f"chmod u+w {path}"
    assert path.read_bytes() == b"one"
    assert not backup(path).exists()


def test_what_another_program_wrote_meanwhile_is_not_lost(path: Path) -> None:
    path.write_bytes(b"one")
    planned = Change(read(path), b"two")
    path.write_bytes(b"theirs")
    with pytest.raises(ConfigError, match="was changed a moment ago by another program"):
        apply(planned, keep_backup=True)
    assert path.read_bytes() == b"theirs"


def test_a_write_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"one")

    def full(_path: str, _data: bytes, _mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fsio, "write_atomic", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        change(path, b"two")
    assert path.read_bytes() == b"one"


def test_what_is_not_utf8(path: Path) -> None:
    assert settingsfile.text_of(path, b"\xef\xbb\xbf{}\r\n") == "{}\r\n"
    with pytest.raises(ConfigError, match="is not UTF-8") as caught:
        settingsfile.text_of(path, b"{\xff}")
    assert "byte 1" in caught.value.message


def test_a_diff(path: Path) -> None:
    path.write_bytes(b"a\nb \x0c c\nd")
    file = read(path)
    assert Change(file, b"a\nb \x0c c\nD\n").diff() == (
        f"--- {path}\n+++ {path}\n@@ -1,3 +1,3 @@\n a\n b \x0c c\n-d\n"
        "\\ No newline at end of file\n+D\n"
    )
    assert Change(file, file.data).diff() == ""
    assert Change(file, None).diff().startswith(f"--- {path}\n+++ {os.devnull}\n")
    assert Change(read(path.with_name("new")), b"x\n").diff().startswith(f"--- {os.devnull}\n+++ ")
