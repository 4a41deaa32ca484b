"""A training as objects: the checked request, and the data it trains on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from hypercaps.compute.devices import Device, current_versions
from hypercaps.compute.tensors import tensors_digest
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.models.history import TrainingRecord
from hypercaps.models.recipes import Recipe
from hypercaps.models.registry import Method
from hypercaps.training import label_propagation
from hypercaps.training.examples import Examples
from hypercaps.training.loop import LoopSettings
from hypercaps.training.patches import draw_valid_pixels, valid_pixels
from hypercaps.training.preprocessing import Preprocessing
from hypercaps.training.scene_cache import SceneCache
from hypercaps.training.self_training import PixelGrid
from hypercaps.training.trainer import PatchTrainer

MAX_UNLABELLED = 20_000  # pixels of the scene without a label, for methods with a semi-supervised loss

Pixels = npt.NDArray[np.int64]  # flat indices into a scene


@dataclass(frozen=True)
class TrainingJob:
    """What to train, how, and on which pixels. Everything is checked."""

    scene: Scene
    labels: Labels  # without those on invalid pixels of the scene
    split: Split
    method: Method
    recipe: Recipe
    patch: int  # side of the patches in pixels
    structure: Mapping[str, object]  # changes to the network's sizes
    record: TrainingRecord  # epochs, batch size and seed
    device: Device
    # (rows * cols,) number of the spatial unit, such as a polygon, of each pixel; -1 or 0 where it has no label
    units: npt.NDArray[np.int64] | None = None
    preprocessing: str = "centred whitening"  # a name in preprocessing.PREPROCESSINGS

    @property
    def seed(self) -> int:
        assert self.record.seed is not None
        return self.record.seed

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of bands and of classes."""
        return self.scene.bands, len(self.labels.legend)

    def new_network(self, seed: int) -> nn.Module:
        """A network with weights drawn from ``seed``."""
        return self.method.network(*self.sizes, patch=self.patch, seed=seed, structure=self.structure)


@dataclass(frozen=True)
class TrainingData:
    """What is read from the scene for a training: statistics of its spectra, patches, and their classes."""

    preprocessing: Preprocessing
    examples: Examples
    grid: PixelGrid | None  # for recipes that use pseudo-labels

    @classmethod
    def read(cls, job: TrainingJob, cache: SceneCache | None = None) -> TrainingData:
        """Read the patches; what ``cache``, of the job's scene, has of an earlier training is not computed again."""
        cache = SceneCache(job.scene) if cache is None else cache
        labels, split = job.labels, job.split
        labelled = np.concatenate([split.train, split.val])
        pixels = np.concatenate([labelled, _unlabelled_pixels(job, labelled)])
        targets = np.searchsorted(labels.legend.labels, labels.array.ravel()[labelled])
        examples = Examples(
            store=cache.patches(job.preprocessing, pixels, job.patch),
            targets=torch.from_numpy(targets),
            train=torch.arange(split.train.size),
            val=torch.arange(split.train.size, labelled.size),
            unlabelled=torch.arange(labelled.size, pixels.size),
            units=None if job.units is None else torch.from_numpy(job.units[labelled]),
        )
        grid = None
        if job.recipe.uses_pseudo_labels:
            grid = PixelGrid(pixels, job.preprocessing, cache)
        return cls(cache.preprocessing(job.preprocessing), examples, grid)

    def trainer(self, job: TrainingJob, settings: LoopSettings) -> PatchTrainer:
        """The trainer to hand to ``job.recipe.train``."""
        return PatchTrainer(job.new_network, self.examples, settings, job.record, self.grid)

    def identity(self, job: TrainingJob) -> dict[str, object]:
        """Everything that the result of the training depends on, in the words of a message about a checkpoint."""
        record, versions = job.record, current_versions()
        spectra = self.examples.store.spectra  # of all pixels that are used, whitened by statistics of the whole scene
        return {
            "method": job.method.name,
            "recipe": job.recipe.identity(),
            "preprocessing": job.preprocessing,
            "patch": job.patch,
            "structure": json.dumps(dict(job.structure), sort_keys=True),
            "device": f"{job.device.name} {job.device.precision}",
            "seed": job.seed,
            "set of labels": job.labels.digest(),
            "scene": tensors_digest({"spectra": spectra}, {"shape": job.scene.shape}),
            "split": job.split.digest(),
            "number of epochs": record.epochs,
            "batch size": record.batch_size,
            "learning rate": record.learning_rate,
            **{f"version of {name}": versions[name] for name in ("hypercaps", "torch", "numpy")},
        }


def _unlabelled_pixels(job: TrainingJob, labelled: Pixels) -> Pixels:
    """Pixels that are used without a label: (U,) flat indices."""
    if job.method.semi_supervised is not None:
        return draw_valid_pixels(job.scene, without=labelled, most=MAX_UNLABELLED, seed=job.seed)
    if job.recipe.uses_pseudo_labels:
        region = label_propagation.region_near_labels(job.scene.shape[:2], job.split.train)
        return valid_pixels(job.scene, without=labelled, within=region)
    return np.empty(0, dtype=np.int64)
