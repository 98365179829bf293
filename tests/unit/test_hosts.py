"""Every host's payload as recorded, and the exact bytes it is answered with."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_rag import hosts

PAYLOADS = Path(__file__).parents[2] / "fixtures" / "hosts"
ASKED = "how do we rotate the wiki token"
NESTED = b'{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"CTX"}}'


def recorded(name: str, hint: str = "") -> hosts.Call:
    payload = hosts.parse_object((PAYLOADS / f"{name}.json").read_bytes())
    assert payload is not None
    return hosts.read(payload, hint or name.split("/", maxsplit=1)[0])


def wire(**payload: object) -> bytes:
    return json.dumps(payload).encode()


# --- one prompt, every host ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cwd", "hit", "nothing"),
    [
        ("claude/prompt", "/p", NESTED, b""),
        ("claude/prompt-old", "/p", NESTED, b""),
        ("codex/prompt", "/p", NESTED, b""),
        ("vscode/prompt", "", NESTED, b""),
        ("vscode/prompt-camel", "/p", NESTED, b""),
        ("qwen/prompt", "/p", NESTED, b""),
        ("gemini/prompt", "/p", NESTED.replace(b"UserPromptSubmit", b"BeforeAgent"), b""),
        ("cursor/prompt", "/p", b'{"continue":true,"additional_context":"CTX"}', b"{}"),
        ("copilot/prompt", "/p", b'{"additionalContext":"CTX",' + NESTED[1:], b"{}"),
        ("copilot/prompt-pascal", "/p", b'{"additionalContext":"CTX",' + NESTED[1:], b"{}"),
    ],
)
def test_recorded_prompt(name: str, cwd: str, hit: bytes, nothing: bytes) -> None:
    call = recorded(name)

    assert call.host == name.split("/", maxsplit=1)[0]
    assert call.event == "prompt"
    assert call.prompt.strip() == ASKED
    assert call.session == "s-1"
    assert call.cwd == cwd
    assert call.paths == ()
    assert hosts.envelope(call, "CTX") == hit
    assert hosts.nothing(call) == nothing


def test_kimi_sends_parts_and_reads_plain_text() -> None:
    call = recorded("kimi/prompt")

    assert (call.host, call.event, call.session) == ("kimi", "prompt", "s-1")
    assert call.prompt == "how do we rotate\nthe wiki token"
    assert hosts.envelope(call, "Notes, 表 \ud83d") == "Notes, 表 \ufffd".encode()
    assert hosts.nothing(call) == b""


def test_antigravity_gives_no_prompt_and_gets_its_empty_answer() -> None:
    call = recorded("agy/invocation")

    assert (call.host, call.event, call.session, call.cwd) == ("agy", "prompt", "s-1", "/p")
    assert hosts.untyped(call.prompt) == "empty"
    assert hosts.nothing(call) == b"{}"
    assert hosts.envelope(call, "CTX") == b'{"injectSteps":[{"ephemeralMessage":"CTX"}]}'


@pytest.mark.parametrize("hint", ["claude", "codex", "kimi", "nobody", ""])
@pytest.mark.parametrize(
    "name",
    [
        path.relative_to(PAYLOADS).with_suffix("").as_posix()
        for path in PAYLOADS.glob("*/prompt*.json")
    ],
)
def test_payload_wins_over_the_hint(name: str, hint: str) -> None:
    host = name.split("/", maxsplit=1)[0]
    if (name, hint) in {("claude/prompt-old", "codex"), ("claude/prompt-old", "kimi")}:
        host = hint  # nothing in this payload says that it is not theirs
    assert recorded(name, hint or "nobody").host == host


def test_hint_decides_between_hosts_that_send_the_same_keys() -> None:
    payload = {"hook_event_name": "UserPromptSubmit", "timestamp": "x", "transcript_path": "/t"}
    assert hosts.read(payload, "qwen").host == "qwen"
    assert hosts.read(payload, "claude").host == "vscode"


def test_hint_of_a_host_that_calls_its_prompt_event_otherwise_is_not_believed() -> None:
    payload = {"hook_event_name": "UserPromptSubmit", "prompt": "x", "session_id": "s"}
    assert hosts.read(payload, "cursor").host == "claude"
    assert hosts.read(payload, "gemini").host == "claude"


def test_qwen_prompt_where_nothing_says_what_was_typed() -> None:
    payload = {"hook_event_name": "UserPromptSubmit", "timestamp": "t", "prompt": "asked"}
    assert hosts.read(payload, "qwen").prompt == "asked"


# --- other events -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("claude/touched", ("/n/a.md",)),
        ("claude/file-changed", ("/n/a.md",)),
        ("codex/touched", ("/p/notes/a.md", "/p/notes/b.md", "/n/c.md", "/p/d.md")),
        ("vscode/touched", ("/n/a.md",)),
        ("gemini/touched", ("/p/a.md",)),
        ("cursor/touched", ("/n/a.md",)),
        ("copilot/touched", ("/n/a.md",)),
    ],
)
def test_recorded_edit(name: str, paths: tuple[str, ...]) -> None:
    call = recorded(name)

    assert call.host == name.split("/", maxsplit=1)[0]
    assert call.event == "touched"
    assert call.paths == paths
    assert call.prompt == ""


@pytest.mark.parametrize(
    ("tool", "paths"),
    [
        ({"command": "cat *** Update File: a.md"}, ()),  # a shell command, not a patch
        ({"file_path": "a.md", "path": "b.md"}, ("a.md",)),
        ({"input": "*** Begin Patch\r\n*** Update File: a.md\r\n"}, ("a.md",)),
        ("*** Begin Patch\n*** Add File: a.md\n+x\n", ("a.md",)),
        ("not a patch", ()),
        (["a.md"], ()),
        (None, ()),
    ],
)
def test_paths_of_a_tool(tool: object, paths: tuple[str, ...]) -> None:
    assert hosts.read({"toolName": "edit", "toolArgs": tool}, "copilot").paths == paths


@pytest.mark.parametrize(("name", "source"), [("claude", "compact"), ("copilot", "new")])
def test_recorded_session_start(name: str, source: str) -> None:
    call = recorded(f"{name}/session-start")
    assert (call.event, call.session_source, call.session) == ("session-start", source, "s-1")


def test_unknown_events_are_other() -> None:
    assert hosts.read({"hook_event_name": "Stop", "prompt": "x"}, "claude").event == "other"
    assert hosts.read({}, "claude").event == "other"
    assert hosts.read({}, "cursor").host == "cursor"


# --- input that is not what it should be --------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"not json",
        b'"text"',
        b"[1]",
        b"12",
        b"null",
        b'{"prompt":"x"',
        b'{"prompt":"x"} {"prompt":"y"}',
        b'{"prompt":"x"} trailing',
        b'{"prompt":"\\u12"}',
        b'{"prompt" "x"}',
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"a":' + b"[" * 100_000 + b"}",
        b'{"a":' + b"9" * 5_000 + b"}",
        "{}".encode("utf-16"),
    ],
    ids=range(16),
)
def test_no_object(data: bytes) -> None:
    assert hosts.parse_object(data) is None
    assert hosts.object_in(bytearray(data)) is None


def test_odd_input_that_is_an_object_all_the_same() -> None:
    assert hosts.parse_object(b"\xef\xbb\xbf {}\r\n") == {}
    assert hosts.parse_object(b'{"prompt":"a\nb\x00"}') == {"prompt": "a\nb\x00"}
    assert hosts.parse_object(b'{"prompt":"\xff\xfe"}') == {"prompt": "\ufffd\ufffd"}
    assert hosts.parse_object(b'{"a":-Infinity,"b":1e400}') == {
        "a": -float("inf"),
        "b": float("inf"),
    }


def test_no_lone_surrogate_survives() -> None:
    call = recorded("claude/lone-surrogate")
    assert call.prompt == 'the \ufffd token of the 表 wiki 🏠 said "no"'

    call = hosts.read(
        {
            "hook_event_name": "PostToolUse",
            "session_id": "\ud83d",
            "cwd": "/\udc00",
            "file_path": "\ud83d",
        },
        "claude",
    )
    assert (call.session, call.cwd, call.paths) == ("\ufffd", "/\ufffd", ("/\ufffd/\ufffd",))


words = st.text('a{}"\\/\n表\ud83d', max_size=5)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=4,
)
KEYS = [
    "hook_event_name",
    "hookEventName",
    "prompt",
    "submitted_prompt",
    "session_id",
    "sessionId",
    "conversation_id",
    "conversationId",
    "invocationNum",
    "client_type",
    "cwd",
    "workspace_roots",
    "workspacePaths",
    "source",
    "file_path",
    "tool_input",
    "toolArgs",
    "toolName",
    "cursor_version",
    "timestamp",
    "transcript_path",
    "turn_id",
    "model",
    "prompt_id",
]


@settings(deadline=None)
@given(
    payload=st.dictionaries(
        st.sampled_from(KEYS), anything | st.sampled_from(sorted(hosts._EVENTS)), max_size=8
    ),
    hint=st.sampled_from([*hosts.DIALECTS, "", "nobody"]),
)
def test_wrong_types_never_raise(payload: dict[str, object], hint: str) -> None:
    call = hosts.read(payload, hint)

    assert call.host in hosts.DIALECTS
    assert call.event in {"prompt", "touched", "session-start", "other"}
    for text in (call.prompt, call.session, call.cwd, call.session_source, *call.paths):
        text.encode()
    hosts.untyped(call.prompt)
    hosts.envelope(call, call.prompt)
    hosts.nothing(call)


# --- reading until the object is whole ----------------------------------------------------------


@settings(deadline=None)
@given(
    st.dictionaries(words, anything, min_size=1, max_size=4),
    st.sampled_from(["", "\n", "\r\n ", "\t"]),
    st.booleans(),
)
def test_object_is_seen_with_its_last_byte_and_not_before(
    payload: dict[str, object], tail: str, ascii_only: bool
) -> None:
    data = json.dumps(payload, ensure_ascii=ascii_only).encode("utf-8", "replace")
    for end in range(len(data)):
        assert hosts.object_in(bytearray(data[:end])) is None
    assert hosts.object_in(bytearray(data + tail.encode())) is not None


@pytest.mark.parametrize("wall", ["}", '"}', "\\}", '\\"}', "word ", " "])
def test_five_megabytes_in_pieces_are_parsed_once(
    monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    parse, parsed = hosts.parse_object, []
    monkeypatch.setattr(hosts, "parse_object", lambda data: parsed.append(1) or parse(data))
    data = wire(hook_event_name="UserPromptSubmit", prompt=wall * (5_000_000 // len(wall)))
    arrived = bytearray()
    found = []
    for start in range(0, len(data), 65_536):
        arrived += data[start : start + 65_536]
        found.append(hosts.object_in(arrived))
    assert len(parsed) == 1
    assert found[-1] is not None
    assert not any(found[:-1])


# --- what no person typed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        (
            "<task-notification>\n<task-id>b1</task-id>\nwiki token</task-notification>",
            "machine-prompt",
        ),
        ("\n  <task-notification>x", "machine-prompt"),
        ("A task finished.\n<task-notification>x", "machine-prompt"),
        ("<system-reminder>x</system-reminder>", "machine-prompt"),
        ("[SYSTEM NOTIFICATION - NOT USER INPUT] x", "machine-prompt"),
        ("<local-command-stdout>wiki token</local-command-stdout>", "machine-prompt"),
        ("<command-name>/compact</command-name>", "machine-prompt"),
        ("<bash-stdout>x</bash-stdout>", "machine-prompt"),
        ('<teammate-message teammate_id="a">x', "machine-prompt"),
        ("/compact", "command"),
        ("/deploy staging", "command"),
        ("/notes:recall wiki token", "command"),
        ("/mcp__notes__search x\nmore", "command"),
        ("/tmp", "command"),
        ("! ls", "command"),
        ("!ls -la", "command"),
        (ASKED, ""),
        ("why do I see <task-notification> in the log?", ""),
        ("why do I see\n `<task-notification>` in the log?", ""),
        ("x" * 400 + "\n<task-notification>", ""),
        ("/etc/hosts is missing, why?", ""),
        ("/tmp is full, what can go?", ""),
        ("/Users/me/x.md has no title", ""),
        ("/readme.md lacks a title", ""),
        ("/ is full", ""),
        ("// what does this comment mean", ""),
        ("/2 of the disk is used", ""),
        ("!= or !== here?", ""),
        ("![shot](a.png) what is this", ""),
        ("# Plan\nmove the wiki", ""),
        ("#42 still fails", ""),
        ("<div> does not close", ""),
    ],
)
def test_untyped(prompt: str, reason: str) -> None:
    assert hosts.untyped(prompt) == reason


@pytest.mark.parametrize("unit", ["a", "\n", " ", "<", "/a", "\n<"])
def test_untyped_is_quick_on_five_megabytes(unit: str) -> None:
    prompt = unit * (5_000_000 // len(unit))
    started = time.perf_counter()
    hosts.untyped(prompt)
    assert time.perf_counter() - started < 1.0  # measured: 5 ms


@pytest.mark.parametrize(
    "name",
    ["task-notification", "system-reminder", "slash-command", "shell-command", "empty-prompt"],
)
def test_recorded_prompts_that_nobody_asked(name: str) -> None:
    call = recorded(f"claude/{name}")
    assert hosts.untyped(call.prompt)
    assert hosts.nothing(call) == b""


# --- answering ----------------------------------------------------------------------------------


@given(
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.sampled_from([host for host, dialect in hosts.DIALECTS.items() if dialect.answer]),
)
def test_envelope_gives_the_text_back(text: str, host: str) -> None:
    answer = hosts.envelope(hosts.Call(host, "prompt"), text)

    assert answer.isascii()
    assert b"\n" not in answer
    whole = json.loads(answer)
    carried = []

    def walk(value: object) -> None:
        for member in value.values() if isinstance(value, dict) else value:
            if isinstance(member, dict | list):
                walk(member)
            elif isinstance(member, str) and member not in {"UserPromptSubmit", "BeforeAgent"}:
                carried.append(member)

    walk(whole)
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if text not in {"UserPromptSubmit", "BeforeAgent"}:
        assert carried == [expected] * (2 if host == "copilot" else 1)


def test_strict_hosts_get_no_other_key() -> None:
    """A key at the top level makes Codex refuse the reply and Claude Code drop the text."""
    for host in ("claude", "codex", "vscode", "qwen", "gemini"):
        reply = json.loads(hosts.envelope(hosts.Call(host, "prompt"), "{ text"))
        assert list(reply) == ["hookSpecificOutput"]
        assert list(reply["hookSpecificOutput"]) == ["hookEventName", "additionalContext"]


# --- start-up and locales -----------------------------------------------------------------------


def run(code: str, **environment: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(Path(hosts.__file__).parents[1])],
        input=(PAYLOADS / "claude" / "lone-surrogate.json").read_bytes(),
        capture_output=True,
        env=environment,
        check=False,
        timeout=30,
    )
    assert done.stderr == b""
    assert done.returncode == 0
    return done.stdout


WHOLE = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from prompt_rag import hosts
call = hosts.read(hosts.object_in(sys.stdin.buffer.read()), "claude")
hosts.untyped(call.prompt)
answer = hosts.envelope(call, call.prompt)
added = set(sys.modules) - before - {"prompt_rag", "prompt_rag.hosts", "_json", "__future__"}
sys.stdout.buffer.write(repr(sorted(added)).encode() + b"|" + answer)
"""


@pytest.mark.parametrize("encoding", ["cp932", "ascii", "cp1252", "utf-8"])
def test_locale_does_not_matter_and_nothing_heavy_is_imported(encoding: str) -> None:
    added, _, answer = run(WHOLE, PYTHONIOENCODING=encoding, LC_ALL="C").partition(b"|")
    assert added == b"[]"
    text = json.loads(answer)["hookSpecificOutput"]["additionalContext"]
    assert text == 'the \ufffd token of the 表 wiki 🏠 said "no"'


def test_without_the_c_half_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_json", None)
    spec = importlib.util.spec_from_file_location("slow_hosts", hosts.__file__)
    assert spec is not None
    assert spec.loader is not None
    slow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(slow)

    assert slow.object_in(b'{"prompt":"a\nb"}') == {"prompt": "a\nb"}
    assert slow.object_in(b'{"prompt":}') is None
    assert slow.envelope(slow.Call("claude", "prompt"), "CTX") == NESTED
