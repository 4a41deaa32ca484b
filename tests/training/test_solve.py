"""Methods without epochs: the loss that their training reports."""

from __future__ import annotations

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.training import solve
from support.scenes import make_cube


@pytest.mark.parametrize(("method", "patch"), [("lda", 5), ("logistic", 3)])
def test_the_loss_of_linear_methods_needs_no_patches(method: str, patch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large windows, gathering all training patches again takes as long as the fit."""

    def refuse(*_: object) -> None:
        pytest.fail("patches are gathered a second time")

    monkeypatch.setattr(solve, "patch_scores", refuse)
    cube, truth = make_cube()
    trained = ConvCapsClassifier(method=method, patch=patch, split_by="none").fit(cube, truth)
    likely = trained.lengths(cube)[truth > 0]
    of_truth = likely[np.arange(len(likely)), np.searchsorted([1, 2, 3], truth[truth > 0])]
    assert trained.history_.records[0].loss == pytest.approx(-np.log(of_truth).mean(), rel=1e-4)
