"""What a training reads: spatial units of the pixels, and preprocessing that was fitted before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hypercaps import Labels, Scene, split_by_share
from hypercaps.models.lda import LDA
from hypercaps.training.job import TrainingData, TrainingJob
from hypercaps.training.loop import LoopSettings
from hypercaps.training.preprocessing import Standardising
from hypercaps.training.spec import TrainingSpec


@pytest.fixture
def job(made: tuple[Scene, Labels]) -> TrainingJob:
    scene, labels = made
    return TrainingSpec("lda").job(scene, labels, split_by_share(labels, 0.2, 0.1, patch=1))


def test_units_follow_the_pixels_to_solve(job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    units = np.arange(job.scene.rows * job.scene.cols)
    data = TrainingData.read(replace(job, units=units))
    expected = np.concatenate([job.split.train, job.split.val])
    assert data.examples.units is not None
    np.testing.assert_array_equal(data.examples.units.numpy(), expected)
    given = []
    solve = LDA.solve
    monkeypatch.setattr(LDA, "solve", lambda self, *arguments: given.append(arguments) or solve(self, *arguments))
    data.trainer(job, LoopSettings(job.method.loss, 1)).solve()
    features, targets, val_features, val_targets, of_train = given[0]
    np.testing.assert_array_equal(of_train.numpy(), job.split.train)
    assert len(features) == len(targets) == job.split.train.size
    assert len(val_features) == len(val_targets) == job.split.val.size


def test_without_units_there_are_none(job: TrainingJob) -> None:
    assert TrainingData.read(job).examples.units is None


def test_preprocessing_is_not_fitted_again(job: TrainingJob) -> None:
    fitted = Standardising(np.zeros(job.scene.bands), np.full(job.scene.bands, 2.0))
    data = TrainingData.read(job, fitted)
    assert data.preprocessing is fitted
    centre = job.scene.read().values.reshape(-1, job.scene.bands)[job.split.train[0]]
    torch.testing.assert_close(data.examples.store.gather(torch.tensor([0])).flatten(), torch.from_numpy(2 * centre))
