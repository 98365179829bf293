"""Many agents at once, on an index that changes under them; then ten thousand prompts in a row.

``python benchmarks/load.py`` prints JSON on stdout and a table on stderr, and ends with 1 where a
promise was broken. Twenty agents start the hook every fifth of a second (or as soon as it is done)
while notes are edited and taken in by the real ``sync``, one file at a time, and a ``rebuild`` goes
on beside. Each edit writes its number into several passages of a note, so that every answer tells
which state of the index it came from: one that a commit had made, not older than the last that was
finished before the question, and the same in all of its parts.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from prompt_rag import launch, wire
from prompt_rag.cli import fixtures

PACE = 0.2  # seconds between two prompts of one agent
MOST_RSS_MB = 320
MOST_GROWTH = 0.03  # of resident memory, between the first and the last thousand prompts

# Reasons that only a fault leads to.
FAULTS = frozenset(
    {
        "error",
        "index-missing",
        "index-incompatible",
        "index-damaged",
        "model-missing",
        "daemon-unavailable",
        "bad-input",
        "bad-config",
    }
)

# Notes of our own that are edited, each with the prompt that it answers.
EDITED = {
    "halvorsen": (
        "Restarting the Halvorsen tide gauge",
        "how do I restart the halvorsen tide gauge after a power cut?",
    ),
    "quillwort": (
        "Quillwort backup tapes: rotation and shelf",
        "which shelf do the quillwort backup tapes go to and how are they rotated?",
    ),
    "ottoline": (
        "Ottoline label printer prints blank labels",
        "the ottoline label printer prints nothing but blank labels, what was the fix?",
    ),
    "brackwater": (
        "Brackwater pump alarm thresholds",
        "what are the alarm thresholds of the brackwater pump and who is called?",
    ),
    "septima": (
        "Septima scanner: calibrating the drum",
        "steps to calibrate the drum of the septima scanner please",
    ),
}
REVISION = re.compile(r"Revision (\w+) (\d+)")


def main() -> None:
    options = _options()
    # Below /tmp, because the path of a socket is short.
    place = Path(tempfile.mkdtemp(prefix="prag-", dir="/tmp"))
    try:
        _tell("indexing")
        with _World(place).running() as world:
            _tell("the crowd")
            results: dict[str, Any] = {"crowd": _crowd(world, options)}
            _tell("the row")
            results["row"] = _row(world, options.prompts)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    results["broken"] = _broken(results)
    print(json.dumps(results, indent=2))
    _table(results)
    if results["broken"]:
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--syncs", type=int, default=100, help="edits of one note, each with a sync"
    )
    parser.add_argument("--prompts", type=int, default=10_000, help="asked one after the other")
    return parser.parse_args()


# --- a home, its notes, and what is run on them --------------------------------------------------


class _World:
    """A home with some hundred notes, and the record of what was written into five of them."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.notes = place / "notes"
        self.launcher = place / "hook"
        self.environment = {**os.environ, "PROMPT_RAG_HOME": str(self.home)}
        self.written = dict.fromkeys(EDITED, 0)
        self.committed = dict.fromkeys(EDITED, 0)

    @contextmanager
    def running(self) -> Iterator[_World]:
        for folder in (*fixtures.MARKDOWN_VOICES.values(), "bear"):
            if (fixtures.FOLDER / folder).is_dir():
                shutil.copytree(fixtures.FOLDER / folder, self.notes / folder)
        for name in EDITED:
            self.write(name)
            self.committed[name] = self.written[name]
        self.command("init", "--yes", "--markdown", str(self.notes), "--quiet")
        parent = launch.PARENT
        self.launcher.write_bytes(launch.launcher(sys.executable, parent, str(self.home)))
        self.launcher.chmod(0o755)
        self.ask("is anybody there tonight", "first")
        try:
            yield self
        finally:
            self.call("stop")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line. Raises RuntimeError where it fails."""
        line = [sys.executable, "-m", "prompt_rag", *arguments]
        ran = subprocess.run(
            line, env=self.environment, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise RuntimeError(f"{arguments}: exit code {ran.returncode}, {ran.stderr}")
        return ran

    def path(self, name: str) -> Path:
        return self.notes / f"{name}.md"

    def write(self, name: str) -> None:
        """Write the next revision of a note; only its numbers change."""
        number = self.written[name] + 1
        title, prompt = EDITED[name]
        section = (
            f"Revision {name} {number}. {title}. {prompt} " + "The steps are written here. " * 30
        )
        text = (
            f"# {title}\n\n## TL;DR\n\n{section}\n\n## Steps\n\n{section}\n\n## Why\n\n{section}\n"
        )
        self.written[name] = number  # before: who sees the file may have this number
        temporary = self.notes / f".{name}.tmp"
        temporary.write_text(text, "utf-8")
        temporary.replace(self.path(name))

    def ask(self, prompt: str, session: str) -> tuple[float, str, str]:
        """Return seconds, what the hook injects, and what is wrong with how it ended."""
        payload = {
            "session_id": session,
            "prompt_id": "p",
            "cwd": "/srv/app",
            "hook_event_name": "UserPromptSubmit",
            "prompt": prompt,
        }
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(self.launcher), "--host", "claude"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = process.communicate(json.dumps(payload).encode())
        took = time.perf_counter() - started
        fault = f"exit code {process.returncode}, stderr {err!r}"
        block = json.loads(out)["hookSpecificOutput"]["additionalContext"] if out else ""
        return took, block, fault if process.returncode or err else ""

    def call(self, kind: str, **more: object) -> dict[str, Any]:
        deadline = time.monotonic() + 10.0
        return wire.ask(str(self.home), {"kind": kind, **more}, deadline, start=False)

    def rss_mb(self) -> float:
        return round(float(self.call("status")["rss_bytes"]) / 2**20, 1)


# --- the crowd -----------------------------------------------------------------------------------


class _Agents:
    """Agents that ask until told to stop, and what came of it."""

    def __init__(self, world: _World, agents: int) -> None:
        self.seconds: list[float] = []
        self.faults: list[str] = []
        self.injected = 0
        self.told: collections.Counter[str] = collections.Counter()
        self._world = world
        self._prompts = [each.prompt for each in fixtures.prompts()]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,)) for number in range(agents)
        ]

    def __enter__(self) -> _Agents:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, agent: int) -> None:
        names = itertools.cycle(EDITED)
        others = itertools.cycle(self._prompts[agent::3])
        for turn in itertools.count():
            if self._stop.is_set():
                return
            began = time.monotonic()
            # Two of three ask about a note that is being edited.
            prompt = next(others) if turn % 3 == 2 else EDITED[next(names)][1]
            least = dict(self._world.committed)
            took, block, fault = self._world.ask(prompt, f"{agent}-{turn}")
            most = dict(self._world.written)
            self.seconds.append(took)
            self.injected += bool(block)
            if fault:
                self.faults.append(fault)
            self._check(block, least, most)
            time.sleep(max(0.0, PACE - (time.monotonic() - began)))

    def _check(self, block: str, least: dict[str, int], most: dict[str, int]) -> None:
        for name in EDITED:
            seen = {int(number) for note, number in REVISION.findall(block) if note == name}
            if not seen:
                continue
            self.told[name] += 1
            if len(seen) > 1:
                self.faults.append(f"{name}: revisions {sorted(seen)} in one answer")
            if not least[name] <= min(seen) <= max(seen) <= most[name]:
                bounds = f"{least[name]} to {most[name]}"
                self.faults.append(f"{name}: revision {sorted(seen)}, committed were {bounds}")


def _crowd(world: _World, options: argparse.Namespace) -> dict[str, Any]:
    (world.home / wire.LOG).unlink(missing_ok=True)
    memory: list[float] = []
    faults: list[str] = []
    started = time.monotonic()
    with _Agents(world, options.agents) as agents:
        rebuild = threading.Thread(target=_quietly, args=(faults, world, "rebuild", "--quiet"))
        names = itertools.cycle(EDITED)
        for number in range(options.syncs):
            if number == options.syncs // 4:
                rebuild.start()
            due = started + number * options.seconds / options.syncs
            time.sleep(max(0.0, due - time.monotonic()))
            name = next(names)
            world.write(name)
            _quietly(faults, world, "sync", str(world.path(name)), "--quiet")
            world.committed[name] = world.written[name]
            memory.append(world.rss_mb())
        if options.syncs:
            rebuild.join()
        time.sleep(max(0.0, started + options.seconds - time.monotonic()))
    # The log and the one before it; what was rotated out of both is not counted.
    logs = sorted(world.home.glob(f"{wire.LOG}*"))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    reasons = collections.Counter(json.loads(line)["reason"] for line in lines)
    return {
        "agents": options.agents,
        "seconds": round(time.monotonic() - started, 1),
        "syncs": options.syncs,
        "prompts": len(agents.seconds),
        "injected": agents.injected,
        "told_of_edited_notes": sum(agents.told.values()),
        "ms": {
            name: round(float(np.percentile(agents.seconds, q)) * 1000, 1)
            for name, q in (("median", 50), ("p95", 95), ("p99", 99), ("max", 100))
        },
        "deadline_ms": wire.DEADLINE_SECONDS * 1000,
        "reasons_of_the_last": dict(reasons.most_common()),
        "faults": [*faults, *agents.faults][:20],
        "rss_mb": {"first": memory[0], "most": max(memory), "last": memory[-1]} if memory else {},
    }


def _quietly(faults: list[str], world: _World, *arguments: str) -> None:
    """Run a command, again where another one holds the index, and note every other failure."""
    for _ in range(600):
        try:
            world.command(*arguments)
        except RuntimeError as error:
            if "is writing the index" not in str(error):
                faults.append(str(error))
                return
            time.sleep(0.2)
        else:
            return
    faults.append(f"{arguments}: the index was never free")


# --- ten thousand in a row -----------------------------------------------------------------------


def _row(world: _World, prompts: int) -> dict[str, Any]:
    """Ask through the socket, each prompt in a session of its own; watch the memory."""
    typed = itertools.cycle(each.prompt for each in fixtures.prompts())
    seconds, memory, faults = [], [], []
    for number in range(prompts):
        if number % max(1, prompts // 20) == 0:
            memory.append(world.rss_mb())
        prompt = f"{next(typed)} {number}"
        started = time.perf_counter()
        reply = world.call("prompt", prompt=prompt, session=f"row-{number}", host="claude")
        seconds.append(time.perf_counter() - started)
        if reply.get("reason") in FAULTS:
            faults.append(str(reply["reason"]))
    if not seconds:
        return {}
    memory.append(world.rss_mb())
    settled = memory[len(memory) // 10 :]
    return {
        "prompts": prompts,
        "ms": {
            name: round(float(np.percentile(seconds, q)) * 1000, 1)
            for name, q in (("median", 50), ("p99", 99), ("max", 100))
        },
        "rss_mb": memory,
        "growth": round(settled[-1] / settled[0] - 1, 4),
        "faults": faults[:20],
    }


# --- judgement -----------------------------------------------------------------------------------


def _broken(results: dict[str, Any]) -> list[str]:
    """Return what was promised and not kept."""
    crowd, row = results["crowd"], results["row"]
    broken = [f"a fault: {fault}" for fault in crowd["faults"] + row.get("faults", [])]
    broken += [f"reason {each}" for each in crowd["reasons_of_the_last"] if each in FAULTS]
    if crowd["ms"]["p99"] >= crowd["deadline_ms"]:
        broken.append(f"p99 {crowd['ms']['p99']} ms is over the deadline")
    if not crowd["told_of_edited_notes"]:
        broken.append("no answer told of an edited note: nothing was checked")
    memory = max([*row.get("rss_mb", [0.0]), crowd["rss_mb"].get("most", 0.0)])
    if memory > MOST_RSS_MB:
        broken.append(f"{memory} MB resident, {MOST_RSS_MB} allowed")
    if row and row["growth"] > MOST_GROWTH:
        broken.append(f"memory grew by {row['growth']:.1%}")
    return broken


def _table(results: dict[str, Any]) -> None:
    crowd, row = results["crowd"], results["row"]
    told = crowd["told_of_edited_notes"]
    lines = [
        f"{crowd['agents']} agents, {crowd['seconds']} s, {crowd['syncs']} syncs and a rebuild:",
        f"  {crowd['prompts']} prompts, {crowd['injected']} with notes, {told} of an edited one",
        f"  ms {crowd['ms']}, deadline {crowd['deadline_ms']:.0f}",
        f"  reasons {crowd['reasons_of_the_last']}",
        f"  MB resident {crowd['rss_mb']}",
    ]
    if row:
        lines.append(f"{row['prompts']} prompts in a row: ms {row['ms']}, growth {row['growth']}")
        lines.append(f"  MB resident {row['rss_mb']}")
    lines += [f"BROKEN {each}" for each in results["broken"]]
    for line in lines:
        _tell(line)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
