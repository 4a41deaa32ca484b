from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from hypercaps.data.labels import Legend
from hypercaps.inference.metrics import score

LEGEND = Legend.of([1, 4, 9], ["water", "trees", "roads"])


def test_scores_by_hand() -> None:
    truth = np.array([1, 1, 1, 1, 4, 4, 9, 9, 9, 9])
    found = np.array([1, 1, 1, 4, 4, 4, 9, 9, 1, 1])
    scores = score(truth, found, LEGEND)
    assert scores.oa == pytest.approx(70)
    assert [c.accuracy for c in scores.per_class] == [75, 100, 50]
    assert [(c.label, c.name, c.test) for c in scores.per_class] == [(1, "water", 4), (4, "trees", 2), (9, "roads", 4)]
    assert scores.aa == pytest.approx(75)
    by_chance = (4 * 5 + 2 * 3 + 4 * 2) / 100
    assert scores.kappa == pytest.approx(100 * (0.7 - by_chance) / (1 - by_chance))
    assert scores.confusion.tolist() == [[3, 1, 0], [0, 2, 0], [2, 0, 2]]
    assert scores.n_test == 10


def test_printed_scores_are_one_line() -> None:
    scores = score(np.array([1, 1, 1, 4]), np.array([1, 1, 4, 4]), Legend.of([1, 4]))
    assert repr(scores) == "<Scores: OA 75.0 %, AA 83.3 %, kappa 50.0 %; 4 test pixels, 2 classes>"
    known = replace(scores, oa_interval=(20.0, 99.0))
    assert str(known).startswith("<Scores: OA 75.0 % (20.0 to 99.0), AA")


def test_scores_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, found = rng.choice([1, 4, 9], (2, 500))
    scores = score(truth, found, LEGEND)
    np.testing.assert_array_equal(scores.confusion, confusion_matrix(truth, found))
    assert scores.kappa == pytest.approx(100 * cohen_kappa_score(truth, found))


def test_classes_without_test_pixels_have_no_accuracy_and_stay_out_of_aa() -> None:
    scores = score(np.array([1, 4]), np.array([1, 1]), LEGEND)
    assert [c.accuracy for c in scores.per_class] == [100, 0, None]
    assert scores.aa == 50


def test_scores_are_json_without_nan() -> None:
    scores = score(np.array([1, 1]), np.array([1, 1]), LEGEND)  # one class, always right
    text = json.dumps(scores.to_json(), allow_nan=False)
    assert json.loads(text)["kappa"] == 100
    assert set(json.loads(text)["per_class"][0]) == {"label", "name", "accuracy", "test"}


def test_foreign_labels_and_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="predicted labels \\[0\\]"):
        score(np.array([1]), np.array([0]), LEGEND)
    with pytest.raises(ValueError, match="can't be compared"):
        score(np.array([], int), np.array([], int), LEGEND)
