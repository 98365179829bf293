"""Fit the shipped thresholds: a sweep on the fixtures' tune split, checked once on the test split.

``python benchmarks/thresholds.py`` prints JSON; ``--write`` also replaces
``prompt_rag/data/calibration.json``, from which the hook takes its bar.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prompt_rag import calibration, evaluation, fsio, indexing, tuning
from prompt_rag import config as configuration
from prompt_rag.cli import fixtures
from prompt_rag.evaluation import Case
from prompt_rag.search import Reader

MAX_FALSE_INJECTION = 0.01


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        config = replace(configuration.load(home), sources=tuple(fixtures.sources(home)))
        indexing.rebuild(config)
        prompts = evaluation.load_prompts(fixtures.prompts_file())
        with Reader.open(config) as reader:
            identity = reader.embedder.identity
            cases = evaluation.run("prompt-rag", reader, prompts)
            tune = [case for case in cases if case.prompt.split == "tune"]
            fit = tuning.fit(tune, MAX_FALSE_INJECTION, identity.fingerprint)
            reader.thresholds = fit.thresholds
            fitted = evaluation.run("prompt-rag", reader, prompts)
    bar = asdict(fit.thresholds)
    del bar["calibrated_for"]
    entry = {
        "name": identity.name,
        "fingerprint": identity.fingerprint,
        **bar,
        "fitted_by": "benchmarks/thresholds.py",
        "max_false_injection": MAX_FALSE_INJECTION,
    }
    result = {
        "thresholds": entry,
        **{
            split: _figures([case for case in fitted if case.prompt.split == split])
            for split in ("tune", "test")
        },
    }
    print(json.dumps(result, indent=2))
    if "--write" in sys.argv:
        document = json.dumps({"models": [entry]}, indent=2) + "\n"
        fsio.write_atomic(str(calibration.SHIPPED), document.encode(), mode=0o644)


def _figures(cases: Sequence[Case]) -> dict[str, Any]:
    return {
        "answerable": sum(case.answerable for case in cases),
        "unanswerable": sum(not case.answerable for case in cases),
        **evaluation.figures(cases),
        "falsely_injected": {
            case.prompt.id: [case.prompt.kind, *[keys[0] for keys in case.injected]]
            for case in cases
            if case.false and not case.answerable
        },
        "wrong_notes": {
            case.prompt.id: [keys[0] for keys in case.injected]
            for case in cases
            if case.false and case.answerable
        },
    }


if __name__ == "__main__":
    main()
