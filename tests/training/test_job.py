"""What a training reads: spatial units of the pixels, and preprocessing that was fitted before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from hypercaps import Labels, Scene, SceneCache, split_by_share
from hypercaps.models.lda import LDA
from hypercaps.training.job import TrainingData, TrainingJob
from hypercaps.training.loop import LoopSettings
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
    training, validation = given[0]
    np.testing.assert_array_equal(training.units.numpy(), job.split.train)
    assert len(training.features) == len(training.targets) == job.split.train.size
    assert len(validation.features) == len(validation.targets) == job.split.val.size


def test_without_units_there_are_none(job: TrainingJob) -> None:
    assert TrainingData.read(job).examples.units is None


def test_a_cache_fits_the_preprocessing_once(job: TrainingJob) -> None:
    cache = SceneCache(job.scene)
    data = TrainingData.read(job, cache)
    assert data.preprocessing is TrainingData.read(job, cache).preprocessing
    assert data.preprocessing is not TrainingData.read(job).preprocessing
    centre = job.scene.read().values.reshape(-1, job.scene.bands)[job.split.train[0]]
    found = data.examples.store.gather(torch.tensor([0])).flatten()
    torch.testing.assert_close(found, torch.from_numpy(data.preprocessing.transform(centre)))
