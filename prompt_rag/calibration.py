"""What was fitted for a model: its thresholds and weights, shipped or a person's own.

``prompt_rag/data/calibration.json`` is for the default model and is written by
``benchmarks/calibrate.py``; ``<home>/calibration.json`` has the same form, is written by
``prompt-rag tune --apply``, and wins. Both hold entries by a model's fingerprint. A model without
an entry has no thresholds: the hook abstains as ``uncalibrated``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from prompt_rag import fsio
from prompt_rag.config import Settings
from prompt_rag.domain import ConfigError, EmbedderIdentity, Thresholds
from prompt_rag.policy import FEATURES, Weights

SHIPPED = Path(__file__).parent / "data" / "calibration.json"
OWN = "calibration.json"
LIMITS = ("max_distance", "min_gap", "sure_distance", "search_distance", "min_probability")
"""The numbers of :class:`Thresholds`, under their names in the file."""
# A search somebody asked for, with a model nobody has measured, lists whatever comes first.
UNCALIBRATED_SEARCH_DISTANCE = 2.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """Thresholds and weights of one model; ``facts`` says how they were fitted.

    ``weights`` is None where distance and gap decide alone. ``distance_gap`` is the best they can
    do alone, to compare with; None where that was not fitted.
    """

    model: str
    thresholds: Thresholds
    weights: Weights | None
    facts: Mapping[str, Any]
    distance_gap: Thresholds | None = None


def of_model(identity: EmbedderIdentity, settings: Settings, home: Path) -> Calibration | None:
    """Return what holds for a model: settings over own calibration over the shipped one.

    None where the model has no calibration and the settings do not name both ``max_distance`` and
    ``min_gap``. Raises :class:`ConfigError` where a calibration file is damaged.
    """
    fitted = read(home / OWN).get(identity.fingerprint) or read(SHIPPED).get(identity.fingerprint)
    given = {
        name: value
        for name in ("max_distance", "min_gap", "search_distance", "min_probability")
        if (value := getattr(settings, name)) is not None
    }
    if fitted is not None:
        chosen = replace(fitted.thresholds, **given)
        # A stricter limit set by hand holds for the sure ones too.
        sure = min(chosen.sure_distance, chosen.max_distance)
        return replace(fitted, thresholds=replace(chosen, sure_distance=sure))
    if "max_distance" in given and "min_gap" in given:
        bar = Thresholds(
            max_distance=given["max_distance"],
            min_gap=given["min_gap"],
            sure_distance=0.0,
            search_distance=given.get("search_distance", UNCALIBRATED_SEARCH_DISTANCE),
            calibrated_for="",
        )
        return Calibration(identity.name, bar, None, {"origin": "settings"}, bar)
    return None


def read(file: Path) -> dict[str, Calibration]:
    """Return the calibrations in ``file`` by fingerprint; none where there is no file.

    Raises :class:`ConfigError` where the file is not a calibration.
    """
    try:
        raw = orjson.loads(file.read_bytes())
        return {str(entry["fingerprint"]): _entry(entry) for entry in raw["models"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        mend = f"rm {shlex.quote(str(file))}"
        if file == SHIPPED:
            mend = "pip install --force-reinstall --no-deps prompt-rag"
        raise ConfigError(f"{file} is not a calibration: {error!r}", mend) from error


def _entry(raw: Mapping[str, Any]) -> Calibration:
    weights, alone = raw.get("weights"), raw.get("distance_gap")
    fingerprint = str(raw["fingerprint"])
    return Calibration(
        model=str(raw["name"]),
        thresholds=_thresholds(raw["thresholds"], fingerprint),
        weights=None
        if weights is None
        else Weights(
            intercept=_number(weights["intercept"]),
            terms={name: _number(weights["terms"][name]) for name in _known(weights["terms"])},
            typical={name: _number(weights["typical"][name]) for name in weights["terms"]},
        ),
        facts=dict(raw.get("facts", {})),
        distance_gap=None if alone is None else _thresholds(alone, fingerprint),
    )


def _thresholds(raw: Mapping[str, Any], fingerprint: str) -> Thresholds:
    numbers = {name: _number(raw[name]) for name in LIMITS}
    return Thresholds(**numbers, calibrated_for=fingerprint)


def _known(terms: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in terms:
        if name not in FEATURES:
            raise ValueError(f"unknown feature {name}")
    return terms


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no number")
    return number


def write(file: Path, fitted: Calibration, mode: int = fsio.FILE_MODE) -> None:
    """Put ``fitted`` into ``file``, in place of what it holds for the same model.

    Raises :class:`ConfigError` where the file holds something else, OSError where it cannot be
    written.
    """
    entries = {**read(file), fitted.thresholds.calibrated_for: fitted}
    document = {"models": [_raw(entry) for entry in entries.values()]}
    fsio.write_atomic(str(file), orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n", mode)


def _raw(entry: Calibration) -> dict[str, Any]:
    weights, alone = entry.weights, entry.distance_gap
    return {
        "name": entry.model,
        "fingerprint": entry.thresholds.calibrated_for,
        "thresholds": {name: getattr(entry.thresholds, name) for name in LIMITS},
        **({} if alone is None else {"distance_gap": {n: getattr(alone, n) for n in LIMITS}}),
        "weights": None
        if weights is None
        else {
            "intercept": weights.intercept,
            "terms": dict(weights.terms),
            "typical": dict(weights.typical),
        },
        "facts": dict(entry.facts),
    }
