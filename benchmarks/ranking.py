"""Choose the weights of the order of candidates on the fixtures' tune split.

``python benchmarks/ranking.py`` prints JSON: MRR and recall@5 on tune and test for each combination
of weights, best on tune first, and where the weights in use stand.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prompt_rag import candidates, evaluation, indexing, policy
from prompt_rag import config as configuration
from prompt_rag.cli import fixtures
from prompt_rag.evaluation import Case
from prompt_rag.search import Reader

BEST_PASSAGE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
WORDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
TITLE_WORDS = (0.0, 0.05, 0.1, 0.2, 0.3)
IN_USE = (candidates.BEST_PASSAGE, candidates.WORDS, candidates.TITLE_WORDS)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        config = replace(configuration.load(home), sources=tuple(fixtures.sources(home)))
        indexing.rebuild(config)
        with Reader.open(config) as reader:
            prompts = fixtures.prompts()
            cases = [
                case
                for case in evaluation.run("prompt-rag", reader, prompts)
                if case.answerable and case.candidates
            ]
    rows = []
    for weights in sorted({IN_USE, *itertools.product(BEST_PASSAGE, WORDS, TITLE_WORDS)}):
        row: dict[str, object] = {"weights": weights, "in_use": weights == IN_USE}
        for split in ("tune", "test"):
            chosen = [case for case in cases if case.prompt.split == split]
            row[split] = _figures(chosen, *weights)
        rows.append(row)
    rows.sort(key=lambda row: (-sum(row["tune"]), row["weights"]))  # type: ignore[call-overload]
    print(json.dumps({"best": rows[:20], "in_use": [row for row in rows if row["in_use"]]}))


def _figures(
    cases: Sequence[Case], best_passage: float, words: float, title: float
) -> tuple[float, float]:
    """Return MRR and recall@5 in the order that the weights make."""
    reciprocal = recall = 0.0
    for case in cases:
        order = sorted(
            zip(case.candidates, case.ranked, strict=True),
            key=lambda pair: (
                best_passage * pair[0].distance
                + (1 - best_passage) * pair[0].evidence[policy.WHOLE_NOTE]
                - words * pair[0].evidence[policy.COVERAGE]
                - title * pair[0].evidence[policy.TITLE_COVERAGE]
            ),
        )
        relevant = set(case.prompt.relevant)
        found = [bool(set(keys) & relevant) for _, keys in order]
        reciprocal += 1 / (found.index(True) + 1) if True in found else 0.0
        first_five = {key for _, keys in order[:5] for key in keys}
        recall += len(first_five & relevant) / len(relevant)
    return round(reciprocal / len(cases), 4), round(recall / len(cases), 4)


if __name__ == "__main__":
    main()
