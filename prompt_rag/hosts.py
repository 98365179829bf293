"""Agent hosts: what they send to the hook, and the exact bytes they understand.

Each host speaks a dialect of the same conversation: one JSON object on stdin, at most one answer
on stdout. :func:`read` tells from the payload which dialect it is (several hosts run the hooks
that are registered with another one), :func:`untyped` turns away what no person typed, and
:func:`envelope` wraps the text for the host that asked.

This module is on the path of every prompt. It promises to import nothing but the C half of
``json``: the package itself pulls in ``re`` and ``enum`` and costs more than the whole rest of
the client. ``TYPE_CHECKING`` is a plain constant for the same reason, and ``__future__`` is left
alone.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

try:
    from _json import encode_basestring_ascii as _quote
    from _json import make_scanner
except ImportError:  # an interpreter without the C half; slower to start, same results

    def _quote(s: str, /) -> str:
        import json

        return json.dumps(s)

    def _scan(string: str, index: int) -> tuple[Any, int]:
        import json

        return json.JSONDecoder(strict=False).raw_decode(string, index)

else:

    class _Scanning:
        """What the C scanner wants to know; the names are those of ``json.JSONDecoder``."""

        strict = False  # line breaks inside a string are read as they stand
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = float  # NaN and Infinity, which JSON does not know

    _scan = make_scanner(_Scanning)  # type: ignore[arg-type]  # typeshed asks for a scanner itself


# --- reading ----------------------------------------------------------------------------------


def object_in(data: bytes | bytearray) -> dict[str, Any] | None:
    """Return the one JSON object that ``data`` holds as soon as it is whole, else None.

    Made to be called after every read from a host that may keep stdin open: unless the last byte
    could be the end of an object, nothing is parsed, so that a large payload in many pieces costs
    one pass.
    """
    if not data.rstrip(b" \t\r\n").endswith(b"}"):
        return None
    # An odd number of quotes means that the brace stands inside a string; escaped ones do not
    # count. Looking for them is a small part of what parsing costs.
    plain = data.replace(b"\\\\", b"") if b"\\\\" in data else data
    if (plain.count(b'"') - plain.count(b'\\"')) % 2:
        return None
    return parse_object(data)


def parse_object(data: bytes | bytearray) -> dict[str, Any] | None:
    """Return the JSON object in ``data``, or None where there is none, or not exactly one.

    A byte order mark is dropped and bytes that are not UTF-8 become U+FFFD. Strings may still
    hold lone surrogates, which JSON can escape; :func:`read` replaces them in all it hands on.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").strip(" \t\r\n")
    try:
        value, end = _scan(text, 0)
    except Exception:
        # Broken or incomplete JSON (StopIteration, ValueError; SystemError while json.decoder is
        # not loaded), too deep (RecursionError), a number beyond the limit (ValueError).
        return None
    return value if isinstance(value, dict) and end == len(text) else None


class Dialect:
    """How one host asks and how it wants to be answered.

    ``answer`` is the reply with ``@`` where the quoted text goes, "" for plain text; ``nothing``
    is the reply where there is nothing to say. ``prompt_keys`` and ``session_keys`` are tried in
    order. From ``ends_at`` on, the prompt holds what the host put there itself.
    """

    __slots__ = ("answer", "ends_at", "nothing", "prompt_event", "prompt_keys", "session_keys")

    def __init__(
        self,
        answer: str,
        nothing: bytes = b"",
        *,
        prompt_event: str = "UserPromptSubmit",
        prompt_keys: tuple[str, ...] = ("prompt",),
        session_keys: tuple[str, ...] = ("session_id", "sessionId"),
        ends_at: str = "",
    ) -> None:
        self.answer = answer
        self.nothing = nothing
        self.prompt_event = prompt_event
        self.prompt_keys = prompt_keys
        self.session_keys = session_keys
        self.ends_at = ends_at


# A top-level additionalContext is dropped by Claude Code and makes Codex refuse the whole reply.
_NESTED = '{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":@}}'

DIALECTS = {
    "claude": Dialect(_NESTED),
    "codex": Dialect(_NESTED),
    "vscode": Dialect(_NESTED),
    # Absent where the host does not know what was typed.
    "qwen": Dialect(_NESTED, prompt_keys=("submitted_prompt", "prompt")),
    "gemini": Dialect(
        _NESTED.replace("UserPromptSubmit", "BeforeAgent"),
        prompt_event="BeforeAgent",
        ends_at="--- Content from referenced files ---",
    ),
    # Documented nowhere, seen at work in client 3.20.17.
    "cursor": Dialect(
        '{"continue":true,"additional_context":@}',
        b"{}",
        prompt_event="beforeSubmitPrompt",
        session_keys=("conversation_id", "session_id"),
    ),
    # Its documents contradict each other on the shape, so it is given both.
    "copilot": Dialect('{"additionalContext":@,' + _NESTED[1:], b"{}"),
    # Gives no prompt, only the path of a transcript; until that is read it is told nothing.
    "agy": Dialect(
        '{"injectSteps":[{"ephemeralMessage":@}]}',
        b"{}",
        prompt_event="PreInvocation",
        session_keys=("conversationId",),
    ),
    "kimi": Dialect(""),
}
"""Every host whose hook can inject, by the name ``--host`` takes."""

# Keys that give a host away, surest first, and the hosts that send them: the first of these,
# unless the hint names another one.
_SIGNS = (
    (("cursor_version",), ("cursor",)),
    (("conversationId", "invocationNum"), ("agy",)),
    (("sessionId", "hookEventName"), ("vscode", "copilot")),
    (("sessionId",), ("copilot", "vscode")),
    (("submitted_prompt",), ("qwen",)),
    (("prompt_id",), ("claude",)),
    (("turn_id", "model"), ("codex",)),
    (("timestamp", "transcript_path"), ("vscode", "qwen", "gemini", "copilot")),
    (("timestamp",), ("copilot", "vscode", "qwen", "gemini")),
)

PROMPT, TOUCHED, SESSION_START, OTHER = "prompt", "touched", "session-start", "other"
_EVENTS = {
    "UserPromptSubmit": PROMPT,
    "userPromptSubmitted": PROMPT,
    "beforeSubmitPrompt": PROMPT,
    "BeforeAgent": PROMPT,
    "PreInvocation": PROMPT,
    "PostToolUse": TOUCHED,
    "postToolUse": TOUCHED,
    "AfterTool": TOUCHED,
    "afterFileEdit": TOUCHED,
    "FileChanged": TOUCHED,
    "SessionStart": SESSION_START,
    "sessionStart": SESSION_START,
}


class Call:
    """One call of the hook, the same for every host.

    ``event`` is one of "prompt", "touched", "session-start", "other". Text that a payload lacks,
    or that is not text, is "". ``session_source`` says why a session started ("startup",
    "resume", "clear", "compact", …). ``paths`` are the files of an edit, absolute where the
    payload or its ``cwd`` allows.
    """

    __slots__ = ("cwd", "event", "host", "paths", "prompt", "session", "session_source")

    def __init__(
        self,
        host: str,
        event: str,
        *,
        prompt: str = "",
        session: str = "",
        cwd: str = "",
        session_source: str = "",
        paths: tuple[str, ...] = (),
    ) -> None:
        self.host = host
        self.event = event
        self.prompt = prompt
        self.session = session
        self.cwd = cwd
        self.session_source = session_source
        self.paths = paths


def read(payload: dict[str, Any], host_hint: str) -> Call:
    """Return what ``payload`` asks. The payload decides on the host, ``host_hint`` only helps.

    Never raises: a value of the wrong type counts as absent.
    """
    name = _text(payload, ("hook_event_name", "hookEventName"))
    event = _EVENTS.get(name, OTHER) if name else _event_without_name(payload)
    host = _host(payload, name, event, host_hint)
    dialect = DIALECTS[host]
    prompt = ""
    if event == PROMPT:
        prompt = _prompt(payload, dialect)
    cwd = _text(payload, ("cwd",)) or _first(payload, ("workspace_roots", "workspacePaths"))
    return Call(
        host,
        event,
        prompt=prompt,
        session=_text(payload, dialect.session_keys),
        cwd=cwd,
        session_source=_text(payload, ("source",)) if event == SESSION_START else "",
        paths=_paths(payload, cwd) if event == TOUCHED else (),
    )


def _host(payload: dict[str, Any], name: str, event: str, hint: str) -> str:
    """Return the name in ``DIALECTS`` of the host that sent ``payload``."""
    if name in ("BeforeAgent", "AfterTool"):
        return "gemini"
    if _text(payload, ("client_type",)).startswith("kimi"):
        return "kimi"
    for keys, hosts in _SIGNS:
        if all(key in payload for key in keys):
            return hint if hint in hosts else hosts[0]
    if hint not in DIALECTS or (event == PROMPT and name not in ("", DIALECTS[hint].prompt_event)):
        return "claude"
    return hint


def _event_without_name(payload: dict[str, Any]) -> str:
    """Return the event of a host that does not name it (Copilot CLI, Antigravity)."""
    if "toolName" in payload or "toolArgs" in payload:
        return TOUCHED
    if "prompt" in payload or "invocationNum" in payload:
        return PROMPT
    return SESSION_START if "source" in payload else OTHER


def _prompt(payload: dict[str, Any], dialect: Dialect) -> str:
    """Return the prompt as the person wrote it, "" where there is none."""
    given: Any = ""
    for key in dialect.prompt_keys:
        if isinstance(payload.get(key), str | list):
            given = payload[key]
            break
    if isinstance(given, list):  # Kimi sends parts, some of them pictures
        texts = [part.get("text") for part in given if isinstance(part, dict)]
        given = "\n".join(text for text in texts if isinstance(text, str))
    if dialect.ends_at:
        given = given.partition(dialect.ends_at)[0]
    return _whole(given)


def _text(payload: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first of ``keys`` that holds text, "" where none does."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return _whole(value)
    return ""


def _first(payload: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first member of the first list among ``keys`` that begins with text."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, list) and value and isinstance(value[0], str):
            return _whole(value[0])
    return ""


def _whole(text: str) -> str:
    """Return ``text`` with U+FFFD for lone surrogates, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    return text


_TOOL_KEYS = ("tool_input", "toolArgs", "toolInput")
_PATH_KEYS = ("file_path", "filePath", "path")
_PATCH_KEYS = ("command", "input", "patch")
_PATCH_HEADS = ("*** Update File:", "*** Add File:", "*** Delete File:", "*** Move to:")


def _paths(payload: dict[str, Any], cwd: str) -> tuple[str, ...]:
    """Return the files that an edit touched, each once, in the order of the payload."""
    found = [_text(payload, ("file_path",))]
    for key in _TOOL_KEYS:
        given = payload.get(key)
        if isinstance(given, str):  # Copilot's arguments are JSON in a string, or a bare patch
            given = parse_object(given.encode("utf-8", "replace")) or {"patch": given}
        if isinstance(given, dict):
            found.append(_text(given, _PATH_KEYS))
            for patch_key in _PATCH_KEYS:
                found += _patched(_text(given, (patch_key,)))
    paths = [path for path in found if path]
    if cwd:
        import os  # only after an edit, where nobody waits

        paths = [os.path.join(cwd, path) for path in paths]
    return tuple(dict.fromkeys(paths))


def _patched(patch: str) -> list[str]:
    """Return the paths that a Codex patch names."""
    if "*** Begin Patch" not in patch:
        return []
    return [
        line.partition(":")[2].strip()
        for line in patch.split("\n")
        if line.startswith(_PATCH_HEADS)
    ]


# --- what no person typed ----------------------------------------------------------------------

# Wrappers that agents put around what a program said, in lower case. Claude Code's notifications,
# command output and team messages make up a third of all firings; Codex marks its own texts alike.
_MACHINE_MARKS = (
    "<task-notification",
    "<system-reminder",
    "<system-notification",
    "[system notification",
    "<teammate-message",
    "<agent-message",
    "<cross-session-message",
    "<local-command-stdout",
    "<local-command-stderr",
    "<local-command-caveat",
    "<command-name",
    "<command-message",
    "<command-args",
    "<bash-input",
    "<bash-stdout",
    "<bash-stderr",
    "stop hook feedback:",
    "this session is being continued from a previous conversation",
    "<user-prompt-submit-hook",
    "<hook_context",
    "<environment_context",
    "<user_instructions",
    "<subagent_notification",
    "<turn_aborted",
)
_MARK_REACH = 400  # characters; a wrapper opens the prompt or follows a line or two of preamble

# First folders of absolute paths: "/tmp is full" is a sentence, "/deploy staging" a command.
_ROOTS = (
    " applications bin boot data dev etc home lib lib64 library media mnt nix opt private proc root"
    " run sbin srv sys system tmp users usr var volumes "
)
_COMMAND_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_:")
_BANG_SENTENCES = ("!=", "![")  # an operator, a picture


def untyped(prompt: str) -> str:
    """Return why ``prompt`` is nothing a person asked, or "" where a person did.

    "empty", "machine-prompt" (a wrapper of ``_MACHINE_MARKS`` at the start of a line near the
    beginning; quoted inside a line it is a person's word) or "command" (``/word …``, ``!cmd``).
    A leading ``#`` is not turned away: the memory shortcut of some hosts writes a file and submits
    no prompt, while a heading often opens a prompt that was written elsewhere.
    """
    head = prompt.lstrip()[:_MARK_REACH]
    if not head:
        return "empty"
    for line in head.split("\n"):
        if line.lstrip().lower().startswith(_MACHINE_MARKS):
            return "machine-prompt"
    if head[0] == "!" and not head.startswith(_BANG_SENTENCES):
        return "command"
    return "command" if _is_slash_command(head) else ""


def _is_slash_command(head: str) -> bool:
    """Whether ``head`` begins with ``/word``, and that is not the beginning of a path."""
    words = head.split(None, 2)
    name = words[0][1:].lower()
    if head[0] != "/" or not name[:1].isalpha() or not _COMMAND_LETTERS.issuperset(name):
        return False
    return len(words) == 1 or f" {name} " not in _ROOTS


# --- answering ---------------------------------------------------------------------------------


def envelope(call: Call, text: str) -> bytes:
    """Return the bytes to print so that ``text`` reaches the model of ``call``'s host.

    One line of JSON in pure ASCII, whatever the text: some hosts decode piece by piece and would
    halve a longer character. There is no line break behind it, because it must end in ``}``.
    A host that reads plain text gets UTF-8.
    """
    answer = DIALECTS[call.host].answer
    if not answer:
        return _whole(text).encode()
    return answer.replace("@", _quote(text)).encode("ascii")


def nothing(call: Call) -> bytes:
    """Return the bytes to print where there is nothing to inject, often none at all."""
    return DIALECTS[call.host].nothing
