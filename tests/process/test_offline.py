"""Nothing but ``model pull`` may use the network: every process of ours, watched from inside.

The program runs in an environment of its own, made of this one and a guard that each Python
process loads before anything else: it notes who runs, and refuses and notes every socket of the
internet. Where the system allows it the processes also have no network at all, and the system
calls of native code are looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from prompt_rag import wire

GUARD = """
import sys

def _note(name, text):
    with open({folder!r} + "/" + name, "a") as file:
        file.write(text.replace("\\n", " ") + "\\n")

def _watch(event, arguments):
    if event == "socket.__new__" and arguments[1] in (2, 10, 30):
        wrong = True
    else:
        wrong = event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
    if wrong:
        if not _is_probe(sys._getframe(1)):
            _note("caught", event + repr(arguments))
        raise OSError(event + " is not allowed")

def _is_probe(frame):
    # urllib3, which fastembed's loader imports, asks once whether this machine has IPv6 at all.
    while frame and frame.f_code.co_name != "_has_ipv6":
        frame = frame.f_back
    return frame is not None and frame.f_globals["__name__"] == "urllib3.util.connection"

_note("started", " ".join(sys.orig_argv))
sys.addaudithook(_watch)
"""

NOTE = """# Rotating the wiki token

The wiki token is rotated with `wikictl token rotate --grace 24h`; the old one works for a day, and
the nightly export logs in with the new one from the next run on.
"""
QUESTION = "how do we rotate the wiki token?"
SETTINGS = {
    "PROMPT_RAG_THRESHOLDS_MAX_DISTANCE": "0.6",
    "PROMPT_RAG_THRESHOLDS_MIN_PROBABILITY": "0",
    "PROMPT_RAG_HOOK_DEADLINE_SECONDS": "25",
}


class Watched:
    """The program in its guarded environment, with a home and a folder of notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        (folder / "notes").mkdir()
        (folder / "notes" / "wiki.md").write_text(NOTE)
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        paths = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
        packages = Path(sysconfig.get_path("purelib", "venv", vars=paths))
        (packages / "the_guard.py").write_text(GUARD.format(folder=str(folder)))
        lines = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()]
        (packages / "a_guard.pth").write_text("\n".join(["import the_guard", *lines]) + "\n")

    def run(
        self, *arguments: str, prefix: tuple[str, ...] = (), stdin: bytes = b"", **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*prefix, str(self.python), *arguments],
            input=stdin,
            capture_output=True,
            env={**os.environ, **SETTINGS, "PROMPT_RAG_HOME": str(self.home), **more},
            timeout=90,
            check=False,
        )

    def program(self, *arguments: str, **more: str) -> bytes:
        done = self.run("-m", "prompt_rag", *arguments, prefix=without_network(), **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hook(self, mode: str, prefix: tuple[str, ...]) -> bytes:
        payload = {
            "hook_event_name": "UserPromptSubmit",
            "session_id": f"{mode}{len(prefix)}",
            "prompt_id": "u",
            "prompt": QUESTION,
        }
        arguments = ["-m", "prompt_rag", "hook", "--host", "claude"]
        done = self.run(
            *arguments,
            prefix=prefix,
            stdin=json.dumps(payload).encode(),
            PROMPT_RAG_DAEMON_MODE=mode,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


def without_network() -> tuple[str, ...]:
    """Return what takes the network away from a command, nothing where that is not allowed."""
    command = ("unshare", "--map-root-user", "--net")
    tool = shutil.which(command[0])
    if (
        tool
        and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    ):
        return command
    return ()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    watched = Watched(tmp_path_factory.mktemp("off"))
    watched.program("init", "--yes", "--quiet", "--markdown", str(watched.folder / "notes"))
    yield watched
    with suppress(wire.Unanswered):
        wire.ask(str(watched.home), {"kind": "stop"}, time.monotonic() + 5, start=False)


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import _socket; _socket.socket(_socket.AF_INET6, _socket.SOCK_DGRAM)",
        "import urllib.request as r; r.urlopen('http://localhost')",
    ],
)
def test_the_guard_sees_what_it_is_for(tmp_path_factory: pytest.TempPathFactory, code: str) -> None:
    fresh = Watched(tmp_path_factory.mktemp("guard"))
    assert fresh.run("-c", code).returncode == 1
    assert fresh.run("-EP", "-c", code).returncode == 1
    assert len(fresh.lines("caught")) >= 2
    assert fresh.run("-c", "import socket; socket.socket(socket.AF_UNIX)").returncode == 0


def test_building_and_asking(watched: Watched) -> None:
    watched.program("rebuild", "--quiet")
    (watched.folder / "notes" / "new.md").write_text("# New\n\nSomething that was not here before.")
    assert json.loads(watched.program("sync", "--json"))["embedded"] == 1
    found = json.loads(watched.program("search", QUESTION, "--json"))
    assert found["results"][0]["note"] == "wiki.md"
    assert json.loads(watched.program("explain", QUESTION, "--json"))["outcome"] == "inject"
    assert json.loads(watched.program("model", "verify", "--json"))["ok"] is True
    watched.program("status", "--json")
    assert watched.lines("caught") == []


@pytest.mark.parametrize("mode", ["on", "off"])
def test_the_hook(watched: Watched, mode: str) -> None:
    assert b"wikictl token rotate" in watched.hook(mode, without_network())
    assert watched.lines("caught") == []
    # Not only the client was watched, but also the process that embeds.
    started = [line for line in watched.lines("started") if "prompt_rag.daemon" in line]
    assert [line for line in started if ("--once" in line) == (mode == "off")]


def test_the_mcp_server(watched: Watched) -> None:
    """Its library could serve over the network; here it only reads and writes its own streams."""
    client = {"name": "offline", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    search = {"name": "search_notes", "arguments": {"query": QUESTION}}
    requests = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": search},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in requests)
    done = watched.run("-m", "prompt_rag", "mcp", prefix=without_network(), stdin=lines.encode())
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "prompt-rag"
    assert [line for line in watched.lines("started") if line.endswith(" mcp")]
    assert watched.lines("caught") == []


def test_a_model_that_is_not_here_is_not_looked_for(watched: Watched) -> None:
    model = "BAAI/bge-small-en-v1.5"
    begun = time.monotonic()
    done = watched.run(
        *["-m", "prompt_rag", "search", QUESTION], PROMPT_RAG_MODEL_NAME=model, HF_HUB_OFFLINE=""
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"Hint: prompt-rag model pull {model}".encode()
    assert time.monotonic() - begun < 30
    assert watched.lines("caught") == []


def test_native_code_opens_no_socket_either(watched: Watched) -> None:
    log = watched.folder / "calls"
    command = ("strace", "--follow-forks", "--trace=socket", "--seccomp-bpf", f"--output={log}")
    tool = shutil.which(command[0])
    if not tool or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("system calls cannot be watched here")
    assert b"wikictl token rotate" in watched.hook("off", command)
    sockets = [line for line in log.read_text().splitlines() if "socket(" in line]
    assert [line for line in sockets if "AF_UNIX" not in line] == []
    assert subprocess.run(
        [*command, sys.executable, "-c", "import socket; socket.socket()"], check=True
    )
    assert "AF_INET" in log.read_text()
