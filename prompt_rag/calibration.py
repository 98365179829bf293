"""Thresholds that belong to a model: the shipped file, and a person's own beside the index.

``prompt_rag/data/calibration.json`` is written by ``benchmarks/thresholds.py`` for the default
model; ``<home>/calibration.json`` has the same form and wins. Both map a model's fingerprint to its
thresholds and to how they were fitted. A model without an entry has no thresholds: the hook
abstains as ``uncalibrated``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from prompt_rag.config import Settings
from prompt_rag.domain import ConfigError, EmbedderIdentity, Thresholds

SHIPPED = Path(__file__).parent / "data" / "calibration.json"
OWN = "calibration.json"
_NUMBERS = ("max_distance", "min_gap", "sure_distance", "search_distance")
# A search somebody asked for, with a model nobody has measured, lists whatever comes first.
UNCALIBRATED_SEARCH_DISTANCE = 2.0


def entries(file: Path) -> dict[str, dict[str, Any]]:
    """Return the calibrations in ``file`` by fingerprint; none where there is no file.

    Raises :class:`ConfigError` where the file is not a calibration.
    """
    try:
        raw = orjson.loads(file.read_bytes())
        models = {str(entry["fingerprint"]): dict(entry) for entry in raw["models"]}
        for entry in models.values():
            for name in _NUMBERS:
                entry[name] = float(entry[name])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{file} is not a calibration: {error!r}", f"rm {file}") from error
    return models


def thresholds(identity: EmbedderIdentity, settings: Settings, home: Path) -> Thresholds | None:
    """Return the thresholds of a model, settings over own calibration over the shipped one.

    None where the model has no calibration and the settings do not name both ``max_distance`` and
    ``min_gap``. Raises :class:`ConfigError` where a calibration file is damaged.
    """
    entry = entries(home / OWN).get(identity.fingerprint) or entries(SHIPPED).get(
        identity.fingerprint
    )
    given = {
        name: value
        for name in ("max_distance", "min_gap", "search_distance")
        if (value := getattr(settings, name)) is not None
    }
    if entry is not None:
        fitted = Thresholds(
            **{name: entry[name] for name in _NUMBERS}, calibrated_for=identity.fingerprint
        )
        chosen = replace(fitted, **given)
        # A stricter limit set by hand holds for the sure ones too.
        return replace(chosen, sure_distance=min(chosen.sure_distance, chosen.max_distance))
    if "max_distance" in given and "min_gap" in given:
        return Thresholds(
            max_distance=given["max_distance"],
            min_gap=given["min_gap"],
            sure_distance=0.0,
            search_distance=given.get("search_distance", UNCALIBRATED_SEARCH_DISTANCE),
            calibrated_for="",
        )
    return None
