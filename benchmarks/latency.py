"""Measure the warm hook against its floor: a bare interpreter and one pass of the model.

``python benchmarks/latency.py`` prints JSON on stdout and tables on stderr. Every figure is the
wall time of a whole process, started through the launcher as a host starts it, and every run of
the hook stands between a run of ``python -I -S -c pass`` and a pass of the same prompt through a
model in a warm process of its own, so that a busy machine slows all three alike. What counts are
the ratios.

The indexes are made of the fixtures' own notes and of invented ones: words drawn as often as the
fixtures use them, with new ones coined as a growing collection coins them, and vectors around those
of real passages. ``--cache`` keeps them; the largest takes some minutes to make.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prompt_rag import chunking, generations, indexing, launch, vectors, wire
from prompt_rag import config as configuration
from prompt_rag.catalog import Catalog, IndexedNote
from prompt_rag.cli import fixtures
from prompt_rag.domain import Note, Passage, note_id

PACKAGE = Path(launch.PARENT)
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
PATIENCE = 20.0  # seconds that a daemon may take to start or to leave on a busy machine
PASSAGES_PER_NOTE = 5  # as in the collections of docs/evaluation.md
NOTES_PER_BATCH = 500
WORDS_PER_PASSAGE = (40, 160)
NOISE = 0.01  # of each coordinate, 0.2 of a vector's length
COINED = 0.01  # share of words that no note had before

# What the daemon's log says of a decision, and what is left of the whole process.
STAGES = ("parse", "embed", "search", "decide", "render")

SHORT_PROMPTS = (
    "how to feed sourdough starter",
    "where is the staging kubeconfig",
    "why does postgres vacuum hang",
    "rotate the dnssec keys how",
    "which php workers per store",
)
MACHINE_MADE = (
    "<task-notification>\n<task-id>a1</task-id>\n<status>completed</status>\n</task-notification>",
    "<local-command-stdout>Set model to default</local-command-stdout>",
    "<system-reminder>The file was modified by a linter.</system-reminder>",
    "/compact",
    "! git status",
)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder, _Model() as model:
        cache = options.cache or Path(folder)
        homes = {size: _home(cache, size) for size in options.sizes}
        results: dict[str, Any] = {
            "python": sys.version.split()[0],
            "load_average": os.getloadavg(),
            "runs": options.runs,
            "warm": {},
        }
        for size, home in homes.items():
            _tell(f"{size:,} passages")
            with _Hook(home) as hook:
                results["warm"][str(size)] = _warm(hook, model, options.runs)
                results["warm"][str(size)]["crowd"] = _crowd(hook, options.clients)
                results["warm"][str(size)]["memory"] = hook.memory()
        middle = 10_000 if 10_000 in homes else options.sizes[len(options.sizes) // 2]
        _tell("cold")
        with _Hook(homes[middle], warm=False) as hook:
            results["cold"] = {"passages": middle, **_cold(hook, options.cold)}
        if len(homes) > 1:
            _tell(f"{min(homes):,} and {max(homes):,} passages, interleaved")
            results["growth"] = _growth(homes, options.runs)
    results["targets"] = _targets(results, str(middle))
    print(json.dumps(results, indent=2))
    _table(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=500, help="interleaved runs of each prompt")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[1_000, 10_000, 100_000],
        help="passages of the indexes, separated by commas",
    )
    parser.add_argument("--clients", type=int, default=20, help="hooks started at one instant")
    parser.add_argument("--cold", type=int, default=5, help="first prompts without a daemon")
    parser.add_argument("--cache", type=Path, help="folder that keeps the indexes")
    return parser.parse_args()


# --- prompts ------------------------------------------------------------------------------------


def _prompts() -> dict[int, list[str]]:
    """Return prompts by their number of words: the fixtures' own, long ones out of several."""
    typed = [each.prompt for each in fixtures.prompts() if each.relevant]
    whole = [prompt for prompt in typed if len(prompt.split()) == 22 and "\n" not in prompt]
    run = " ".join(prompt for prompt in typed if len(prompt.split()) < 40).split()
    return {
        5: list(SHORT_PROMPTS),
        22: whole,
        44: [f"{one} {other}" for one, other in itertools.pairwise(whole)],
        150: [" ".join(run[start : start + 150]) for start in range(0, 750, 150)],
    }


# --- what is run --------------------------------------------------------------------------------


class _Hook:
    """The hook of one home as a host starts it, and the daemon behind it."""

    def __init__(self, home: Path, *, warm: bool = True) -> None:
        self.home = home
        self.launcher = home / "hook"
        self.launcher.write_bytes(launch.launcher(sys.executable, str(PACKAGE), str(home)))
        self.launcher.chmod(0o755)
        # The figures are wanted whole: a deadline would cut off the slowest.
        (home / wire.SETTINGS).write_text(f"{wire.DEADLINE_KEY}={PATIENCE}\n")
        self._sessions = itertools.count()
        self._run = os.urandom(4).hex()
        self.stop()
        if warm:
            self.ask("is anybody there tonight")

    def __enter__(self) -> _Hook:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def payload(self, prompt: str) -> bytes:
        """Return what Claude Code sends; no two prompts are of one session."""
        return json.dumps(
            {
                "session_id": f"{self._run}-{next(self._sessions)}",
                "prompt_id": "p",
                "transcript_path": "/home/someone/.claude/projects/-srv-app/t.jsonl",
                "cwd": "/srv/app",
                "permission_mode": "default",
                "hook_event_name": "UserPromptSubmit",
                "prompt": prompt,
            }
        ).encode()

    def command(self) -> list[str]:
        return [str(self.launcher), "--host", "claude"]

    def ask(self, prompt: str) -> tuple[float, bytes]:
        """Return milliseconds of the whole process and what it printed."""
        return _timed(self.command(), self.payload(prompt))

    def call(self, kind: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        return wire.ask(str(self.home), {"kind": kind}, deadline, start=False)

    def stop(self) -> None:
        try:
            self.call("stop")
        except wire.Unanswered:
            return
        give_up = time.monotonic() + PATIENCE
        while self.processes() and time.monotonic() < give_up:
            time.sleep(0.02)

    def processes(self) -> list[int]:
        """Return the ids of the processes that name this home on their command line."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit()
            and int(entry.name) != os.getpid()
            and str(self.home).encode() in _read(entry / "cmdline").split(b"\0")
        ]

    def memory(self) -> dict[str, float]:
        """Return MB of the daemon: resident, proportional (shared pages divided), and the peak."""
        process = Path("/proc", str(self.call("status")["pid"]))
        fields = {
            "rss_mb": (_read(process / "status"), b"VmRSS"),
            "peak_mb": (_read(process / "status"), b"VmHWM"),
            "pss_mb": (_read(process / "smaps_rollup"), b"Pss"),
        }
        return {name: round(_kilobytes(*where) / 1024, 1) for name, where in fields.items()}

    def decisions(self) -> list[dict[str, Any]]:
        """Return the decisions in the log, which is emptied."""
        log = self.home / wire.LOG
        lines = _read(log).splitlines()
        log.write_bytes(b"")
        return [json.loads(line) for line in lines]


class _Model:
    """The model in a warm process of its own, so that this one stays small and quick to fork."""

    def __enter__(self) -> _Model:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.forward("warm")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.communicate()

    def forward(self, prompt: str) -> float:
        """Return milliseconds of one pass over ``prompt``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(prompt) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


_MODEL = """
import json, pathlib, sys, time
from prompt_rag import embedder
model = embedder.FastEmbedder(embedder.locate(embedder.DEFAULT_MODEL, pathlib.Path()))
for line in sys.stdin:
    prompt = json.loads(line)
    started = time.perf_counter()
    model.embed_query(prompt)
    print((time.perf_counter() - started) * 1000, flush=True)
"""


def _timed(command: Sequence[str], data: bytes = b"") -> tuple[float, bytes]:
    """Return milliseconds until ``command`` has ended, and its stdout; it must end as it should."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = process.communicate(data)
    took = (time.perf_counter() - started) * 1000
    if process.returncode or err:
        raise RuntimeError(f"{command} ended with {process.returncode} and said {err!r}")
    return took, out


# --- measurements -------------------------------------------------------------------------------


def _warm(hook: _Hook, model: _Model, runs: int) -> dict[str, Any]:
    """Return figures for each length of prompt, and for what nobody typed."""
    found: dict[str, Any] = {}
    for words, prompts in _prompts().items():
        hook.decisions()
        rows = []
        for _, prompt in zip(range(runs), itertools.cycle(prompts), strict=False):
            rows.append((_timed(BARE)[0], model.forward(prompt), hook.ask(prompt)[0]))
        bare, forward, whole = (_spread(column) for column in zip(*rows, strict=True))
        floor = bare["median"] + forward["median"]
        found[str(words)] = {
            "bare": bare,
            "forward": forward,
            "hook": whole,
            "floor": round(floor, 2),
            "ratio": round(whole["median"] / floor, 3),
            "p99_ratio": round(whole["p99"] / floor, 3),
            "where_ms": _where(hook.decisions(), bare["median"], whole["median"]),
        }
    pairs = []
    for _, prompt in zip(range(runs), itertools.cycle(MACHINE_MADE), strict=False):
        pairs.append((_timed(BARE)[0], hook.ask(prompt)[0]))
    bare, whole = (_spread(column) for column in zip(*pairs, strict=True))
    ratio = round(whole["median"] / bare["median"], 3)
    found["machine-made"] = {"bare": bare, "hook": whole, "ratio": ratio}
    connections = []
    for _ in range(runs):
        started = time.perf_counter()
        hook.call("status")
        connections.append((time.perf_counter() - started) * 1000)
    found["connect"] = _spread(connections)
    return found


def _where(decisions: Sequence[dict[str, Any]], bare: float, whole: float) -> dict[str, Any]:
    """Return where the time of the median hook goes, in milliseconds.

    ``client`` is the interpreter's share beyond a bare start: imports, payload, connection, answer,
    and what the daemon does around its decision (sessions, log).
    """
    stages = {
        stage: _spread([each["timings_ms"].get(stage, 0.0) for each in decisions])["median"]
        for stage in STAGES
    }
    client = whole - bare - sum(stages.values())
    injected = sum(each["outcome"] == "inject" for each in decisions)
    return {
        "interpreter": bare,
        "client": round(client, 2),
        **stages,
        "injected_share": round(injected / max(1, len(decisions)), 2),
    }


def _crowd(hook: _Hook, clients: int) -> dict[str, Any]:
    """Start ``clients`` hooks at one instant and return when they were done."""
    prompts = _prompts()[22]
    payloads = [hook.payload(prompts[number % len(prompts)]) for number in range(clients)]
    started = time.perf_counter()
    running = []
    for payload in payloads:
        process = subprocess.Popen(
            hook.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(payload)
        process.stdin.close()
        running.append(process)
    done = []
    waiting = set(running)
    while waiting:
        for process in [each for each in waiting if each.poll() is not None]:
            done.append((time.perf_counter() - started) * 1000)
            waiting.remove(process)
        time.sleep(0.0005)
    answers = 0
    for process in running:
        assert process.stdout is not None
        assert process.stderr is not None
        answers += bool(process.stdout.read())
        if process.returncode or process.stderr.read():
            raise RuntimeError("a hook in a crowd failed")
        process.stdout.close()
        process.stderr.close()
    return {"clients": clients, "with_notes": answers, "done": _spread(done)}


def _cold(hook: _Hook, times: int) -> dict[str, Any]:
    """Ask without a daemon; return milliseconds, answers, and processes left."""
    prompts = _prompts()[22]
    answered = [prompt for prompt in prompts if hook.ask(prompt)[1]]
    took, answers, processes = [], 0, []
    for _, prompt in zip(range(times), itertools.cycle(answered), strict=False):
        hook.stop()
        milliseconds, out = hook.ask(prompt)
        took.append(milliseconds)
        answers += bool(out)
        processes.append(len(hook.processes()))
    return {
        "first_prompt": _spread(took),
        "asked": times,
        "with_notes": answers,
        "processes": processes,
    }


def _growth(homes: dict[int, Path], runs: int) -> dict[str, Any]:
    """Ask the smallest and the largest index in turns."""
    prompts = _prompts()[22]
    with _Hook(homes[min(homes)]) as small, _Hook(homes[max(homes)]) as large:
        rows = [
            (small.ask(prompt)[0], large.ask(prompt)[0])
            for _, prompt in zip(range(runs), itertools.cycle(prompts), strict=False)
        ]
    one, other = (_spread(column) for column in zip(*rows, strict=True))
    return {
        "sizes": [min(homes), max(homes)],
        "small": one,
        "large": other,
        "ratio": round(other["median"] / one["median"], 3),
    }


def _targets(results: dict[str, Any], size: str) -> dict[str, Any]:
    """Return each promise with what was measured: ``[measured, at most]``."""
    warm = results["warm"][size]
    found: dict[str, Any] = {}
    for words in ("5", "22", "44"):
        found[f"median over floor, {words} words"] = [warm[words]["ratio"], 1.35]
        found[f"p99 over floor, {words} words"] = [warm[words]["p99_ratio"], 2.5]
    found["machine-made over bare interpreter"] = [warm["machine-made"]["ratio"], 1.4]
    found["cold first prompt, ms"] = [results["cold"]["first_prompt"]["median"], 1200]
    if "growth" in results:
        small, large = results["growth"]["sizes"]
        found[f"{large:,} over {small:,} passages"] = [results["growth"]["ratio"], 1.15]
    return found


# --- indexes ------------------------------------------------------------------------------------


def _home(cache: Path, size: int) -> Path:
    """Return a home whose index has ``size`` passages, made where the cache has none."""
    # A socket's path is short, and a cache may lie anywhere: the runtime folder sees to that.
    home = cache.resolve() / f"passages-{size}"
    try:
        with Catalog.open(generations.current(home).catalog) as catalog:
            current = catalog.chunker_version == chunking.version(_tiers(home))
            if current and catalog.live() >= size:
                return home
    except Exception:  # noqa: BLE001 - whatever is wrong with a cache, it is made anew
        _tell(f"making an index of {size:,} passages")
    real = _fixtures(cache.resolve())
    home.mkdir(parents=True, exist_ok=True)
    made = generations.create(home)
    version = chunking.version(_tiers(home))
    with Catalog.open(generations.current(real).catalog) as source:
        ids = [note_id(name, key) for name in source.sources() for key in source.fingerprints(name)]
        stored = source.stored(ids)
        with Catalog.create(made.catalog, source.identity, version) as catalog:
            catalog.replace(stored)
            notes = _invented(stored, size - catalog.live())
            while batch := list(itertools.islice(notes, NOTES_PER_BATCH)):
                catalog.replace(batch)
            vectors.checkpoint(made, catalog, force=True)
    generations.publish(home, made.id)
    generations.prune(home)
    return home


def _tiers(home: Path) -> Any:
    return configuration.load(home).settings.tiers


def _fixtures(cache: Path) -> Path:
    """Return a home with the fixtures' index."""
    home = cache / "fixtures"
    home.mkdir(parents=True, exist_ok=True)
    config = replace(configuration.load(home), sources=tuple(fixtures.sources(home)))
    indexing.rebuild(config)
    return home


def _invented(real: Sequence[IndexedNote], passages: int) -> Iterator[IndexedNote]:
    """Yield notes nobody wrote, with ``passages`` passages in all, the same on every run."""
    chance, noise = random.Random(7), np.random.default_rng(7)
    words = [word for each in real for passage, _ in each.passages for word in passage.text.split()]
    centres = np.array([vector for each in real for _, vector in each.passages])
    # Mixtures of three real passages with a little noise: as many directions as real notes have.
    # Noise alone has 384, among which no graph finds its way.
    around = np.zeros((passages, centres.shape[1]), dtype=np.float32)
    for weight in (1.0, 0.6, 0.4):
        around += weight * centres[noise.integers(0, len(centres), passages)]
    around += NOISE * noise.standard_normal(around.shape, dtype=np.float32)
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    for start in range(0, passages, PASSAGES_PER_NOTE):
        key = f"invented/{start}.md"
        owner = note_id("invented", key)
        rows = range(start, min(start + PASSAGES_PER_NOTE, passages))
        texts = [_text(chance, words) for _ in rows]
        title = " ".join(chance.choices(words, k=4))
        note = Note("invented", key, title, "", (), None, None, (), f"file:///invented/{start}.md")
        yield IndexedNote(
            note,
            key,
            [
                (
                    Passage(f"{owner}-{at}", owner, at, "section", (), text, f"{key} {at}"),
                    around[row],
                )
                for at, (row, text) in enumerate(zip(rows, texts, strict=True))
            ],
        )


def _text(chance: random.Random, words: Sequence[str]) -> str:
    drawn = chance.choices(words, k=chance.randint(*WORDS_PER_PASSAGE))
    for at, word in enumerate(drawn):
        if chance.random() < COINED:
            drawn[at] = word[: len(word) // 2 + 1] + chance.choice(words)[-4:]
    return " ".join(drawn)


# --- numbers ------------------------------------------------------------------------------------


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, 95th and 99th percentile and the largest."""
    row = np.asarray(values)
    return {
        "median": round(float(np.median(row)), 2),
        "p95": round(float(np.percentile(row, 95)), 2),
        "p99": round(float(np.percentile(row, 99)), 2),
        "max": round(float(row.max()), 2),
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _kilobytes(text: bytes, name: bytes) -> float:
    for line in text.splitlines():
        if line.startswith(name + b":"):
            return float(line.split()[1])
    return float("nan")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _table(results: dict[str, Any]) -> None:
    _tell("\npassages   prompt        bare  forward   hook    p99  × floor  p99 × floor")
    for size, warm in results["warm"].items():
        for prompt, row in warm.items():
            if prompt in ("5", "22", "44", "150"):
                _tell(
                    f"{size:>8}  {prompt + ' words':<13}{row['bare']['median']:6.1f}"
                    f"{row['forward']['median']:9.1f}{row['hook']['median']:7.1f}"
                    f"{row['hook']['p99']:7.1f}{row['ratio']:9.2f}{row['p99_ratio']:13.2f}"
                )
        made = warm["machine-made"]
        _tell(
            f"{size:>8}  {'machine-made':<13}{made['bare']['median']:6.1f}{'':9}"
            f"{made['hook']['median']:7.1f}{made['hook']['p99']:7.1f}{made['ratio']:9.2f}"
        )
    _tell("\npassages   prompt       interpreter  client  parse  embed  search  decide  render")
    for size, warm in results["warm"].items():
        for prompt, row in warm.items():
            if where := row.get("where_ms"):
                _tell(
                    f"{size:>8}  {prompt + ' words':<13}{where['interpreter']:11.2f}"
                    f"{where['client']:8.2f}"
                    + "".join(f"{where[stage]:{len(stage) + 2}.2f}" for stage in STAGES)
                )
    for size, warm in results["warm"].items():
        crowd = warm["crowd"]
        _tell(
            f"\n{size} passages: {crowd['clients']} at once {crowd['done']}, "
            f"memory {warm['memory']}"
        )
    _tell(f"cold: {results['cold']}\n")
    for name, (measured, most) in results["targets"].items():
        _tell(f"{'ok  ' if measured <= most else 'OVER'} {name}: {measured} (at most {most})")


if __name__ == "__main__":
    main()
