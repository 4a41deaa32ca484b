"""Metrics of runs as records, for what is printed and reported about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypercaps.inference.metrics import ClassScore, ConfidenceReport, ReliabilityBin
from hypercaps.inference.run_metrics import AreaRow, Baseline, CandidateRow, RunMetrics

DISTANCES = (
    "Held-out labels lie 9 pixels (median) from the nearest training label, the ground to be mapped 11: the score "
    "describes ground about as far from labels as the map's."
)
CANDIDATES = (
    CandidateRow("rbf-svm", "rbf-svm", "RBF kernel", "not run: it would take too long"),
    CandidateRow("lda", "lda", "shrunk covariance", "left out after 1 of 5 folds", 61.2, (50.0, 71.0), 1.02, 1, 0.3),
    CandidateRow("logistic", "logistic", "C by folds", "weight 0.4 in the average", 80.0, (70.0, 88.0), 0.62, 5, 2.5),
    CandidateRow("random-forest", "random-forest", "500 trees", "left out", 83.0, (73.5, 90.0), 0.7, 5, 4.0),
    CandidateRow(
        "convcapsnet-7-propagated", "1d-convcapsnet", "patch 7", "weight 0.6 in the average", 82.0, None, 0.55, 5, 90.0
    ),
)
AREAS = (
    AreaRow(1, "corn", 40.0, 41.25, 35.0, 47.5, "ha", True),
    AreaRow(2, "wheat", 1030.5, 1020.0, 1001.5, 1040.0, "ha", True),
    AreaRow(3, "oats", 7.0, 7.0, 6.0, 8.0, "ha", False),
)


def folds_metrics(**changes: Any) -> RunMetrics:
    """A run with --split folds of polygons: wheat is always right, and oats, a single polygon, can't be held out."""
    bins = (ReliabilityBin(0.0, 1.0, 0.8, 0.84, 210),)
    metrics = RunMetrics(
        oa=84.1, aa=87.5, kappa=73.0, oa_interval=(76.0, 90.2), aa_interval=(79.0, 93.0), kappa_interval=(60.0, 82.5),
        per_class=(
            ClassScore(1, "corn", 75.0, 120, (61.2, 86.0), 20, (88.0, 100.0)),
            ClassScore(2, "wheat", 100.0, 90, (90.5, 100.0), 12),
            ClassScore(3, "oats", None, 0, None, 0),
        ),
        confusion=[[90, 26, 4], [0, 90, 0], [0, 0, 0]],
        confidence=ConfidenceReport(bins, "temperature", bins),
        n_train=230, n_val=0, n_test=210, split="folds", folds=5, units="polygons", n_units=33, untested=("oats",),
        distances=DISTANCES, patch=7, parameters=1234, method="1d-convcapsnet", recipe="best", seed=0, scene="field",
        train_seconds=12.5, best_epoch=7, epochs=8, pseudo_labelled=0, versions={"torch": "2"}, model_sha256="00ff",
        labels_digest="12ab",
    )  # fmt: skip
    return replace(metrics, **changes)


def unscored_metrics(**changes: Any) -> RunMetrics:
    """A run with --split none."""
    metrics = RunMetrics(
        oa=None, aa=None, kappa=None, n_train=230, n_val=0, split="none", patch=7, parameters=1234, method="lda",
        recipe="paper", seed=0, scene="field", train_seconds=0.1, best_epoch=1, epochs=1, pseudo_labelled=0,
        versions={"torch": "2"}, model_sha256="00ff", labels_digest="12ab",
    )  # fmt: skip
    return replace(metrics, **changes)


def lda_baseline(oa: float) -> Baseline:
    return Baseline("lda", oa, 0.1, (50.0, 71.0))
