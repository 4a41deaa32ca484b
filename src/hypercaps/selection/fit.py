"""Train one model: from a checked job to a TrainedModel that is not calibrated yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from torch import nn

from hypercaps.compute.devices import current_versions
from hypercaps.inference.model import TrainedModel
from hypercaps.models.history import History, TrainingRecord
from hypercaps.models.protocols import Solvable
from hypercaps.training.checkpoint_file import CheckpointFile
from hypercaps.training.job import TrainingData, TrainingJob
from hypercaps.training.loop import LoopSettings, OnProgress
from hypercaps.training.preprocessing import Preprocessing
from hypercaps.training.scene_cache import SceneCache


@dataclass(frozen=True)
class FittedModel:
    """A trained model and the history of its training."""

    model: TrainedModel
    history: History
    first: TrainedModel | None = None  # of the first stage, for recipes of two stages


def fit_model(
    job: TrainingJob,
    *,
    cache: SceneCache | None = None,
    on_progress: OnProgress | None = None,
    checkpoint: CheckpointFile | None = None,
) -> FittedModel:
    """Train on the job's pixels; ``cache``, of its scene, keeps what other trainings on the scene need as well."""
    data = TrainingData.read(job, cache)
    if checkpoint is not None:
        checkpoint.begin(lru_cache(lambda: data.identity(job)))
    method, batch_size = job.method, job.record.batch_size or 1
    settings = LoopSettings(method.loss, batch_size, method.semi_supervised, job.device, on_progress, checkpoint)
    trained = job.recipe.train(data.trainer(job, settings))
    record = replace(trained.record, best_epoch=trained.history.best_epoch)
    model = _build_model(job, data.preprocessing, trained.network, record)
    first = None if trained.first is None else _build_model(job, data.preprocessing, trained.first, record)
    return FittedModel(model, trained.history, first)


def _build_model(
    job: TrainingJob, preprocessing: Preprocessing, network: nn.Module, record: TrainingRecord
) -> TrainedModel:
    """The trained network with all that is needed to use it, not calibrated yet."""
    network = network.eval()
    structure = dict(job.structure)
    if isinstance(network, Solvable):
        structure |= network.found
    return TrainedModel(
        method=job.method.name,
        patch=job.patch,
        structure=structure,
        network=network,
        preprocessing=preprocessing,
        legend=job.labels.legend,
        wavelengths=job.scene.wavelengths,
        fwhm=job.scene.fwhm,
        recipe=record,
        split=replace(job.split.describe(), labels=job.labels.digest()),
        scene=job.scene.name,
        versions=current_versions(),
    )
