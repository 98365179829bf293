"""What a person said about logged decisions, as labelled prompts.

``feedback.jsonl`` in the home, one line for each label: ``id`` of the decision, ``time``,
``verdict`` (``good`` or ``bad``), ``prompt`` (its digest), ``relevant`` (note keys; [] means that
nothing should have come) and ``text``, the prompt's own, only where the log kept it or the person
gave it. The latest label of a prompt holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from prompt_rag import fsio, wire
from prompt_rag.domain import ConfigError, LabelledPrompt, Reason

FILE = "feedback.jsonl"
KIND = "feedback"
SPLIT = "tune"  # what somebody corrected is there to be learnt from

JUDGED = frozenset(
    {
        Reason.CONFIDENT,
        Reason.NO_NOTES,
        Reason.TOO_FAR,
        Reason.GAP_TOO_SMALL,
        Reason.LOW_PROBABILITY,
        Reason.CONTENTLESS,
    }
)
"""Reasons that say something about prompt and notes, and so can be right or wrong."""

Word = Literal["good", "bad"]


@dataclass(frozen=True, slots=True)
class Label:
    """One label; ``text`` is "" where the prompt's text is not known."""

    id: str
    time: str
    verdict: Word
    prompt: str
    relevant: tuple[str, ...]
    text: str = ""


def label(
    record: Mapping[str, Any],
    verdict: Word,
    *,
    notes: Sequence[str] = (),
    text: str | None = None,
    now: datetime | None = None,
) -> Label:
    """Return the label that ``verdict`` on the logged decision ``record`` is.

    ``notes`` are keys of what should have come instead; ``text`` is the prompt's where the log has
    none. Raises :class:`ConfigError` where that does not fit the decision.
    """
    name, reason = str(record.get("id", "")), str(record.get("reason", ""))
    if not can_be_judged(record):
        raise ConfigError(
            f"decision {name} was not about your notes ({reason}), so it cannot be {verdict}",
            "prompt-rag why",
        )
    injected = record.get("outcome") == "inject"
    if verdict == "bad" and not injected and not notes:
        raise ConfigError(
            f"decision {name} was silence; say which note should have come",
            f"prompt-rag feedback bad {name} --note NOTE",
        )
    if text is not None and wire.digest(text) != record.get("prompt"):
        raise ConfigError(
            f"decision {name} was about another prompt than this text", "prompt-rag why"
        )
    relevant = tuple(notes)
    if verdict == "good" and injected:
        relevant = tuple(str(each["note"]) for each in record.get("excerpts", ()))
    return Label(
        id=name,
        time=(now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds"),
        verdict=verdict,
        prompt=str(record.get("prompt", "")),
        relevant=tuple(dict.fromkeys(relevant)),
        text=str(record.get("text") or "") if text is None else text,
    )


def can_be_judged(record: Mapping[str, Any]) -> bool:
    """Whether a logged decision says something about prompt and notes."""
    return record.get("reason") in JUDGED


def append(home: Path, new: Label) -> None:
    """Store ``new``, readable by this person alone. Raises OSError."""
    line = {key: value for key, value in asdict(new).items() if key != "text" or value}
    fsio.append_line(str(home / FILE), orjson.dumps(line))


def read(home: Path) -> list[Label]:
    """Return the label that holds for each prompt, oldest first; what does not parse is skipped."""
    try:
        lines = (home / FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    latest: dict[str, Label] = {}
    for line in lines:
        for found in _parsed(line):
            before = latest.pop(found.prompt, None)  # the order is that of the latest
            text = found.text or (before.text if before is not None else "")
            latest[found.prompt] = replace(found, text=text)
    return list(latest.values())


def _parsed(line: bytes) -> Iterator[Label]:
    try:
        raw = orjson.loads(line)
        relevant = raw["relevant"]
        if raw["verdict"] in {"good", "bad"} and isinstance(relevant, list):
            yield Label(
                id=str(raw["id"]),
                time=str(raw["time"]),
                verdict=raw["verdict"],
                prompt=str(raw["prompt"]),
                relevant=tuple(str(each) for each in relevant),
                text=str(raw.get("text", "")),
            )
    except (ValueError, TypeError, KeyError):
        return


def prompts(labels: Sequence[Label]) -> list[LabelledPrompt]:
    """Return those labels whose text is known as prompts for ``eval`` and ``tune``."""
    return [
        LabelledPrompt(f"{KIND}-{each.id}", each.text, each.relevant, KIND, SPLIT)
        for each in labels
        if each.text
    ]


def line(prompt: LabelledPrompt) -> bytes:
    """Return a prompt as a line of a prompt file."""
    raw = {
        "id": prompt.id,
        "prompt": prompt.prompt,
        "relevant": list(prompt.relevant),
        "kind": prompt.kind,
        "split": prompt.split,
    }
    return orjson.dumps(raw) + b"\n"
