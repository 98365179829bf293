"""What was fitted for a model: which of three places wins, and what a damaged file says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prompt_rag import calibration, embedder, policy
from prompt_rag.calibration import Calibration
from prompt_rag.config import Settings
from prompt_rag.domain import (
    Candidate,
    ConfigError,
    EmbedderIdentity,
    NoteHead,
    Passage,
    Reason,
    Thresholds,
)
from prompt_rag.policy import Weights

MODEL = EmbedderIdentity("a model", "abc", 384, True, "", "", 256)
BAR = Thresholds(0.5, 0.02, 0.25, 0.7, "abc", min_probability=0.8)
WEIGHTS = Weights(1.5, {"distance": -4.0, "gap": 2.0}, {"distance": 0.5, "gap": 0.05})
FITTED = Calibration("a model", BAR, WEIGHTS, {"on": "prompts of a test", "answerable": 3})


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that comes with the installation; empty until a test fills it."""
    file = tmp_path / "shipped.json"
    monkeypatch.setattr(calibration, "SHIPPED", file)
    return file


@pytest.fixture
def home(tmp_path: Path, shipped: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def of_model(home: Path, **settings: float) -> Calibration | None:
    return calibration.of_model(MODEL, replace(Settings(), **settings), home)


# --- files --------------------------------------------------------------------------------------


ALONE = Thresholds(0.45, 0.1, 0.2, 0.7, "abc")


@pytest.mark.parametrize(
    "fitted", [FITTED, replace(FITTED, weights=None), replace(FITTED, distance_gap=ALONE)]
)
def test_what_is_written_is_read(tmp_path: Path, fitted: Calibration) -> None:
    file = tmp_path / "c.json"
    calibration.write(file, fitted)
    assert calibration.read(file) == {"abc": fitted}
    assert file.stat().st_mode & 0o777 == 0o600


def test_each_model_has_its_own_entry(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    other = replace(FITTED, model="other", thresholds=replace(BAR, calibrated_for="xyz"))
    newer = replace(FITTED, thresholds=replace(BAR, max_distance=0.4))
    for fitted in (FITTED, other, newer):
        calibration.write(file, fitted)
    assert calibration.read(file) == {"abc": newer, "xyz": other}


def test_no_file_has_no_entries(tmp_path: Path) -> None:
    assert calibration.read(tmp_path / "none.json") == {}


def entry(**changed: Any) -> str:
    raw = {
        "name": "a model",
        "fingerprint": "abc",
        "thresholds": {
            "max_distance": 0.5,
            "min_gap": 0.02,
            "sure_distance": 0.25,
            "search_distance": 0.7,
            "min_probability": 0.8,
        },
    }
    return json.dumps({"models": [{**raw, **changed}]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"models": 1}',
        '{"models": ["abc"]}',
        '{"models": [{}]}',
        '{"models": [[]]}',
        entry(thresholds=None),
        entry(thresholds={"max_distance": 0.5}),
        entry(thresholds={**json.loads(entry())["models"][0]["thresholds"], "min_gap": "wide"}),
        entry(thresholds={**json.loads(entry())["models"][0]["thresholds"], "min_gap": "inf"}),
        entry(thresholds={**json.loads(entry())["models"][0]["thresholds"], "min_gap": None}),
        entry(weights=3),
        entry(weights={"intercept": 1, "terms": {"taste": 1}, "typical": {"taste": 1}}),
        entry(weights={"intercept": 1, "terms": {"gap": 1}, "typical": {}}),
        entry(weights={"intercept": 1, "terms": ["gap"], "typical": {"gap": 1}}),
        entry(weights={"terms": {}, "typical": {}}),
        entry(facts=3),
        entry(distance_gap=3),
        entry(distance_gap={"max_distance": 0.5}),
    ],
)
def test_a_file_that_is_no_calibration(home: Path, text: str) -> None:
    file = home / calibration.OWN
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not a calibration: ") as caught:
        of_model(home)
    assert caught.value.message.startswith(str(file))
    assert caught.value.hint == f"rm {file}"
    with pytest.raises(ConfigError):
        calibration.write(file, FITTED)
    assert file.read_text() == text


def test_the_mend_can_be_typed(tmp_path: Path, shipped: Path) -> None:
    folder = tmp_path / "a folder's name"
    folder.mkdir()
    (folder / calibration.OWN).write_text("")
    with pytest.raises(ConfigError) as caught:
        calibration.read(folder / calibration.OWN)
    assert caught.value.hint == f"""rm '{tmp_path}/a folder'"'"'s name/calibration.json'"""
    shipped.write_text("")
    with pytest.raises(ConfigError) as caught:
        calibration.read(shipped)
    assert caught.value.hint.startswith("pip install ")


def test_an_entry_without_weights_or_facts(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(entry())
    assert calibration.read(file) == {"abc": Calibration("a model", BAR, None, {})}


# --- what holds for a model ---------------------------------------------------------------------


def test_a_model_nobody_measured(home: Path) -> None:
    assert of_model(home) is None
    assert of_model(home, max_distance=0.5) is None
    assert of_model(home, min_gap=0.1, search_distance=0.9) is None


def test_a_person_may_set_the_limits_of_such_a_model(home: Path) -> None:
    by_hand = of_model(home, max_distance=0.5, min_gap=0.1)
    assert by_hand is not None
    assert by_hand.thresholds == Thresholds(0.5, 0.1, 0.0, 2.0, "")
    assert by_hand.weights is None
    assert by_hand.distance_gap == by_hand.thresholds
    wider = of_model(home, max_distance=0.5, min_gap=0.1, search_distance=0.9)
    assert wider is not None
    assert wider.thresholds.search_distance == 0.9


def test_what_is_shipped_holds(home: Path, shipped: Path) -> None:
    calibration.write(shipped, FITTED)
    assert of_model(home) == FITTED
    other = replace(MODEL, fingerprint="xyz")  # of the same name: not the same model
    assert calibration.of_model(other, Settings(), home) is None


def test_a_persons_own_wins(home: Path, shipped: Path) -> None:
    own = replace(FITTED, weights=None, facts={})
    calibration.write(shipped, FITTED)
    calibration.write(home / calibration.OWN, own)
    assert of_model(home) == own


def test_own_entries_of_other_models_change_nothing(home: Path, shipped: Path) -> None:
    calibration.write(shipped, FITTED)
    other = replace(FITTED, thresholds=replace(BAR, calibrated_for="xyz"))
    calibration.write(home / calibration.OWN, other)
    assert of_model(home) == FITTED


@pytest.mark.parametrize("name", ["max_distance", "min_gap", "search_distance", "min_probability"])
def test_a_setting_wins_over_both(home: Path, shipped: Path, name: str) -> None:
    calibration.write(shipped, FITTED)
    found = of_model(home, **{name: 0.45})
    assert found == replace(FITTED, thresholds=replace(BAR, **{name: 0.45}))


def test_a_setting_of_zero_is_a_setting(home: Path, shipped: Path) -> None:
    calibration.write(shipped, FITTED)
    found = of_model(home, min_gap=0.0)
    assert found is not None
    assert found.thresholds.min_gap == 0.0


def test_a_stricter_distance_holds_for_the_sure_ones_too(home: Path, shipped: Path) -> None:
    calibration.write(shipped, FITTED)
    found = of_model(home, max_distance=0.1)
    assert found is not None
    assert found.thresholds.sure_distance == 0.1
    wider = of_model(home, max_distance=0.9)
    assert wider is not None
    assert wider.thresholds.sure_distance == 0.25


# --- the file that ships ------------------------------------------------------------------------


@pytest.fixture
def default(tmp_path: Path) -> Calibration:
    identity = embedder.identity_of(embedder.locate(embedder.DEFAULT_MODEL, tmp_path))
    found = calibration.of_model(identity, Settings(), tmp_path)
    assert found is not None, "no calibration ships for the default model's fingerprint"
    return found


def test_the_default_model_is_calibrated(default: Calibration) -> None:
    bar = default.thresholds
    assert default.model == embedder.DEFAULT_MODEL
    assert 0.0 <= bar.sure_distance <= bar.max_distance <= bar.search_distance <= 2.0
    assert 0.0 <= bar.min_probability <= 1.0
    assert default.weights is None or set(default.weights.terms) <= set(policy.FEATURES)


def test_a_flat_list_is_withheld_as_shipped(default: Calibration) -> None:
    """Two mediocre finds that nearly tie on a neighbouring subject: neither is the answer."""
    evidence = {
        policy.WHOLE_NOTE: 0.5,
        policy.COVERAGE: 0.3,
        policy.TITLE_COVERAGE: 0.0,
        policy.PASSAGE_COVERAGE: 0.3,
        policy.PASSAGE_WORDS: 2.0,
    }
    candidates = [
        Candidate(
            Passage(name, name, 0, "section", (), "text", name),
            NoteHead(name, "notes", f"{name}.md", name, "", None, ()),
            distance,
            rank,
            {**evidence, policy.TO_BEST: to_best},
        )
        for name, distance, rank, to_best in (("one", 0.440, 1, 0.0), ("two", 0.445, 2, 0.3))
    ]
    ruling = policy.decide(candidates, default.thresholds, default.weights)
    assert ruling.reason in {Reason.GAP_TOO_SMALL, Reason.LOW_PROBABILITY}
