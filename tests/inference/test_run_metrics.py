"""The record behind metrics.json."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hypercaps.data.labels import Legend
from hypercaps.inference.metrics import ConfidenceReport, SetRow, rejection_table, reliability, score
from hypercaps.inference.run_metrics import AreaRow, Baseline, CandidateRow, RunMetrics

SURE, RIGHT = np.linspace(0.2, 0.95, 40), np.arange(40) % 3 > 0
BARE = ConfidenceReport(reliability(SURE, RIGHT))
CALIBRATED = replace(
    BARE,
    calibration="isotonic",
    after=BARE.before,
    rejection=rejection_table(SURE, RIGHT),
    sets=(SetRow(0.8, 0.81, 1.5), SetRow(0.9, 0.92, 2.0)),
    pixels=40,
)
SCORES = ["oa", "aa", "kappa", "oa_interval", "aa_interval", "kappa_interval", "per_class", "confusion"]
CONFIDENCE = [
    "calibration", "calibration_pixels", "ece_before", "ece_after", "reliability", "rejection", "sets", "coverage_90",
    "set_size_90",
]  # fmt: skip
SPLIT = [
    "n_train", "n_val", "n_test", "split", "block", "folds", "units", "n_units", "untested", "within_one_area",
    "partly_seen", "distances", "leakage", "patch", "parameters",
]  # fmt: skip
EVIDENCE = ["baseline", "candidates", "areas", "map_accuracy", "map_accuracy_interval", "doubtful"]


def metrics_with(confidence: ConfidenceReport | None) -> RunMetrics:
    scores = score(np.array([1, 2, 2, 1]), np.array([1, 2, 1, 1]), Legend.of([1, 2, 5]))
    return RunMetrics(
        scores.oa, scores.aa, scores.kappa, scores.per_class, scores.confusion.tolist(), confidence, split="random"
    )


@pytest.mark.parametrize("confidence", [None, BARE, CALIBRATED])
def test_reading_gives_what_was_written(confidence: ConfidenceReport | None) -> None:
    evaluated = metrics_with(confidence)
    trained = replace(evaluated, train_seconds=1.5, epochs=3, seed=0, model_sha256="abc", params={"seed": 1})
    both = replace(trained, both={"random": evaluated, "blocks": replace(trained, split="blocks", block=16)})
    row = CandidateRow("lda", "lda", "LDA", "chosen", 90.0, (80.0, 95.0), 0.3, 5, 0.1)
    folds = replace(
        trained,
        oa_interval=(1.0, 2.0),
        untested=("oats",),
        baseline=Baseline("lda", 70.0, 0.1, (60.0, 80.0)),
        candidates=(row, replace(row, oa=None, oa_interval=None, outcome="not run")),
        areas=(AreaRow(1, "corn", 10.0, 11.0, 9.0, 12.0, "ha", True),),
        map_accuracy=81.0,
        map_accuracy_interval=(70.0, 90.0),
        per_class=(replace(trained.per_class[0], interval=(50.0, 100.0), units=3, users_interval=(9.0, 99.0)),),
    )
    shifted = replace(evaluated, trained_on="field", scene_shift="All of it is darker.", claimed=True)
    for metrics in (evaluated, shifted, trained, both, folds, replace(evaluated, oa=None, aa=None, kappa=None)):
        assert RunMetrics.from_json(json.loads(json.dumps(metrics.to_json(), allow_nan=False))) == metrics


def test_keys_and_their_order() -> None:
    evaluated = metrics_with(CALIBRATED)
    facts = ["method", "recipe", "pseudo_labelled", "seed", "scene", "trained_on", "scene_shift", "claimed"]
    assert list(evaluated.to_json()) == [*SCORES, *CONFIDENCE, *SPLIT, *facts, *EVIDENCE]
    assert list(metrics_with(None).to_json()) == [*SCORES, *SPLIT, *facts, *EVIDENCE]
    trained = replace(evaluated, train_seconds=1.5, model_sha256="abc", both={"random": evaluated})
    training = ["train_seconds", "best_epoch", "epochs", "interrupted", "seed", "method", "recipe", "pseudo_labelled"]
    origin = [
        "command",
        "inputs",
        "params",
        "versions",
        "model_sha256",
        "labels_digest",
        "coverage",
        "reject",
        "unknown",
    ]
    assert list(trained.to_json()) == [*SCORES, *CONFIDENCE, *SPLIT, *training, "scene", *EVIDENCE, "both", *origin]
    figures = trained.to_json()
    assert figures["coverage_90"] == 0.92 and figures["set_size_90"] == 2.0
    assert list(figures["reliability"]["before"][0]) == ["from", "to", "confidence", "accuracy", "count"]


def test_files_of_older_versions_lack_keys() -> None:
    metrics = RunMetrics.from_json({"oa": 90.0, "aa": 80.0, "kappa": 70.0, "unknown": 1})
    assert metrics.leakage is None and metrics.both is None and metrics.confidence is None and metrics.per_class == ()
