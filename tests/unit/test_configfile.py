"""Edits of ``config.toml``: what a person wrote stays; what would not load is not written."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompt_rag import config, configfile, wire
from prompt_rag.config import Config, SourceSettings
from prompt_rag.domain import ConfigError

Edit = Callable[[Config], Config]

HAND_WRITTEN = """\
# My settings.

[hook]
max_chars = 1000 # the window is small
#skip_word = "#quiet"

# Notes of mine.
[[source]]
name = "own"
kind = "markdown"
path = "/notes/own" # on the disk

# Notes of the team.
[[source]]
name = "team"
kind = "markdown"
path = "/notes/team"

# The model.
[model]
threads   =   1
"""


@pytest.fixture
def file() -> Path:
    home = config.default_home()
    home.mkdir()
    return home / "config.toml"


def edited(file: Path, before: str, edit: Edit) -> str:
    """Write ``before``, apply ``edit``, and return what the file holds then."""
    file.write_bytes(before.encode())
    changed = edit(config.load())
    assert changed == config.load()
    return file.read_bytes().decode()


def set_value(key: str, text: str) -> Edit:
    return lambda loaded: configfile.set_value(loaded, key, text)


def add(name: str, path: str | None = "/n", **lists: tuple[str, ...]) -> Edit:
    kind = "markdown" if path else "bear"
    source = SourceSettings(name, kind, Path(path) if path else None, **lists)
    return lambda loaded: configfile.add_source(loaded, source)


def remove(name: str) -> Edit:
    return lambda loaded: configfile.remove_source(loaded, name)


# --- what a person wrote stays ------------------------------------------------------------------


def test_a_new_value_replaces_the_old_one_and_nothing_else(file: Path) -> None:
    after = edited(file, HAND_WRITTEN, set_value("hook.max_chars", "2000"))
    assert after == HAND_WRITTEN.replace("1000", "2000")


def test_a_new_key_joins_its_section(file: Path) -> None:
    after = edited(file, HAND_WRITTEN, set_value("hook.skip_word", "#still"))
    line = "max_chars = 1000 # the window is small\n"
    assert after == HAND_WRITTEN.replace(line, line + 'skip_word = "#still"\n')


def test_a_new_section_comes_last(file: Path) -> None:
    after = edited(file, HAND_WRITTEN, set_value("daemon.mode", "off"))
    assert after == HAND_WRITTEN + '\n[daemon]\nmode = "off"\n'


def test_a_key_without_a_section_comes_before_them(file: Path) -> None:
    before = HAND_WRITTEN.replace("[hook]", "# The hook.\n[hook]")
    after = edited(file, before, set_value("tiers", "tldr"))
    assert after == before.replace("# The hook.", 'tiers = ["tldr"]\n\n# The hook.')
    assert edited(file, after, set_value("tiers", "section,tldr")) == after.replace(
        '["tldr"]', '["section", "tldr"]'
    )


def test_a_new_source_follows_the_others(file: Path) -> None:
    after = edited(file, HAND_WRITTEN, add("third", "/notes/third", exclude=("a/**",)))
    new = (
        '[[source]]\nname = "third"\nkind = "markdown"\npath = "/notes/third"\nexclude = ["a/**"]\n'
    )
    assert after == HAND_WRITTEN.replace("\n# The model", f"\n{new}\n# The model")


def test_a_removed_source_takes_no_comment_of_another_along(file: Path) -> None:
    own = '[[source]]\nname = "own"\nkind = "markdown"\npath = "/notes/own" # on the disk\n'
    team = '[[source]]\nname = "team"\nkind = "markdown"\npath = "/notes/team"\n'
    assert edited(file, HAND_WRITTEN, remove("own")) == HAND_WRITTEN.replace(own, "")
    assert edited(file, HAND_WRITTEN, remove("team")) == HAND_WRITTEN.replace(team, "")
    alone = HAND_WRITTEN.replace(own, "")
    assert edited(file, alone, remove("team")) == alone.replace(team, "")


def test_lines_that_end_as_on_windows(file: Path) -> None:
    windows = HAND_WRITTEN.replace("\n", "\r\n")
    after = edited(file, windows, set_value("hook.skip_word", "#still"))
    assert after.count("\r\n") == after.count("\n") == windows.count("\n") + 1
    mixed = "# a\r\n[hook]\nmax_chars = 1000\r\n"
    assert edited(file, mixed, set_value("hook.max_chars", "500")) == mixed.replace("1000", "500")


B = "[[source]]\nname = 'b'\nkind = 'bear'\n"
C = "[[source]]\nname = 'c'\nkind = 'bear'\npath = '/c'\n"
APART = f"{B}[hook]\n{C}"


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("", set_value("hook.max_chars", "500"), "[hook]\nmax_chars = 500\n"),
        ("", add("bear", None), '[[source]]\nname = "bear"\nkind = "bear"\n'),
        ("hook.max_chars = 1000\n", set_value("hook.max_chars", "500"), "hook.max_chars = 500\n"),
        (
            "hook.max_chars = 1000\n\n# m\n[model]\nthreads = 1\n",
            set_value("tiers", "tldr"),
            'hook.max_chars = 1000\n\ntiers = ["tldr"]\n\n# m\n[model]\nthreads = 1\n',
        ),
        (
            "[hook]\nmax_chars = 1000",  # no end of line
            set_value("hook.max_excerpts", "1"),
            "[hook]\nmax_chars = 1000\nmax_excerpts = 1\n",
        ),
        (
            "# about it\n[[source]]\nname = 'b'\nkind = 'bear'\n",
            set_value("tiers", "tldr"),
            "tiers = [\"tldr\"]\n\n# about it\n[[source]]\nname = 'b'\nkind = 'bear'\n",
        ),
        (
            "hook = {max_chars = 1000}\n",
            set_value("hook.max_chars", "500"),
            "hook = {max_chars = 500}\n",
        ),
        (
            "hook = {max_chars = 1000}\n",
            set_value("hook.max_excerpts", "1"),
            "hook = {max_chars = 1000,max_excerpts = 1}\n",
        ),
        (
            "hook.max_chars = 1000\n",
            set_value("hook.max_excerpts", "1"),
            "hook.max_chars = 1000\nhook.max_excerpts = 1\n",
        ),
        (
            "source = []\n[hook]\n",
            add("a", None),
            'source = [{name = "a", kind = "bear"}]\n[hook]\n',
        ),
        (
            "source = [{name='b', kind='bear', path='/b'}] #\n",
            add("a", None),
            "source = [{name='b', kind='bear', path='/b'}, {name = \"a\", kind = \"bear\"}] #\n",
        ),
        ("source = [\n  {name = 'b', kind = 'bear'},\n]\n", remove("b"), "source = [\n]\n"),
        (APART, remove("b"), C + "[hook]\n"),
        (
            APART,
            add("a"),
            B + C + '\n[[source]]\nname = "a"\nkind = "markdown"\npath = "/n"\n[hook]\n',
        ),
    ],
)
def test_other_ways_to_write_the_same(file: Path, before: str, edit: Edit, after: str) -> None:
    assert edited(file, before, edit) == after


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("#")]


SECTIONS = {
    "hook": ("max_chars = 1000\n", "max_excerpts = 2\n", 'skip_word = "w" # x\n'),
    "model": ("threads = 3\n",),
    "daemon": ('mode = "off"\n',),
}
COMMENT = st.lists(st.sampled_from(["# one\n", "\n", "  # two\n"]), max_size=3).map("".join)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file of sections and sources in any order, with comments anywhere."""
    parts = []
    for name, lines in SECTIONS.items():
        if draw(st.booleans()):
            chosen = draw(st.lists(st.sampled_from(lines), unique=True))
            parts.append(f"[{name}]\n" + "".join(draw(COMMENT) + line for line in chosen))
    names = draw(st.lists(st.sampled_from("abc"), unique=True))
    parts += [f'[[source]]\nname = "{x}"\nkind = "bear"\npath = "/{x}"\n' for x in names]
    text = draw(COMMENT)
    if draw(st.booleans()):
        text += 'tiers = ["tldr"]\n'
    return text + "".join(draw(COMMENT) + part for part in draw(st.permutations(parts)))


EDITS: dict[str, Edit] = {
    "value": set_value("hook.max_chars", "700"),
    "section": set_value("log.prompt_text", "true"),
    "top": set_value("tiers", "section"),
    "add": add("new"),
    "remove": remove("a"),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(before=files(), edit=st.sampled_from(list(EDITS)))
def test_no_comment_is_lost_and_only_one_thing_changes(file: Path, before: str, edit: str) -> None:
    file.write_text(before)
    loaded = config.load()
    if edit == "remove" and not any(source.name == "a" for source in loaded.sources):
        return
    changed = EDITS[edit](loaded)
    assert sorted(comments(file.read_text())) == sorted(comments(before))
    names = [source.name for source in changed.sources]
    old = [source.name for source in loaded.sources]
    expected = {"add": [*old, "new"], "remove": [name for name in old if name != "a"]}
    assert names == expected.get(edit, old)
    differs = {key for key in config.SETTING_FIELDS if loaded.value(key) != changed.value(key)}
    keys = {"value": "hook.max_chars", "section": "log.prompt_text", "top": "tiers"}
    assert differs == ({keys[edit]} if edit in keys else set())


NAMES = st.text(min_size=1, max_size=8).filter(str.isprintable)
PATHS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(name=NAMES, path=PATHS)
def test_any_name_and_path_come_back_as_they_were(file: Path, name: str, path: str) -> None:
    file.unlink(missing_ok=True)
    source = SourceSettings(name, "markdown", Path("/notes" + path), (path,), (name,), (path,))
    assert configfile.add_source(config.load(), source).sources == (source,)
    assert config.load().sources == (source,)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "words", "hint"),
    [
        (set_value("hook.max_char", "5"), "did you mean hook.max_chars", "prompt-rag config show"),
        (set_value("hook.max_chars", "5"), "must lie between", "prompt-rag config show"),
        (set_value("hook.skip_word", "\udce9"), "must be one word", "prompt-rag config show"),
        (add("own"), "a source named own exists", "prompt-rag source remove own"),
        (add("x", "/notes/own"), "/notes/own is already the source own", "prompt-rag source list"),
        (add("a\nb"), "a source has no name", "edit "),
        (remove("x"), "no source is named x (there are: own, team)", "prompt-rag source list"),
    ],
)
def test_the_file_stays_as_it_was(file: Path, edit: Edit, words: str, hint: str) -> None:
    file.write_text(HAND_WRITTEN)
    stamp = file.stat()
    with pytest.raises(ConfigError) as caught:
        edit(config.load())
    assert words in caught.value.message
    assert caught.value.hint.startswith(hint)
    assert file.read_text() == HAND_WRITTEN
    assert file.stat().st_mtime_ns == stamp.st_mtime_ns
    assert sorted(each.name for each in file.parent.iterdir()) == ["config.toml"]


def test_bear_is_added_once(file: Path) -> None:
    loaded = add("bear", None)(config.load())
    with pytest.raises(ConfigError, match="Bear is already the source bear"):
        add("again", None)(loaded)


def test_nothing_to_remove() -> None:
    with pytest.raises(ConfigError, match=r"no source is named x \(there are: none\)"):
        remove("x")(config.load())


def test_a_refused_first_edit_leaves_no_file(file: Path) -> None:
    with pytest.raises(ConfigError):
        add("a\nb")(config.load())
    assert not file.exists()


@pytest.mark.parametrize("text", [b"[hook\n", b"a = '\xff'\n", b"zzz = 1\n"])
def test_a_file_that_was_broken_meanwhile_is_left_alone(file: Path, text: bytes) -> None:
    loaded = config.load()
    file.write_bytes(text)
    with pytest.raises(ConfigError, match=str(file)):
        configfile.set_value(loaded, "hook.max_chars", "500")
    assert file.read_bytes() == text


def test_a_file_that_cannot_be_read(file: Path) -> None:
    loaded = config.load()
    file.mkdir()
    with pytest.raises(ConfigError, match=r"cannot be read: .*Is a directory"):
        configfile.set_value(loaded, "hook.max_chars", "500")


def test_a_link_to_where_nothing_can_be_written(file: Path) -> None:
    file.symlink_to("/proc/nothing-here/config.toml")
    with pytest.raises(ConfigError, match=r"config\.toml cannot be written: "):
        configfile.set_value(config.load(), "hook.max_chars", "500")


def test_a_path_that_is_not_text(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        add("n", "/notes/\udce9")(config.load())
    assert not file.exists()


# --- links and modes ----------------------------------------------------------------------------


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "rag.toml"
    target.parent.mkdir()
    target.write_text(HAND_WRITTEN)
    file.symlink_to(target)
    configfile.set_value(config.load(), "hook.max_chars", "2000")
    assert file.is_symlink()
    assert target.read_text() == HAND_WRITTEN.replace("1000", "2000")


def test_a_link_to_a_file_that_is_not_there_yet(file: Path, tmp_path: Path) -> None:
    file.symlink_to(tmp_path / "rag.toml")
    configfile.set_value(config.load(), "hook.max_chars", "2000")
    assert file.is_symlink()
    assert (tmp_path / "rag.toml").read_text() == "[hook]\nmax_chars = 2000\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPT_RAG_HOME")
    changed = configfile.set_value(config.load(), "hook.max_chars", "2000")
    assert mode(changed.home) == mode(changed.file.parent) == 0o700
    assert changed.home != changed.file.parent
    for file in (changed.file, changed.home / "README", changed.home / wire.SETTINGS):
        assert mode(file) == 0o600


# --- the home -----------------------------------------------------------------------------------


def test_the_home_says_what_it_is() -> None:
    loaded = config.load()
    configfile.prepare_home(loaded)
    readme = loaded.home / "README"
    assert "prompt-rag" in readme.read_text()
    assert "safe to delete" in readme.read_text()
    readme.write_text("mine")
    configfile.prepare_home(loaded)
    assert readme.read_text() == "mine"


def test_the_hook_reads_the_same_settings() -> None:
    loaded = config.load()
    for key, text in {
        "hook.deadline_seconds": "0.75",
        "daemon.mode": "off",
        "daemon.idle_seconds": "60",
    }.items():
        loaded = configfile.set_value(loaded, key, text)
    found = wire.settings(str(loaded.home))
    assert set(found) == set(wire.SETTING_KEYS)
    assert wire.seconds(found, wire.DEADLINE_KEY, 9.0) == loaded.settings.deadline_seconds == 0.75
    assert wire.seconds(found, wire.IDLE_KEY, 9.0) == loaded.settings.idle_seconds == 60.0
    assert found[wire.MODE_KEY] == loaded.settings.daemon == "off"


def test_the_defaults_of_hook_and_settings_are_the_same() -> None:
    assert config.Settings().deadline_seconds == wire.DEADLINE_SECONDS


@pytest.mark.parametrize("in_file", [True, False])
def test_a_variable_for_one_call_does_not_stick(
    file: Path, monkeypatch: pytest.MonkeyPatch, in_file: bool
) -> None:
    if in_file:
        file.write_text('[daemon]\nmode = "off"\n')
    with monkeypatch.context() as for_one_call:
        for_one_call.setenv("PROMPT_RAG_DAEMON_MODE", "on" if in_file else "off")
        loaded = config.load(overrides={"hook.deadline_seconds": 9})
        configfile.prepare_home(loaded)
        assert wire.settings(str(loaded.home))[wire.MODE_KEY] == loaded.settings.daemon
    found = wire.settings(str(loaded.home))
    assert found[wire.MODE_KEY] == ("off" if in_file else "on")
    assert float(found[wire.DEADLINE_KEY]) == wire.DEADLINE_SECONDS


def test_settings_of_the_hook_are_written_when_they_change() -> None:
    loaded = config.load()
    configfile.prepare_home(loaded)
    flat = loaded.home / wire.SETTINGS
    written = flat.stat()
    configfile.prepare_home(loaded)
    assert flat.stat().st_ino == written.st_ino
    flat.write_bytes(b"\xff")
    configfile.prepare_home(loaded)
    assert wire.settings(str(loaded.home))[wire.MODE_KEY] == "on"


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        configfile.prepare_home(config.load(tmp_path / "home" / ".." / "file"))
