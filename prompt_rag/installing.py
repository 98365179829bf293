"""``install`` and ``uninstall``: our hooks in the settings of every agent host we know.

What differs between hosts is a record each in :data:`HOSTS`; how entries are written is the
business of :mod:`prompt_rag.registration`, what happens to the file that of
:mod:`prompt_rag.settingsfile`. The command that is written is one path that never changes, the
launcher in our home: hosts ask for trust anew when a command changes, and an upgrade must not be
such a change.

Installing twice is installing once. Uninstalling gives back the bytes that were found, or, where a
person has edited the file since, takes only our entries out. Settings go before the launcher, so
that no host ever calls a program that is gone.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from prompt_rag import fsio, jsonc, launch, registration, settingsfile
from prompt_rag.domain import ConfigError
from prompt_rag.registration import Command, Entry, Form, JsonForm, PluginForm, TomlForm
from prompt_rag.settingsfile import Change, SettingsFile

PLUGIN_NAME = "prompt-rag"
"""What the plugin for Claude Code is called; ``enabledPlugins`` has it with its marketplace."""

LAUNCHER_MODE = 0o755

PROMPT_SECONDS = 10  # of a host's patience; the hook itself ends at hook.deadline_seconds
TOUCHED_SECONDS = 30  # nobody waits for it
PER_SECOND = 1000  # milliseconds

Style = Literal["exec", "shell", "bash"]


@dataclass(frozen=True, slots=True)
class Event:
    """A moment at which a host calls the hook; ``matcher`` are the tools that edit files.

    ``more`` are fields that only this entry has.
    """

    name: str
    matcher: str = ""
    seconds: int = PROMPT_SECONDS
    more: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """One agent host and what its settings want.

    ``settings`` is the path of its file below the folder ``base`` (a variable the host itself
    reads, else a folder in the user's home); the host is taken to be here where ``sign`` exists
    below it. ``style`` says how a command is written: ``exec`` as program and arguments, ``shell``
    as a line for a shell, ``bash`` likewise under that name. ``units`` are the timeout's, for a
    second. ``then`` is what the person has to do or know afterwards.
    """

    name: str
    title: str
    base: tuple[str, str]
    settings: str
    form: Form
    events: tuple[Event, ...]
    style: Style = "shell"
    timeout: str = "timeout"
    units: int = 1
    fields: Mapping[str, Any] | None = None
    sign: str = ""
    experimental: bool = False
    shares_with: str = ""
    then: str = ""

    @property
    def folder(self) -> Path:
        """The folder in which the host keeps what is the user's."""
        variable, below_home = self.base
        named = os.environ.get(variable, "") if variable else ""
        return Path(named).expanduser().absolute() if named else Path.home() / below_home

    @property
    def path(self) -> Path:
        """The settings file that is edited."""
        return self.folder / self.settings

    @property
    def is_here(self) -> bool:
        """Whether this person seems to use the host."""
        # By its spelling: the folder itself may be missing.
        return Path(os.path.normpath(self.folder / self.sign)).exists()


_GROUPS = JsonForm(grouped=True)
_TYPED = {"type": "command"}


def _template(name: str) -> str:
    return resources.files("prompt_rag").joinpath("data", name).read_text("utf-8")


HOSTS = {
    host.name: host
    for host in (
        Host(
            "claude",
            "Claude Code",
            ("CLAUDE_CONFIG_DIR", ".claude"),
            "settings.json",
            _GROUPS,
            (
                Event("UserPromptSubmit"),
                Event("SessionStart"),
                Event("PostToolUse", "Write|Edit", TOUCHED_SECONDS, {"async": True}),
            ),
            style="exec",
            fields=_TYPED,
        ),
        Host(
            "codex",
            "Codex CLI",
            ("CODEX_HOME", ".codex"),
            "hooks.json",
            _GROUPS,
            (
                Event("UserPromptSubmit"),
                Event("SessionStart"),
                Event("PostToolUse", "Edit|Write", TOUCHED_SECONDS),
            ),
            fields=_TYPED,
            then="Codex runs a new hook only after you have looked at it: type /hooks there once.",
        ),
        Host(
            "vscode",
            "VS Code agent mode",
            ("", ".copilot"),
            "hooks/prompt-rag.json",
            JsonForm(grouped=False),
            # It ignores matchers: the edit hook is called after every tool.
            (
                Event("UserPromptSubmit"),
                Event("SessionStart"),
                Event("PostToolUse", "", TOUCHED_SECONDS),
            ),
            fields=_TYPED,
            sign="../.vscode",
            shares_with="copilot",
        ),
        Host(
            "qwen",
            "Qwen Code",
            ("", ".qwen"),
            "settings.json",
            _GROUPS,
            (Event("UserPromptSubmit"), Event("PostToolUse", "write_file|edit", TOUCHED_SECONDS)),
            style="exec",
            # Older versions read milliseconds; newer ones do from 1000 on.
            units=PER_SECOND,
            fields=_TYPED,
        ),
        Host(
            "cursor",
            "Cursor",
            ("", ".cursor"),
            "hooks.json",
            JsonForm(grouped=False, version=1),
            (
                Event("beforeSubmitPrompt"),
                Event("sessionStart"),
                Event("afterFileEdit", "", TOUCHED_SECONDS),
            ),
            then="Cursor does not document that hooks may add text to a prompt; 3.20 lets them.",
        ),
        Host(
            "gemini",
            "Gemini CLI",
            ("", ".gemini"),
            "settings.json",
            _GROUPS,
            (
                Event("BeforeAgent"),
                Event("AfterTool", "write_file|replace", TOUCHED_SECONDS),
            ),
            units=PER_SECOND,
            fields={**_TYPED, "name": PLUGIN_NAME},
            sign="settings.json",  # Antigravity uses the folder too
        ),
        Host(
            "kimi",
            "Kimi Code CLI",
            ("", ".kimi-code"),
            "config.toml",
            TomlForm(),
            (Event("UserPromptSubmit"),),
            then="Kimi shows what a hook adds to a prompt to you as well.",
        ),
        Host(
            "opencode",
            "OpenCode",
            ("XDG_CONFIG_HOME", ".config"),
            "opencode/plugins/prompt-rag.js",
            PluginForm(_template("opencode.js")),
            (Event("prompt"),),
            style="exec",
            sign="opencode",
        ),
        Host(
            "copilot",
            "Copilot CLI",
            ("", ".copilot"),
            "hooks/prompt-rag.json",
            JsonForm(grouped=False, version=1),
            (
                Event("userPromptSubmitted"),
                Event("sessionStart"),
                Event("postToolUse", "create|edit", TOUCHED_SECONDS),
            ),
            style="bash",
            timeout="timeoutSec",
            fields=_TYPED,
            experimental=True,
            shares_with="vscode",
            then="Experimental: whether Copilot CLI shows its model the notes differs by version.",
        ),
    )
}
"""Every host that `install` knows, by the name it takes, those that are tried out first."""

REFUSED = {
    "antigravity": "it gives hooks no prompt, only a transcript, and prompt-rag reads none yet",
    "cline": "its command line drops what a prompt hook answers",
    "goose": "it drops what hooks answer",
    "grok": "it drops what hooks answer",
    "windsurf": "its hooks can block a prompt, but not add to it",
}
"""Hosts that would run the hook for nothing, and why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of one host's settings file. ``then`` is what the person should know."""

    host: Host
    change: Change
    then: str = ""


def named(name: str) -> Host:
    """Return the host called ``name``. Raises :class:`ConfigError` where it is of no use."""
    if name in REFUSED:
        raise ConfigError(f"{name} cannot be served: {REFUSED[name]}")
    if name not in HOSTS:
        raise ConfigError(f"no host is called {name}; there are: {', '.join(HOSTS)}")
    return HOSTS[name]


def launcher_path(home: Path) -> Path:
    """Return the path that goes into every host's settings, the same for ever."""
    return home / "bin" / "prompt-rag-hook"


def write_launcher(home: Path) -> Path:
    """Write the launcher for this interpreter and this package, and return its path.

    Raises OSError.
    """
    path = launcher_path(home)
    fsio.private_folder(str(path.parent))
    data = launch.launcher(sys.executable, launch.PARENT, str(home))
    if not path.is_file() or path.read_bytes() != data or not os.access(path, os.X_OK):
        fsio.write_atomic(str(path), data, LAUNCHER_MODE)
        path.chmod(LAUNCHER_MODE)
    return path


def remove_launcher(home: Path) -> bool:
    """Remove the launcher unless a host's settings still name it; return whether it is gone.

    Settings that cannot be read may name it. Raises OSError.
    """
    path = launcher_path(home)
    for host in HOSTS.values():
        try:
            used = any(command[0] == str(path) for command in commands(host))
        except ConfigError:
            used = True
        if used:
            return False
    path.unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it, or it is not there
        path.parent.rmdir()
    return True


def commands(host: Host) -> list[Command]:
    """Return what ``host`` runs of ours, program and arguments, one for each entry.

    Raises :class:`ConfigError` where its settings cannot be read or do not parse.
    """
    file = settingsfile.read(host.path)
    return [registration.command_of(each.fields) for each in _found(host, file)]


def entries(host: Host, home: Path) -> tuple[Entry, ...]:
    """Return what ``host``'s settings should hold of ours."""
    command = [str(launcher_path(home)), registration.HOST_OPTION, host.name]
    by_style: dict[Style, dict[str, Any]] = {
        "exec": {"command": command[0], "args": command[1:]},
        "shell": {"command": shlex.join(command)},
        "bash": {"bash": shlex.join(command)},
    }
    return tuple(
        Entry(
            event.name,
            event.matcher,
            {
                **(host.fields or {}),
                **by_style[host.style],
                **(event.more or {}),
                host.timeout: event.seconds * host.units,
            },
        )
        for event in host.events
    )


def install(host: Host, home: Path) -> Plan:
    """Plan ``host``'s settings with our entries, and no others of ours.

    Raises :class:`ConfigError` where the file cannot be read, does not parse, or must not have
    them.
    """
    if said := _unspeakable(home):
        raise ConfigError(f"{said} is not UTF-8 and cannot be written into settings")
    file = settingsfile.read(host.path)
    found = _found(host, file)
    _refuse_double(host, file)
    wanted = entries(host, home)
    text = _text(file)
    if host.form.is_current(text, wanted) and found:
        after = file.data
    else:
        after = _with_ours(host, home, file, file.data)
    return Plan(host, Change(file, after), _switched_off(text) or host.then)


def uninstall(host: Host, home: Path) -> Plan:
    """Plan ``host``'s settings without any entry of ours.

    They become what they were, if nobody has edited them since, and go where they were made for us.

    Raises :class:`ConfigError` where the file cannot be read or does not parse.
    """
    file = settingsfile.read(host.path)
    if not _found(host, file):
        return Plan(host, Change(file, file.data))
    if file.backup is not None and _with_ours(host, home, file, file.backup) == file.data:
        return Plan(host, Change(file, _without_ours(host, file, file.backup)))
    after = _without_ours(host, file, file.data or b"")
    if file.backup is None and host.form.is_husk(after.decode()):
        return Plan(host, Change(file, None))
    return Plan(host, Change(file, after))


# --- one file -----------------------------------------------------------------------------------


def _text(file: SettingsFile) -> str:
    return settingsfile.text_of(file.path, file.data or b"")


def _found(host: Host, file: SettingsFile) -> list[Entry]:
    """Return our entries that are there for ``host``."""
    with _refusing(host, file):
        found = host.form.found(_text(file))
    return [] if _is_of(host.shares_with, found) else found


def _is_of(name: str, found: list[Entry]) -> bool:
    return any(name in registration.command_of(each.fields) for each in found)


def _with_ours(host: Host, home: Path, file: SettingsFile, data: bytes | None) -> bytes:
    mark, text = _split(file, data or b"")
    with _refusing(host, file):
        return mark + host.form.add(host.form.remove(text), entries(host, home)).encode()


def _without_ours(host: Host, file: SettingsFile, data: bytes) -> bytes:
    mark, text = _split(file, data)
    with _refusing(host, file):
        return mark + host.form.remove(text).encode()


def _split(file: SettingsFile, data: bytes) -> tuple[bytes, str]:
    mark = settingsfile.BOM if data.startswith(settingsfile.BOM) else b""
    return mark, settingsfile.text_of(file.path, data)


@contextmanager
def _refusing(host: Host, file: SettingsFile) -> Iterator[None]:
    try:
        yield
    except registration.UNFIT as error:
        raise ConfigError(
            f"{file.path} is left alone, it is not what {host.title} reads: {error}",
            f"edit {file.path}",
        ) from error


# --- what stands against it ---------------------------------------------------------------------


def _unspeakable(home: Path) -> str:
    """Return the path of ``home`` where it cannot be written as UTF-8, in a form that can."""
    said = os.fsencode(home).decode("utf-8", "replace")
    return said if said != str(home) else ""


def _refuse_double(host: Host, file: SettingsFile) -> None:
    """Raise :class:`ConfigError` where the host would run the hook twice."""
    with _refusing(host, file):
        found = host.form.found(_text(file))
    if host.shares_with and _is_of(host.shares_with, found):
        other = HOSTS[host.shares_with]
        raise ConfigError(
            f"{host.title} reads the hooks that are installed for {other.title} already",
            f"prompt-rag uninstall {other.name}",
        )
    plugins = _member(_text(file), "enabledPlugins")
    for name, enabled in plugins.items() if isinstance(plugins, dict) else ():
        if enabled and name.partition("@")[0] == PLUGIN_NAME:
            raise ConfigError(
                f"the plugin {name} provides the hook already; both would run it twice",
                f"claude plugin uninstall {name}",
            )


def _switched_off(text: str) -> str:
    if _member(text, "disableAllHooks") is True:
        return "Hooks are switched off there: disableAllHooks is true."
    return ""


def _member(text: str, name: str) -> Any:
    """Return a member of a JSON document, None where there is none or it is no such document."""
    try:
        document = jsonc.parse(text).value
    except jsonc.Malformed:
        return None
    return document.get(name) if isinstance(document, dict) else None
