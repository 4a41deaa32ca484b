"""TrainingSpec: the settings of a training, chosen by a user or a candidate, before scene and pixels are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hypercaps.compute.devices import Device
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.models.descriptions import get_description
from hypercaps.models.history import Overrides, TrainingRecord
from hypercaps.models.registry import Method, get_method
from hypercaps.training.checks import as_int, check_enough, check_split
from hypercaps.training.job import TrainingJob
from hypercaps.training.memory import check_memory


@dataclass(frozen=True)
class TrainingSpec:
    """Method, recipe and settings of a training; None: the method's or the recipe's own."""

    method: str = "convcapsnet"
    recipe: str | None = None
    patch: int | None = None  # side in pixels
    whitening: str | None = None  # plain, damped or robust
    structure: Mapping[str, object] | None = None
    epochs: int | None = None
    batch_size: int | None = None
    seed: int = 0
    device: Device = field(default_factory=Device)

    @property
    def patch_side(self) -> int:
        return get_description(self.method).patch if self.patch is None else as_int("patch", self.patch, 1)

    def preprocessing_name(self) -> str:
        """The preprocessing of the spectra, a name in ``preprocessing.PREPROCESSINGS``."""
        return get_description(self.method).preprocessing_with(self.whitening, self.recipe)

    def job(
        self, scene: Scene, labels: Labels, split: Split, units: npt.NDArray[np.int64] | None = None
    ) -> TrainingJob:
        """A checked training on the pixels of a split.

        Parameters
        ----------
        scene, labels : the labels have none on invalid pixels of the scene
        split : its training pixels, and validation pixels if it has any, are used
        units : (rows * columns,) spatial unit of each labelled pixel
        """
        method = get_method(self.method)
        recipe = method.recipe(self.recipe)
        patch = self.patch_side
        preprocessing = self.preprocessing_name()
        check_enough(scene, labels, method, patch)
        split = split.with_patch(patch)
        check_split(split, labels)
        record = self._record(method, labels, split)
        structure = {**(recipe.structure or {}), **(self.structure or {})}
        job = TrainingJob(
            scene, labels, split, method, recipe, patch, structure, record, self.device, units, preprocessing
        )
        check_memory(job)
        return job

    def _record(self, method: Method, labels: Labels, split: Split) -> TrainingRecord:
        """Epochs, batch size and learning rate: the recipe's, or the user's in their place."""
        given = {"epochs": self.epochs, "batch_size": self.batch_size}
        recipe = method.recipe(self.recipe)
        recipe.check_overrides(method.name, given)
        overrides = Overrides(**{name: None if n is None else as_int(name, n, 1) for name, n in given.items()})
        labelled = int((labels.array > 0).sum())
        seed = as_int("seed", self.seed, 0)
        record = recipe.settings(overrides, training_pixels=split.train.size, labelled_pixels=labelled, seed=seed)
        return replace(record, whitening=self.whitening)
