"""What holds for every command: exit codes, where output goes, and real processes."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import CONFIG, NOTES, QUESTION, CommandLine, write_notes

import prompt_rag
from prompt_rag import __main__, cli, config, embedder, hook
from prompt_rag.cli import output
from prompt_rag.cli.evaluate import evaluated_home

PROGRAM = [sys.executable, "-m", "prompt_rag"]


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the program as a person would."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


# --- exit codes ---------------------------------------------------------------------------------


def test_help_and_version(run: CommandLine) -> None:
    assert run("--version").out == f"prompt-rag, version {prompt_rag.__version__}\n"
    assert run("-h").out == run("--help").out
    assert "prompt-rag init" in run("--help").out
    assert run("search", "--help").code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["search"],
        ["search", "x", "--nothing"],
        ["search", "x", "-k", "many"],
        ["source", "nothing"],
        ["why", "x"],
        ["rebuild", "now"],
        ["--nothing"],
    ],
)
def test_a_wrong_call(run: CommandLine, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "Usage: prompt-rag" in result.err


def test_a_command_that_was_mistyped(run: CommandLine) -> None:
    assert "Did you mean 'search'?" in run("serach").err
    assert "Did you mean" not in run("xxxxxx").err


def test_the_unexpected_has_a_log_file(built: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("so it is")

    monkeypatch.setattr("prompt_rag.search.Reader.candidates", broken)
    result = built("search", "a secret question")
    assert (result.code, result.out) == (3, "")
    error, hint = result.err.splitlines()
    assert error == "Error: unexpected: ZeroDivisionError: so it is"
    file = Path(hint.removeprefix("Hint: the details are in "))
    assert file == built.home / "error.log"
    text = file.read_text()
    assert prompt_rag.__version__ in text
    assert "ZeroDivisionError: so it is" in text
    assert "a secret question" not in text
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_unexpected_where_no_log_can_be_written(
    built: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("prompt_rag.search.Reader.candidates", broken)
    (built.home / "error.log").mkdir()
    result = built("search", "x")
    assert result.code == 3
    assert "ZeroDivisionError" in result.err
    assert "no log file" in result.err


def test_the_system_s_refusals_are_known_failures(
    built: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/home/x")

    monkeypatch.setattr("prompt_rag.search.Reader.candidates", full)
    result = built("search", "x")
    assert (result.code, result.out) == (1, "")
    assert result.err == "Error: /home/x: No space left on device\n"


def test_an_interrupt(built: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prompt_rag.search.Reader.candidates", interrupt)
    result = built("search", "x")
    assert (result.code, result.out) == (130, "")
    assert "Traceback" not in result.err


def test_nothing_else_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object, **__: object) -> None:
        raise SystemExit(7)

    monkeypatch.setattr(cli.cli, "main", leave)
    with pytest.raises(SystemExit) as caught:
        cli.main(["status"])
    assert caught.value.code == 7


# --- documents ----------------------------------------------------------------------------------

DOCUMENTS = [
    ["init", "--yes"],
    ["source", "list"],
    ["rebuild"],
    ["sync"],
    ["sync", "--dry-run"],
    ["status"],
    ["inspect", "rye-bread"],
    ["search", QUESTION],
    ["search", "nothing near this"],
    ["explain", QUESTION],
    ["explain", ""],
    ["why"],
    ["stats"],
    ["config", "show"],
    ["model", "show"],
    ["model", "verify"],
    ["daemon", "status"],
]


@pytest.mark.parametrize("arguments", DOCUMENTS, ids=" ".join)
def test_one_document_on_stdout(built: CommandLine, arguments: list[str]) -> None:
    result = built(*arguments, "--json")
    assert result.code == 0
    json.loads(result.out)
    assert result.out.endswith(("}\n", "]\n"))


def test_documents_are_utf_8_whatever_the_terminal_speaks(built: CommandLine) -> None:
    built.write("odd.md", "# Ünï 🏠\n\n表 lies on the table in the kitchen of the house.")
    built("sync", "--quiet")
    for encoding in ("ascii", "cp1252", "utf-8"):
        found = process("inspect", "odd", "--json", PYTHONIOENCODING=encoding)
        assert found.returncode == 0
        assert json.loads(found.stdout)["note"]["title"] == "Ünï 🏠"
    found = process("inspect", "odd", PYTHONIOENCODING="cp1252")
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.startswith(b"\xdcn\xef \\U0001f3e0\n")


# --- pipes and terminals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["config", "show"], ["why", "--json"], ["--help"], ["model", "show", "--all"]]
)
def test_a_reader_that_goes_is_no_error(built: CommandLine, arguments: list[str]) -> None:
    child = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait(30) == 0
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


def in_terminal(*arguments: str, **environment: str) -> str:
    """Return what a person sees on stdout and stderr of a terminal of 100 columns."""
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover  (the other process)
        os.environ.update({"COLUMNS": "100", "TERM": "xterm-256color", **environment})
        os.execv(PROGRAM[0], [*PROGRAM, *arguments])
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(terminal)
    assert os.waitpid(child, 0)[1] == 0
    return seen.decode()


def test_no_colours_where_nobody_wants_them(built: CommandLine) -> None:
    seen = in_terminal("rebuild", NO_COLOR="1")
    assert "4 notes indexed" in seen
    assert colours(seen) == set()
    assert colours(in_terminal("rebuild"))


def colours(seen: str) -> set[str]:
    """Return the codes in ``seen`` that are not just bold, dim, italic or the end of it."""
    codes = {code for each in re.findall(r"\x1b\[([\d;]*)m", seen) for code in each.split(";")}
    return codes - {"", "0", "1", "2", "3"}


def test_progress_on_a_terminal_only(built: CommandLine) -> None:
    seen = in_terminal("rebuild")
    assert "embedding notes" in seen
    assert "4/4" in seen
    assert "embedding notes" not in in_terminal("rebuild", "--quiet")
    found = process("rebuild")
    assert (found.returncode, found.stderr) == (0, b"")


class Screen(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_bar_for_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    with output.progress(quiet=False) as report:
        report("scan", 3, 0)
        report("embed", 1, 4)
        report("embed", 4, 4)
        report("else", 1, 1)
    seen = screen.getvalue()
    for words in ("reading notes", "embedding notes", "4/4", "else"):
        assert words in seen


def test_a_table_fits_a_terminal_and_is_whole_in_a_pipe(built: CommandLine) -> None:
    place = "a/very/long/way/down/" * 8
    built.write(f"{place}note.md", "# Deep\n\nThe submarine reached the bottom of the trench.")
    built("sync", "--quiet")
    query = "when did the submarine reach the bottom of the trench"
    seen = re.sub(r"\x1b\[[\d;]*m", "", in_terminal("search", query, COLUMNS="100"))
    assert max(map(len, seen.splitlines())) <= 100
    found = process("search", query, COLUMNS="100").stdout.decode()
    assert f"{place}note.md" in found


# --- the program itself -------------------------------------------------------------------------


def test_the_program_from_init_to_search(tmp_path: Path) -> None:
    notes = write_notes(tmp_path / "Max O'Neil" / "my $notes%")
    home = str(tmp_path / "a home")
    found = process("init", "--yes", "--markdown", str(notes), PROMPT_RAG_HOME=home)
    assert found.returncode == 0
    assert found.stdout.startswith(b"4 notes indexed (5 passages, 5 embedded)")
    found = process("search", QUESTION, "--json", PROMPT_RAG_HOME=home)
    assert json.loads(found.stdout)["results"][0]["note"] == "work/wiki-token.md"
    assert found.stderr == b""


def test_without_a_home_of_its_own_it_keeps_to_the_platform_s_folders(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMPT_RAG_HOME": ""}
    notes = write_notes(tmp_path / "notes")
    found = subprocess.run(
        [*PROGRAM, "init", "--yes", "--quiet", "--markdown", str(notes)],
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")
    assert (Path(os.environ["XDG_CONFIG_HOME"]) / "prompt-rag" / "config.toml").is_file()
    data = Path(os.environ["XDG_DATA_HOME"]) / "prompt-rag"
    assert (data / "CURRENT").is_file()
    assert not (data / "config.toml").exists()


BUILDING = """
import sys, time
from prompt_rag import config, indexing
with indexing.writing(config.load()):
    print("writing", flush=True)
    time.sleep(60)
"""


def test_a_writer_that_is_killed_gives_its_lock_back(built: CommandLine) -> None:
    child = subprocess.Popen([sys.executable, "-c", BUILDING], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"writing\n"
    found = process("rebuild")
    assert (found.returncode, found.stdout) == (1, b"")
    assert found.stderr.decode().splitlines()[-1] == "Hint: prompt-rag status"
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    child.stdout.close()
    assert built("rebuild").code == 0


def test_the_hook_s_help_is_for_people(run: CommandLine) -> None:
    found = process("hook", "--help")
    assert found.returncode == 0
    assert b"Always exits 0" in found.stdout
    assert run("hook", "--help").code == 0


def test_the_program_starts_the_command_line_or_the_hook(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def answer(arguments: list[str]) -> None:
        calls.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(hook, "main", answer)
    monkeypatch.setattr(sys, "argv", ["prompt-rag", "hook", "--host", "claude"])
    with pytest.raises(SystemExit) as caught:
        __main__.main()
    assert (caught.value.code, calls) == (0, [["--host", "claude"]])
    monkeypatch.setattr(sys, "argv", ["prompt-rag", "search"])
    with pytest.raises(SystemExit) as caught:
        __main__.main()
    assert caught.value.code == 2
    assert run("hook", "--host", "x", "--home", "y").code == 130
    assert calls[1:] == [["--host", "x", "--home", "y"]]


def test_a_hook_that_cannot_even_begin_is_silent(tmp_path: Path) -> None:
    code = "import sys; sys.modules['prompt_rag.hook'] = None; sys.argv = ['x', 'hook']\n"
    code += "from prompt_rag.__main__ import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=30, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def test_completion(run: CommandLine) -> None:
    found = process(
        _PROMPT_RAG_COMPLETE="bash_complete", COMP_WORDS="prompt-rag se", COMP_CWORD="1"
    )
    assert b"search" in found.stdout


def test_commands_that_need_no_index_load_none_of_it(built: CommandLine) -> None:
    code = (
        "import sys; from prompt_rag import cli; cli.run(sys.argv[1:]);"
        "bad = {'onnxruntime', 'fastembed', 'hnswlib', 'ir_measures'} & set(sys.modules);"
        "sys.exit(','.join(bad) or 0)"
    )
    for arguments in (["why"], ["config", "show"], ["pause", "off"], ["daemon", "status"]):
        found = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert found.returncode == 0, (arguments, found.stderr)


# --- demo and eval ------------------------------------------------------------------------------


def test_demo_shows_both_outcomes(run: CommandLine) -> None:
    before = time.monotonic()
    result = run("demo", "--quiet")
    assert result.code == 0
    assert time.monotonic() - before < 60
    assert "  + " in result.out
    assert "  - silent: " in result.out
    assert "no person typed this" in result.out
    assert not run.home.exists()


EVAL_KEYS = {
    "system",
    "model",
    "notes",
    "passages",
    "prompts",
    "retrieval",
    "injection",
    "intervals",
    "by_kind",
    "thresholds",
    "latency_ms",
    "cases",
}


def test_eval_on_anybody_s_notes(run: CommandLine, tmp_path: Path) -> None:
    write_notes(run.notes)
    run.home.mkdir()
    (run.home / "config.toml").write_text(CONFIG)
    lines = [
        {"id": "1", "prompt": QUESTION, "relevant": ["work/wiki-token.md"], "kind": "exact"},
        {"id": "2", "prompt": "who won at chess in 1987?", "relevant": [], "kind": "chatter"},
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({**line, "split": "test"}) + "\n" for line in lines))
    arguments = ["eval", "--notes", run.notes, "--prompts", file]
    document = run(*arguments, "--json").json
    assert set(document) >= EVAL_KEYS
    assert document["prompts"] == {"answerable": 1, "unanswerable": 1}
    assert document["retrieval"]["recall@5"] == 1.0
    assert document["injection"]["false_injection_rate"] == 0.0
    assert document["injection"]["coverage"] == 1.0
    assert {case["id"]: case["outcome"] for case in document["cases"]} == {
        "1": "inject",
        "2": "abstain",
    }
    assert "recall@5" in run(*arguments).out
    assert run(*arguments, "--system", "like", "--json").json["system"] == "like"
    file.write_text(json.dumps({**lines[0], "relevant": ["elsewhere.md"]}) + "\n")
    assert run(*arguments).code == 1
    file.write_text("no json\n")
    assert "line 1" in run(*arguments).err
    assert run("eval", "--prompts", tmp_path / "none").code == 2


def test_eval_goes_by_the_person_s_own_model_and_calibration(run: CommandLine) -> None:
    run.build()
    models = run.home / "models" / "some"
    models.mkdir(parents=True)
    (run.home / "calibration.json").write_text("{}")
    with evaluated_home(run.notes, None) as config_:
        assert config_.home != run.home
        assert (embedder.models_folder(config_.home) / "some").is_dir()
        assert (config_.home / "calibration.json").read_text() == "{}"
    assert models.is_dir()
    result = run("eval", "--notes", run.notes)
    assert "is not a calibration" in result.err
    assert result.code == 1


# --- small things -------------------------------------------------------------------------------


def test_ages() -> None:
    from datetime import UTC, datetime, timedelta

    now = datetime.now(UTC)
    for seconds, text in ((1, "just now"), (61, "1 minute ago"), (7300, "2 hours ago")):
        assert output.age(now - timedelta(seconds=seconds)) == text
    assert output.age(now - timedelta(days=3, hours=1)) == "3 days ago"
    assert output.age(now + timedelta(days=1)) == "just now"
    assert output.age(None) == "unknown"


def test_one_line() -> None:
    assert output.one_line("a\tb\n\x1b[2Jc") == "a b [2Jc"
    assert output.one_line("word " * 30, 11) == "word word…"
    assert config.APP == "prompt-rag"
    assert len(NOTES) == 4
