"""Doubtful labels of a run: wrong labels stand at the head of the list."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.pipeline.evidence import write_doubtful_labels
from hypercaps.pipeline.train import train_run
from support.scenes import make_fields, with_wrong_labels


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_labels_are_found(seed: int, tmp_path: Path) -> None:
    """Of separable classes: at least 80 % of the wrong labels are in the first tenth of all labels."""
    cube, right = make_fields(60, 60, seed=seed)
    labels, wrong = with_wrong_labels(right, 0.05, seed)
    assert (labels != right).sum() == wrong.size > 50
    scene = Scene.from_array(cube)
    fitted = ConvCapsClassifier(method="lda", split_by="folds", seed=seed).fit(scene, Labels.from_array(labels))
    found = write_doubtful_labels(tmp_path, fitted, scene)
    with (tmp_path / "doubtful.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    first = [int(row["row"]) * 60 + int(row["col"]) for row in rows[: (labels > 0).sum() // 10]]
    assert np.isin(wrong, first).mean() >= 0.8
    doubt = [float(row["doubt"]) for row in rows]
    assert doubt == sorted(doubt, reverse=True) and found == sum(value >= 0.5 for value in doubt)
    listed = json.loads((tmp_path / "doubtful.json").read_text())
    assert [(one["row"], one["col"]) for one in listed] == [(int(r["row"]), int(r["col"])) for r in rows[:20]]
    for one in listed:
        assert one["label"] == labels[one["row"], one["col"]]
        np.testing.assert_allclose(one["spectrum"], cube[one["row"], one["col"]])


def test_areas_count_units_and_not_pixels_unless_pixels_were_drawn(tmp_path: Path) -> None:
    """The pixels of a block that are all right do not make the area of a class certain."""
    cube, truth = make_fields(60, 60)
    areas = {}
    for split in ("random", "blocks"):
        classifier = ConvCapsClassifier(method="lda", split_by=split, block=10, train=0.4)
        areas[split] = train_run(classifier, Scene.from_array(cube), Labels.from_array(truth), tmp_path / split)
    for pixels, units in zip(areas["random"].metrics.areas, areas["blocks"].metrics.areas, strict=True):
        assert units.high - units.low > 5 * (pixels.high - pixels.low)
    bounds = areas["blocks"].metrics.map_accuracy_interval
    assert bounds is not None and bounds[1] - bounds[0] > 5


def test_no_label_is_doubtful_where_all_are_right(tmp_path: Path) -> None:
    cube, labels = make_fields()
    scene = Scene.from_array(cube)
    fitted = ConvCapsClassifier(method="lda", split_by="folds").fit(scene, Labels.from_array(labels))
    assert write_doubtful_labels(tmp_path, fitted, scene) == 0


def test_there_are_none_without_folds(tmp_path: Path) -> None:
    cube, labels = make_fields()
    scene = Scene.from_array(cube)
    fitted = ConvCapsClassifier(method="lda").fit(scene, Labels.from_array(labels))
    assert write_doubtful_labels(tmp_path, fitted, scene) is None
    assert list(tmp_path.iterdir()) == []
