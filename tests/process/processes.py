"""A home, a copy of the package with a fake answerer, and the real processes that use them.

The copy is the real hook, client and daemon; only ``answer`` and ``config`` are replaced, as the
modules that would load a model. What a prompt says decides what the fake does with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import prompt_rag
from prompt_rag import launch, wire

PACKAGE = Path(prompt_rag.__file__).parent
COPIED = (
    "fsio",
    "domain",
    "hosts",
    "wire",
    "hook",
    "launch",
    "daemon",
    "server",
    "worker",
    "freshness",
)

FAKE_CONFIG = """
def load(home):
    return home
"""

FAKE_ANSWER = """
import ctypes, os, time

class Answerer:
    generation = "g1"

    def __init__(self, home, *, settle_later=False):
        self.home = home

    def note(self, line):
        with open(self.home / "asked", "a") as file:
            file.write(line + "\\n")

    def warm(self):
        self.note(f"warm {os.getpid()}")

    def follow(self):
        pass

    def answer(self, request, deadline):
        if request["kind"] == "session-start":
            self.note("session-start " + request["source"] + " " + request["session"])
            return {"outcome": "abstain", "reason": "no-notes", "block": ""}
        prompt = request["prompt"]
        self.note("prompt " + prompt[:60])
        if "print" in prompt:
            print("a bar", flush=True)
            os.write(1, b"loading")
            os.write(2, b"warning")
        if "sleep" in prompt:
            time.sleep(5)
        if "native" in prompt:
            ctypes.PyDLL(None).sleep(5)  # holds the interpreter's lock
        if "silence" in prompt:
            return {"outcome": "abstain", "reason": "too-far", "block": ""}
        if "crash" in prompt:
            os._exit(3)
        return {"outcome": "inject", "reason": "confident", "block": "note on " + prompt}

    def settle(self):
        pass

    def close(self):
        self.note("close")
"""


def copy_package(folder: Path, version: str = prompt_rag.__version__) -> Path:
    """Copy what a hook and a daemon need below ``folder``, and return ``folder``."""
    package = folder / "prompt_rag"
    package.mkdir(parents=True)
    for name in COPIED:
        shutil.copy(PACKAGE / f"{name}.py", package)
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (package / "config.py").write_text(FAKE_CONFIG)
    (package / "answer.py").write_text(FAKE_ANSWER)
    return folder


class Home:
    """A home of its own with a launcher in it, and every process that belongs to it."""

    def __init__(self, package: Path, **settings: object) -> None:
        # Short, so that the socket's path fits below it whatever the system's limits.
        self.path = Path(tempfile.mkdtemp(prefix="prag-", dir="/tmp"))
        self.run = self.path / "run"
        self.launcher = self.path / "hook"
        self.install(package)
        self.set(**settings)

    def set(self, **settings: object) -> None:
        names = {"deadline": "hook.deadline_seconds", "mode": "daemon.mode"}
        names["idle"] = "daemon.idle_seconds"
        lines = [f"{names[key]}={value}\n" for key, value in settings.items()]
        (self.path / wire.SETTINGS).write_text("".join(lines))

    def install(self, package: Path) -> None:
        self.launcher.write_bytes(launch.launcher(sys.executable, str(package), str(self.path)))
        self.launcher.chmod(0o755)

    def start(self, payload: bytes | None, *arguments: str, **more: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [str(self.launcher), *(arguments or ("--host", "claude"))],
            **{
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **more,
            },
        )
        if payload is not None and process.stdin:
            process.stdin.write(payload)
            process.stdin.flush()
        return process

    def hook(self, payload: bytes | dict, *arguments: str, **more: object) -> bytes:
        """Run the hook on ``payload`` and return its stdout; it must end as hosts need it."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        process = self.start(None, *arguments, **more)
        out, err = process.communicate(data, timeout=30)
        assert process.returncode == 0
        assert not err
        return out

    def ask(self, prompt: str, session: str = "s", **more: object) -> str:
        """Return the text that the hook injects for ``prompt``, "" for none."""
        out = self.hook(prompt_payload(prompt, session), **more)
        if not out:
            return ""
        return json.loads(out)["hookSpecificOutput"]["additionalContext"]

    def call(self, kind: str, seconds: float = 5.0) -> dict:
        """Ask the daemon that runs for this home, which must be there."""
        deadline = time.monotonic() + seconds
        return wire.ask(str(self.path), {"kind": kind}, deadline, start=False)

    def processes(self) -> list[int]:
        """Return the ids of all processes that have this home on their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes()
                    dead = b") Z " in (entry / "stat").read_bytes()
                except OSError:
                    continue
                if str(self.path).encode() in line and not dead:
                    found.append(int(entry.name))
        return found

    def alone(self) -> int:
        """Return the id of the one process there is."""
        (only,) = self.processes()
        return only

    def until_gone(self, seconds: float = 5.0) -> None:
        wait_for(lambda: not self.processes(), seconds)

    def asked(self) -> list[str]:
        """Return what the fake answerers of this home have noted."""
        try:
            return (self.path / "asked").read_text().splitlines()
        except FileNotFoundError:
            return []

    def log(self) -> list[dict]:
        try:
            lines = (self.path / wire.LOG).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self.log()]

    def close(self) -> None:
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.path, ignore_errors=True)


def prompt_payload(prompt: str, session: str = "s") -> dict:
    return {
        "session_id": session,
        "prompt_id": "u",
        "cwd": "/p",
        "hook_event_name": "UserPromptSubmit",
        "prompt": prompt,
    }


def wait_for(condition: object, seconds: float = 5.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not come to pass"
        time.sleep(0.01)
