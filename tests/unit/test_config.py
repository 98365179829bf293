"""Settings: where each value comes from, and what is refused in which words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_rag import config, wire
from prompt_rag.config import SETTING_FIELDS, Settings, SourceSettings
from prompt_rag.domain import ConfigError

Write = Callable[[str], Path]


@pytest.fixture
def home() -> Path:
    folder = config.default_home()
    folder.mkdir()
    return folder


@pytest.fixture
def write(home: Path) -> Write:
    """Write the file of this home."""

    def write(text: str | bytes) -> Path:
        file = home / "config.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


def refusal(**arguments: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config.load(**arguments)
    return caught.value


# --- precedence and origin ----------------------------------------------------------------------


def test_without_a_file_everything_is_the_default(home: Path) -> None:
    loaded = config.load()
    assert loaded.settings == Settings()
    assert set(loaded.origins) == set(SETTING_FIELDS)
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.sources == ()
    assert loaded.home == home
    assert loaded.file == home / "config.toml"


def test_each_layer_covers_the_one_below(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "hook.max_chars"

    def seen(**flags: object) -> tuple[object, str]:
        loaded = config.load(overrides={key: flags.get("flag")})
        return loaded.value(key), loaded.origins[key]

    assert seen() == (6000, "default")
    file = write("[hook]\nmax_chars = 1000\nmax_excerpts = 2\n")
    assert seen() == (1000, str(file))
    monkeypatch.setenv("PROMPT_RAG_HOOK_MAX_CHARS", "2000")
    assert seen() == (2000, "PROMPT_RAG_HOOK_MAX_CHARS")
    assert seen(flag=3000) == (3000, "flag")
    # One key's layers say nothing about another's.
    assert config.load().origins["hook.max_excerpts"] == str(file)


def test_every_setting_can_come_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"str": "word", "int": "7", "float": "0.5", "bool": "true", "tuple": "tldr"}
    special = {"daemon.mode": "off", "daemon.idle_seconds": "5", "hook.max_chars": "700"}
    for key, field in SETTING_FIELDS.items():
        word = special.get(key) or words[config._type_name(field)]
        monkeypatch.setenv("PROMPT_RAG_" + key.upper().replace(".", "_"), word)
    loaded = config.load()
    assert "default" not in loaded.origins.values()
    for key, field in SETTING_FIELDS.items():
        assert loaded.value(key) != field.default


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("tiers", "tldr", ("tldr",)),
        ("tiers", " section , tldr ,", ("section", "tldr")),
        ("tiers", "tldr,section,tldr", ("tldr", "section")),
        ("model.threads", "64", 64),
        ("hook.deadline_seconds", "2", 2.0),
        ("thresholds.max_distance", "0", 0.0),
        ("log.prompt_text", "TRUE", True),
        ("log.prompt_text", "0", False),
        ("hook.skip_word", "#静か", "#静か"),
        ("hook.skip_word", "", ""),
    ],
)
def test_what_a_person_types(key: str, text: str, value: object) -> None:
    assert config.parsed(key, text, "value") == value
    assert type(config.parsed(key, text, "value")) is type(value)


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPT_RAG_HOOK_DEADLINE_SECONDS", "")
    assert config.load().origins["hook.deadline_seconds"] == "default"
    assert wire.settings("/nowhere") == {}


def test_a_setting_named_twice_is_meant_once(write: Write) -> None:
    write('tiers = ["section", "tldr", "section"]\n')
    assert config.load().settings.tiers == ("section", "tldr")


def test_given_environment_and_text_stand_in(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("[hook]\nmax_chars = 1000\n")
    monkeypatch.setenv("PROMPT_RAG_HOOK_MAX_CHARS", "2000")
    assert config.load(environment={}).settings.max_chars == 1000
    assert config.load(environment={}, text="").settings.max_chars == 6000
    variables = {"PROMPT_RAG_MODEL_THREADS": "3", "HOME": "/", "PROMPT_RAG_HOME": "/elsewhere"}
    assert config.load(environment=variables).settings.model_threads == 3


def test_a_working_directory_never_configures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.toml", ".prompt-rag.toml", "prompt-rag.toml", "pyproject.toml"):
        (tmp_path / name).write_text("[hook]\nmax_chars = 1000\n")
    monkeypatch.chdir(tmp_path)
    assert config.load().settings == Settings()


def test_every_setting_is_explained() -> None:
    for field in fields(Settings):
        assert field.metadata["doc"].endswith("."), field.name
        assert SETTING_FIELDS[field.metadata["key"]] is field


def test_the_defaults_pass_their_own_limits() -> None:
    for key, field in SETTING_FIELDS.items():
        if field.default is not None:
            assert config.checked(key, field.default, "default") == field.default


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hook]\nmax_char = 5\n", "unknown setting hook.max_char; did you mean hook.max_chars?"),
        ("max_chars = 5\n", "unknown setting max_chars; did you mean hook.max_chars?"),
        ("[hook.max_chars]\nx = 1\n", "unknown setting hook.max_chars.x; did you mean hook.max_c"),
        ("[hooks]\nmax_chars = 5\n", "hooks.max_chars; did you mean hook.max_chars?"),
        ("zzz = 1\n", "unknown setting zzz"),
        ("hook = 3\n", "unknown setting hook"),
        ("[[hook]]\nmax_chars = 500\n", "unknown setting hook"),
        ("[hok]\n", "unknown setting hok"),
        ("[hook]\nmax_chars = '500'\n", "hook.max_chars must be a whole number, not '500'"),
        ("[hook]\nmax_chars = 500.0\n", "hook.max_chars must be a whole number, not 500.0"),
        ("[hook]\nmax_chars = true\n", "hook.max_chars must be a whole number, not True"),
        ("[hook]\nmax_chars = 299\n", "hook.max_chars must lie between 300 and 9500, not 299"),
        ("[hook]\nmax_chars = 9501\n", "hook.max_chars must lie between 300 and 9500, not 9501"),
        ("[hook]\ndeadline_seconds = 'x'\n", "hook.deadline_seconds must be a number, not 'x'"),
        ("[hook]\ndeadline_seconds = false\n", "hook.deadline_seconds must be a number"),
        ("[hook]\ndeadline_seconds = nan\n", "must lie between 0.05 and 30.0, not nan"),
        ("[hook]\ndeadline_seconds = inf\n", "must lie between 0.05 and 30.0, not inf"),
        (f"[hook]\ndeadline_seconds = 1{'0' * 400}\n", "must lie between 0.05 and 30.0"),
        (f"[hook]\ndeadline_seconds = -1{'0' * 400}\n", "must lie between 0.05 and 30.0"),
        ("[log]\nprompt_text = 1\n", "log.prompt_text must be true or false, not 1"),
        ("[model]\nname = 3\n", "model.name must be a string, not 3"),
        ("[model]\nname = 'a model'\n", "model.name must be one word, not 'a model'"),
        ('[hook]\nskip_word = "a\\tb"\n', "hook.skip_word must be one word, not 'a\\tb'"),
        ("tiers = 'tldr'\n", "tiers must be a list of strings, not 'tldr'"),
        ("tiers = [1]\n", "tiers must be a list of strings, not [1]"),
        ("tiers = ['title']\n", "tiers is one of tldr, section, not 'title'"),
        ("tiers = []\n", "tiers must name at least one of tldr, section"),
        ("[daemon]\nmode = 'ON'\n", "daemon.mode is one of on, off, not 'ON'"),
    ],
)
def test_the_file_and_the_key_are_named(write: Write, text: str, words: str) -> None:
    file = write(text)
    error = refusal()
    assert error.message.startswith(f"{file}: ")
    assert words in error.message
    assert error.hint == "prompt-rag config show"


def test_without_a_near_key_nothing_is_suggested(write: Write) -> None:
    write("zzz = 1\n")
    assert "did you mean" not in refusal().message


@pytest.mark.parametrize(
    ("name", "word", "words"),
    [
        ("HOOK_MAX_CHAR", "1", "unknown setting hook_max_char; did you mean hook.max_chars?"),
        ("HOOK_MAX_CHARS", "many", "hook.max_chars must be a whole number, not 'many'"),
        ("HOOK_DEADLINE_SECONDS", "soon", "hook.deadline_seconds must be a number, not 'soon'"),
        ("HOOK_DEADLINE_SECONDS", "1e999", "must lie between 0.05 and 30.0, not inf"),
        ("MODEL_THREADS", "9" * 5000, "model.threads must be a whole number"),
        ("LOG_PROMPT_TEXT", "yes", "log.prompt_text must be true or false, not 'yes'"),
        ("TIERS", ",", "tiers must name at least one of tldr, section"),
    ],
)
def test_the_variable_and_the_key_are_named(
    monkeypatch: pytest.MonkeyPatch, name: str, word: str, words: str
) -> None:
    monkeypatch.setenv(f"PROMPT_RAG_{name}", word)
    error = refusal()
    assert error.message.startswith(f"PROMPT_RAG_{name}: ")
    assert words in error.message


def test_a_flag_is_checked_like_the_rest() -> None:
    assert refusal(overrides={"hook.max_char": 1}).message.startswith("flag: unknown setting")
    assert refusal(overrides={"hook.max_chars": 1}).message.startswith("flag: hook.max_chars must")


def test_an_unknown_key_has_no_value() -> None:
    with pytest.raises(ConfigError, match=r"did you mean model\.name"):
        config.load().value("model.nam")


@pytest.mark.parametrize(
    "text",
    [
        b"[hook\n",
        b"a = 1\na = 2\n",
        b"a = " + b"1" * 5000,
        b"a = " + b"[" * 5000,
        b"a = '\xff'\n",
        b"\xef\xbb\xbfa = 1\n",
    ],
)
def test_a_file_that_is_not_toml(write: Write, text: bytes) -> None:
    file = write(text)
    error = refusal()
    assert error.message.startswith(f"{file} is not valid TOML: ")
    assert error.hint == f"edit {file}"


def test_a_file_that_cannot_be_read(home: Path) -> None:
    (home / "config.toml").mkdir()
    assert refusal().message == f"{home / 'config.toml'} cannot be read: Is a directory"


# --- sources ------------------------------------------------------------------------------------


def test_sources(write: Write) -> None:
    write(
        """
        [[source]]
        name = "my notes"
        kind = "markdown"
        path = "~/Notes"
        include = ["*.md"]
        exclude = ["drafts/**"]
        exclude_tags = ["private"]

        [[source]]
        name = "bear"
        kind = "bear"
        """
    )
    assert config.load().sources == (
        SourceSettings(
            "my notes",
            "markdown",
            Path.home() / "Notes",
            ("*.md",),
            ("drafts/**",),
            ("private",),
        ),
        SourceSettings("bear", "bear"),
    )


MARKDOWN = 'name = "n"\nkind = "markdown"\npath = "/n"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[source]\nname = "n"\n', "source must be written as [[source]] tables"),
        ("source = [1]\n", "source must be written as [[source]] tables"),
        (f"[[source]]\n{MARKDOWN}[[source]]\n{MARKDOWN}", "two sources are named n"),
        (f"[[source]]\n{MARKDOWN}excludes = []\n", "unknown key excludes; did you mean exclude?"),
        (f"[[source]]\n{MARKDOWN}zzz = 1\n", "source 'n': unknown key zzz"),
        ('[[source]]\nkind = "bear"\n', "a source has no name"),
        ('[[source]]\nname = ""\nkind = "bear"\n', "a source has no name"),
        ('[[source]]\nname = "a\\nb"\nkind = "bear"\n', "a source has no name"),
        ('[[source]]\nname = 1\nkind = "bear"\n', "a source has no name"),
        ('[[source]]\nname = "n"\n', "kind is markdown or bear, not None"),
        ('[[source]]\nname = "n"\nkind = "csv"\n', "kind is markdown or bear, not 'csv'"),
        ('[[source]]\nname = "n"\nkind = "markdown"\n', "a markdown source needs a path"),
        ('[[source]]\nname = "n"\nkind = "bear"\npath = "b"\n', "path must be absolute, not 'b'"),
        ('[[source]]\nname = "n"\nkind = "bear"\npath = 1\n', "path must be absolute, not 1"),
        ('[[source]]\nname = "n"\nkind = "bear"\npath = "/\\u0000"\n', "path must be absolute"),
        (
            '[[source]]\nname = "n"\nkind = "bear"\npath = "~nobody-here/n"\n',
            "path must be absolute, not '~nobody-here/n'",
        ),
        (f"[[source]]\n{MARKDOWN}include = 'x'\n", "include must be a list of strings"),
        (f"[[source]]\n{MARKDOWN}exclude_tags = [1]\n", "exclude_tags must be a list of strings"),
    ],
)
def test_a_source_that_is_not_one(write: Write, text: str, words: str) -> None:
    file = write(text)
    error = refusal()
    assert error.message.startswith(f"{file}: ")
    assert words in error.message
    assert error.hint == f"edit {file}"


# --- folders ------------------------------------------------------------------------------------


def test_a_named_home_holds_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPT_RAG_HOME", str(tmp_path))
    loaded = config.load()
    assert (loaded.home, loaded.file) == (tmp_path, tmp_path / "config.toml")


def test_without_one_the_platform_has_two_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPT_RAG_HOME", "")
    loaded = config.load()
    assert loaded.home.name == loaded.file.parent.name == "prompt-rag"
    assert loaded.home != loaded.file.parent
    assert str(loaded.home) == wire.home_folder()
    file = loaded.file
    file.parent.mkdir(parents=True)
    file.write_text("[hook]\nmax_chars = 1000\n")
    assert config.load().origins["hook.max_chars"] == str(file)
    # The daemon is told the home it serves, and must find the same file.
    assert config.load(loaded.home).settings.max_chars == 1000


def test_a_named_home_may_be_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPT_RAG_HOME")
    platform = config.load().home
    monkeypatch.setenv("PROMPT_RAG_HOME", str(platform))
    assert config.load().file == platform / "config.toml"


def test_a_home_given_by_hand_holds_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPT_RAG_HOME")
    (tmp_path / "config.toml").write_text("[hook]\nmax_chars = 1000\n")
    assert config.load(tmp_path).settings.max_chars == 1000


@pytest.mark.parametrize("name", ["~/notes", "~", "here/notes", "~nobody-here/notes", "/a//b/"])
def test_the_hook_finds_the_same_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROMPT_RAG_HOME", name)
    assert config.default_home() == Path(wire.home_folder())
    assert config.default_home().is_absolute()


# --- properties ---------------------------------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.sampled_from(["tldr", "section"]), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(st.sampled_from(list(SETTING_FIELDS)), VALUES)
def test_a_value_is_right_or_refused(key: str, raw: object) -> None:
    with contextlib.suppress(ConfigError):  # any other exception fails the test
        value = config.checked(key, raw, "here")
        assert config.checked(key, value, "here") == value
        limits = SETTING_FIELDS[key].metadata
        if "at_least" in limits:
            assert limits["at_least"] <= value <= limits["at_most"]


@given(st.sampled_from(list(SETTING_FIELDS)), st.text(max_size=12))
def test_a_word_is_right_or_refused(key: str, text: str) -> None:
    with contextlib.suppress(ConfigError):
        value = config.parsed(key, text, "here")
        shown = ",".join(value) if isinstance(value, tuple) else str(value)
        assert config.parsed(key, shown, "here") == value
