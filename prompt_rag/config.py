"""Settings with their origin.

Defaults, then ``config.toml``, then ``PROMPT_RAG_*`` variables, then flags: the later wins.

The environment is read only inside the functions here; a variable that is empty counts as not set.
A project folder never configures the tool: nothing here looks at the working directory.

``PROMPT_RAG_HOME`` puts everything, the configuration included, into one folder. Without it the
platform's user data folder holds the index and its user config folder holds ``config.toml``.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import platformdirs

from prompt_rag.domain import ConfigError, PassageKind

APP = "prompt-rag"
ENV_PREFIX = "PROMPT_RAG_"
HOME_VARIABLE = "PROMPT_RAG_HOME"
# They say where the settings are, and are none themselves.
NOT_SETTINGS = frozenset({HOME_VARIABLE})

type_of_value = str | int | float | bool | tuple[str, ...] | None


def _setting(key: str, default: Any, doc: str, **limits: Any) -> Any:
    return field(default=default, metadata={"key": key, "doc": doc, **limits})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting; ``metadata`` of each field holds its key in the file, its meaning, limits."""

    tiers: tuple[PassageKind, ...] = _setting(
        "tiers",
        ("tldr", "section"),
        "What is indexed: the TL;DR passages, the sections, or both. A note without a TL;DR always "
        "has its sections.",
        choices=("tldr", "section"),
    )
    model_name: str = _setting(
        "model.name",
        "all-MiniLM-L6-v2-int8",
        "The embedding model. The default comes with the installation; any other fastembed model "
        "is fetched once by `prompt-rag model pull NAME`.",
    )
    model_threads: int = _setting(
        "model.threads",
        2,
        "Threads for indexing. A query always uses one.",
        at_least=1,
        at_most=64,
    )
    max_distance: float | None = _setting(
        "thresholds.max_distance",
        None,
        "Largest cosine distance of a note that is injected. Default: the model's calibration.",
        at_least=0.0,
        at_most=2.0,
    )
    min_gap: float | None = _setting(
        "thresholds.min_gap",
        None,
        "Smallest lead over the nearest other note. Default: the calibration of the model.",
        at_least=0.0,
        at_most=2.0,
    )
    search_distance: float | None = _setting(
        "thresholds.search_distance",
        None,
        "Largest cosine distance that `search` lists. Default: the calibration of the model.",
        at_least=0.0,
        at_most=2.0,
    )
    min_probability: float | None = _setting(
        "thresholds.min_probability",
        None,
        "Smallest probability that a note helps. Default: the model's calibration, fitted for a "
        "stated share of false injections.",
        at_least=0.0,
        at_most=1.0,
    )
    deadline_seconds: float = _setting(
        "hook.deadline_seconds",
        1.5,
        "The latest moment at which the hook prints; after it there is silence. Warm or cold.",
        at_least=0.05,
        at_most=30.0,
    )
    max_excerpts: int = _setting(
        "hook.max_excerpts", 3, "Most notes injected for one prompt.", at_least=1, at_most=10
    )
    max_chars: int = _setting(
        "hook.max_chars",
        6000,
        "Most characters injected for one prompt. Hosts move more than about 2,500 tokens or "
        "10,000 characters to a file that the model does not read.",
        at_least=300,
        at_most=9500,
    )
    skip_word: str = _setting(
        "hook.skip_word", "#nonotes", "A prompt that contains this word gets no notes."
    )
    wide_word: str = _setting(
        "hook.wide_word",
        "#notes",
        "A prompt that contains this word gets what `search` would list.",
    )
    daemon: str = _setting(
        "daemon.mode",
        "on",
        "`on`: a resident process answers the hook; `off`: the hook loads the model itself.",
        choices=("on", "off"),
    )
    idle_seconds: float = _setting(
        "daemon.idle_seconds",
        1800.0,
        "The resident process ends after this long without a request.",
        at_least=1.0,
        at_most=7 * 86400.0,
    )
    log_prompt_text: bool = _setting(
        "log.prompt_text",
        default=False,
        doc="Store the text of each prompt in the decision log.",
    )


SETTING_FIELDS: dict[str, Any] = {f.metadata["key"]: f for f in fields(Settings)}
"""Settings fields by their key in the file, in the order they are documented."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One ``[[source]]`` of the file. ``path`` is absolute, or None for Bear's own places."""

    name: str
    kind: Literal["markdown", "bear"]
    path: Path | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one home. ``origins`` maps a key to ``default``, the file, or a variable."""

    home: Path
    file: Path
    settings: Settings
    sources: tuple[SourceSettings, ...]
    origins: Mapping[str, str]

    def value(self, key: str) -> type_of_value:
        """Return the value of ``key``. Raises :class:`ConfigError` for an unknown key."""
        return getattr(self.settings, known_field(key, self.file).name)  # type: ignore[no-any-return]


def default_home() -> Path:
    """Return the folder of index, log and sessions: ``PROMPT_RAG_HOME`` or the user data folder."""
    named = os.environ.get(HOME_VARIABLE, "")
    if named:
        return _expanded(named).absolute()
    return Path(platformdirs.user_data_dir(APP, appauthor=False))


def config_file(home: Path) -> Path:
    """Return where the configuration of ``home`` lives."""
    platform_home = Path(platformdirs.user_data_dir(APP, appauthor=False))
    if home != platform_home or os.environ.get(HOME_VARIABLE):
        return home / "config.toml"
    return Path(platformdirs.user_config_dir(APP, appauthor=False)) / "config.toml"


def load(
    home: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Config:
    """Read the settings of ``home``; ``overrides`` are flags, by key.

    ``environment`` stands in for the process's variables, ``text`` for what is in the file.

    Raises :class:`ConfigError` that names file or variable, key, and the nearest known key.
    """
    home = default_home() if home is None else home.absolute()
    file = config_file(home)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTING_FIELDS, "default")
    table = _read_toml(file, text)
    sources = _sources(table.pop("source", []), file)
    for key, raw in _flatten(table):
        values[known_field(key, file).name] = checked(key, raw, str(file))
        origins[key] = str(file)
    for variable, word in (os.environ if environment is None else environment).items():
        if not variable.startswith(ENV_PREFIX) or variable in NOT_SETTINGS or not word:
            continue
        key = _key_of_variable(variable)
        values[known_field(key, variable).name] = parsed(key, word, variable)
        origins[key] = variable
    for key, raw in (overrides or {}).items():
        if raw is not None:
            values[known_field(key, "flag").name] = checked(key, raw, "flag")
            origins[key] = "flag"
    return Config(home, file, replace(Settings(), **values), sources, origins)


def known_field(key: str, where: object) -> Any:
    """Return the :class:`Settings` field of ``key``; an unknown key is a :class:`ConfigError`."""
    if key in SETTING_FIELDS:
        return SETTING_FIELDS[key]
    near = difflib.get_close_matches(key, SETTING_FIELDS, n=1, cutoff=0.5)
    suggestion = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{where}: unknown setting {key}{suggestion}", "prompt-rag config show")


def checked(key: str, raw: Any, where: str) -> type_of_value:
    """Return ``raw`` as a value of ``key``'s type, or raise :class:`ConfigError`."""
    spec = known_field(key, where)
    wanted = _type_name(spec)
    value: Any = raw
    if wanted == "float" and isinstance(raw, int) and not isinstance(raw, bool):
        # A whole number may be too large for a float, and is then outside every limit anyway.
        value = float(min(max(raw, -sys.maxsize), sys.maxsize))
    if wanted == "tuple":
        strings = isinstance(raw, list | tuple) and all(isinstance(item, str) for item in raw)
        # What is named twice is meant once: two spellings of one choice are one index.
        right, value = strings, tuple(dict.fromkeys(raw)) if strings else raw
    else:
        python_type = {"str": str, "int": int, "float": float, "bool": bool}[wanted]
        right = isinstance(value, python_type) and isinstance(value, bool) == (wanted == "bool")
    if not right:
        words = {"tuple": "a list of strings", "str": "a string", "int": "a whole number"}
        words |= {"float": "a number", "bool": "true or false"}
        raise ConfigError(
            f"{where}: {key} must be {words[wanted]}, not {raw!r}", "prompt-rag config show"
        )
    if isinstance(value, str) and (" " in value or not value.isprintable()):
        raise ConfigError(f"{where}: {key} must be one word, not {raw!r}", "prompt-rag config show")
    _check_limits(key, value, where, spec.metadata)
    return value  # type: ignore[no-any-return]


def _type_name(spec: Any) -> str:
    """Return str, int, float, bool or tuple: what a field's annotation says, without its items."""
    return str(spec.type).removesuffix(" | None").partition("[")[0]


def _check_limits(key: str, value: Any, where: str, limits: Mapping[str, Any]) -> None:
    hint = "prompt-rag config show"
    choices = limits.get("choices")
    for item in value if isinstance(value, tuple) else (value,):
        if choices and item not in choices:
            raise ConfigError(f"{where}: {key} is one of {', '.join(choices)}, not {item!r}", hint)
    if isinstance(value, tuple) and choices and not value:
        raise ConfigError(f"{where}: {key} must name at least one of {', '.join(choices)}", hint)
    low, high = limits.get("at_least"), limits.get("at_most")
    if low is not None and high is not None and not low <= value <= high:
        raise ConfigError(f"{where}: {key} must lie between {low} and {high}, not {value}", hint)


def parsed(key: str, text: str, where: str) -> type_of_value:
    """Return the value that ``text``, from a variable or the command line, means for ``key``."""
    wanted = _type_name(known_field(key, where))
    raw: Any = text
    try:
        if wanted == "int":
            raw = int(text)
        elif wanted == "float":
            raw = float(text)
    except ValueError:
        raw = text  # checked() says what was expected
    if wanted == "bool":
        raw = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    elif wanted == "tuple":
        raw = tuple(part.strip() for part in text.split(",") if part.strip())
    return checked(key, raw, where)


def _key_of_variable(variable: str) -> str:
    """Map ``PROMPT_RAG_HOOK_MAX_CHARS`` to ``hook.max_chars``; unknown names stay readable."""
    name = variable.removeprefix(ENV_PREFIX).lower()
    for key in SETTING_FIELDS:
        if key.replace(".", "_") == name:
            return key
    return name


def _read_toml(file: Path, text: str | None) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8") if text is None else text)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:  # not only TOMLDecodeError: an endless number
        raise ConfigError(f"{file} is not valid TOML: {error}", f"edit {file}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict) and (value or _is_section(f"{prefix}{key}.")):
            flat.extend(_flatten(value, f"{prefix}{key}."))
        else:
            flat.append((prefix + key, value))
    return flat


def _is_section(prefix: str) -> bool:
    return any(key.startswith(prefix) for key in SETTING_FIELDS)


def _expanded(path: str) -> Path:
    """Return ``path`` with ``~`` filled in; one of nobody's stays, as in a shell."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises RuntimeError


def _sources(raw: Any, file: Path) -> tuple[SourceSettings, ...]:
    if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
        raise ConfigError(f"{file}: source must be written as [[source]] tables", f"edit {file}")
    sources = tuple(_source(item, file) for item in raw)
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file}: two sources are named {name}", f"edit {file}")
    return sources


def _source(item: Mapping[str, Any], file: Path) -> SourceSettings:
    allowed = [f.name for f in fields(SourceSettings)]
    name = item.get("name")
    label = f"{file}: source {name!r}"
    for key in item:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.5)
            suggestion = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{label}: unknown key {key}{suggestion}", f"edit {file}")
    kind, path = item.get("kind"), item.get("path")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ConfigError(f"{file}: a source has no name", f"edit {file}")
    if kind not in ("markdown", "bear"):
        raise ConfigError(f"{label}: kind is markdown or bear, not {kind!r}", f"edit {file}")
    if path is not None and not (
        isinstance(path, str) and _expanded(path).is_absolute() and "\0" not in path
    ):
        raise ConfigError(f"{label}: path must be absolute, not {path!r}", f"edit {file}")
    if kind == "markdown" and path is None:
        raise ConfigError(f"{label}: a markdown source needs a path", f"edit {file}")
    lists: dict[str, tuple[str, ...]] = {}
    for key in ("include", "exclude", "exclude_tags"):
        value = item.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise ConfigError(f"{label}: {key} must be a list of strings", f"edit {file}")
        lists[key] = tuple(value)
    return SourceSettings(
        name,
        cast("Literal['markdown', 'bear']", kind),
        _expanded(path) if path is not None else None,
        lists["include"],
        lists["exclude"],
        lists["exclude_tags"],
    )
