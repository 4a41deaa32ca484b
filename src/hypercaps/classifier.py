"""The scikit-learn style estimator, and models that come back from their file as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from hypercaps.compute.devices import Device, current_versions, threads_in_use
from hypercaps.data import splits
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.window import Window
from hypercaps.errors import LabelsError, ModelError, SplitError
from hypercaps.inference.metrics import Scores
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import read_model, write_model
from hypercaps.inference.predict import (
    ClassMap,
    MappedWindow,
    Mask,
    OnProgress,
    WindowOutputs,
    map_scene,
    map_scores,
    map_windows,
)
from hypercaps.inference.scoring import calibrate, compare
from hypercaps.models.registry import Method, Recipe, SelfTraining, SolvedRecipe, get_method
from hypercaps.training import label_propagation
from hypercaps.training.checks import as_int, check_enough, check_kinds, check_split, compare_names
from hypercaps.training.loop import Examples, History, Progress, solve, train
from hypercaps.training.memory import MOST_UNLABELLED, check_memory
from hypercaps.training.parallel.processes import check_devices, train_in_processes
from hypercaps.training.parallel.worker import Job
from hypercaps.training.patches import PatchStore, draw_valid_pixels, valid_pixels
from hypercaps.training.preprocessing import PREPROCESSINGS, PCAWhitening
from hypercaps.training.self_training import Ground, self_train


class ConvCapsClassifier(BaseEstimator):  # type: ignore[misc]
    """Classify every pixel of a scene with 1D-ConvCapsNet, or another registered method.

    Parameters
    ----------
    train, val : share of each class to train and to validate on; the rest is the test set
    per_class : train on this number of pixels of each class in place of the share ``train``
    split_by : "random" draws pixels, "polygons" keeps each polygon whole in one of the three sets, "blocks" each
        square of ``block`` x ``block`` pixels, with a guard band between, so that nothing leaks
    block : side of the blocks in pixels
    epochs, batch_size : None for the recipe's; ``best`` trains twice, and the epochs are those of the first time
    patch : side of the patch around a pixel, odd; None for the method's
    seed : of the split, the initial weights and the order of training
    method, recipe : a registered method and one of the ways to train it, None for the method's own
    structure : changes to the network's sizes, e.g. ``{"routings": 5}``
    device, precision : where networks are computed, as torch names it, and how precisely: float32 or bfloat16
    devices : processes, each with its own GPU if ``device`` is cuda, that share every training step

    Attributes after ``fit``
    ------------------------
    model_ : the trained network with its whitening and legend
    classes_ : labels of the classes, in the order of ``predict_proba``
    split_, scores_, history_ : which pixels were used, how good the test set was, what happened by epoch
    """

    def __init__(
        self,
        *,
        train: float = 0.2,
        val: float = 0.1,
        per_class: int | None = None,
        split_by: str = "random",
        block: int = 16,
        epochs: int | None = None,
        batch_size: int | None = None,
        patch: int | None = None,
        seed: int = 0,
        method: str = "convcapsnet",
        recipe: str | None = None,
        structure: dict[str, Any] | None = None,
        device: str = "cpu",
        precision: str = "float32",
        devices: int = 1,
    ) -> None:
        self.train = train
        self.val = val
        self.per_class = per_class
        self.split_by = split_by
        self.block = block
        self.epochs = epochs
        self.batch_size = batch_size
        self.patch = patch
        self.seed = seed
        self.method = method
        self.recipe = recipe
        self.structure = structure
        self.device = device
        self.precision = precision
        self.devices = devices

    def fit(
        self,
        scene: Scene,
        labels: Labels,
        split: Split | None = None,
        *,
        evaluate: bool = True,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> ConvCapsClassifier:
        """Learn from the training pixels of a split (drawn here if none is given) and score its test set.

        Without ``evaluate`` the test set is left for later, and there is no ``scores_``.
        """
        check_kinds(scene, labels)
        method = get_method(self.method)
        recipe = method.recipe(self.recipe)
        seed, patch = as_int("seed", self.seed, 0), self._patch()
        devices = as_int("devices", self.devices, 1)
        check_devices(devices, method, recipe, self.device)
        labels.check_fits(scene)
        labels_digest = labels.digest()  # as they came: what is invalid may differ in a copy of the scene
        labels = labels.where_valid(scene)
        legend = labels.legend
        check_enough(scene, labels, method, patch)
        device = Device(self.device, self.precision)
        structure = {**(recipe.structure or {}), **(self.structure or {})}
        split = self.draw_split(labels) if split is None else split.with_patch(patch)
        check_split(split, labels)
        training = self._training(method, recipe, int((labels.array > 0).sum()), split.train.size)
        pixels = np.concatenate([split.train, split.val])
        check_memory(method, recipe, scene, len(legend), patch, structure, split, training, devices)
        sizes: dict[str, Any] = {"bands": scene.bands, "classes": len(legend), "patch": patch, "structure": structure}
        network = method.network(**sizes, seed=seed)

        preprocessing = PREPROCESSINGS[method.preprocessing](scene)
        unlabelled = np.empty(0, dtype=np.int64)
        if method.semi_supervised is not None:
            unlabelled = draw_valid_pixels(scene, without=pixels, most=MOST_UNLABELLED, seed=seed)
        elif isinstance(recipe, SelfTraining):
            unlabelled = valid_pixels(
                scene, without=pixels, within=label_propagation.region(scene.shape[:2], split.train)
            )
        everywhere = np.concatenate([pixels, unlabelled])
        examples = Examples(
            store=PatchStore(scene, preprocessing, everywhere, patch),
            targets=torch.from_numpy(np.searchsorted(legend.labels, labels.array.ravel()[pixels])),
            train=torch.arange(split.train.size),
            val=torch.arange(split.train.size, pixels.size),
            unlabelled=torch.arange(pixels.size, pixels.size + unlabelled.size),
        )
        if isinstance(recipe, SolvedRecipe):
            history = solve(network, method.loss, examples)
            structure |= network.found  # type: ignore[arg-type]  # torch types every attribute as a module
        elif isinstance(recipe, SelfTraining):
            assert isinstance(preprocessing, PCAWhitening)
            stages = recipe.stages(split.train.size, unlabelled.size, training["epochs"])
            network, history = self_train(
                lambda seed: method.network(**sizes, seed=seed),
                method.loss,
                examples,
                Ground(everywhere, scene.cols, preprocessing),
                recipe,
                stages,
                batch_size=training["batch_size"],
                seed=seed,
                device=device,
                on_progress=on_progress,
            )
            second = history.records[history.best_epoch - 1].stage == 2  # whose network was kept: not if stopped early
            training["second_epochs"], training["extra"] = stages[1:] if second else (0, 0)
        elif devices > 1:
            threads = max(1, threads_in_use() // devices)
            steps = training["epochs"], training["batch_size"]
            job = Job(self.method, recipe.name, sizes, seed, *steps, device, devices, threads)
            history = train_in_processes(job, network, examples, on_progress)
            training["devices"] = devices
        else:
            network.to(device.name)
            history = train(
                network,
                method.loss,
                examples,
                recipe.make_optimizer(network),
                epochs=training["epochs"],
                batch_size=training["batch_size"],
                seed=seed,
                semi_supervised=method.semi_supervised,
                device=device,
                on_progress=on_progress,
            )
        network.eval()
        self.history_: History = history
        self.split_: Split = split
        self.model_ = TrainedModel(
            method=self.method,
            patch=patch,
            structure=structure,
            network=network,
            preprocessing=preprocessing,
            legend=legend,
            wavelengths=scene.wavelengths,
            fwhm=scene.fwhm,
            recipe={"name": recipe.name, **training, "seed": seed, "best_epoch": history.best_epoch},
            split=split.describe() | {"labels": labels_digest},
            scene=scene.name,
            versions=current_versions(),
        )
        with self._arithmetic(self.model_):
            calibration = calibrate(self.model_, scene, labels, split.val)
        self.model_ = replace(self.model_, calibration=calibration)
        if evaluate:
            self.scores_: Scores = self.evaluate(scene, labels, split)
            scores = {"oa": self.scores_.oa, "aa": self.scores_.aa, "kappa": self.scores_.kappa}
            self.model_ = replace(self.model_, scores=scores)
        return self

    def _patch(self) -> int:
        return get_method(self.method).patch if self.patch is None else as_int("patch", self.patch, 1)

    def _training(self, method: Method, recipe: Recipe | SolvedRecipe, labelled: int, trained: int) -> dict[str, Any]:
        """Epochs, batch and learning rate: the recipe's, or what was asked for in their place."""
        if isinstance(recipe, SolvedRecipe):
            for name in ("epochs", "batch_size"):
                if getattr(self, name) is not None:
                    raise ModelError(
                        f"{method.name} is solved at once: it has no {name.replace('_', ' ')}, leave it out"
                    )
            return {}
        given = {"epochs": self.epochs, "batch_size": self.batch_size}
        asked = {name: None if n is None else as_int(name, n, 1) for name, n in given.items()}
        return {
            "epochs": asked["epochs"] or recipe.epochs_for(trained),
            "batch_size": asked["batch_size"] or recipe.batch_size(labelled),
            "optimizer": recipe.optimizer,
            "learning_rate": recipe.learning_rate,
            "asked": asked,  # None: the recipe's, which may depend on the labels
        }

    def draw_split(self, labels: Labels) -> Split:
        """The split that ``fit`` draws for these labels."""
        seed, patch, val = as_int("seed", self.seed, 0), self._patch(), float(self.val)
        splits.check_kind(self.split_by)
        n = None if self.per_class is None else as_int("per_class", self.per_class, 1)
        if self.split_by == "polygons":
            return splits.split_polygons(labels, float(self.train), val, per_class=n, seed=seed, patch=patch)
        if self.split_by == "blocks":
            return splits.split_blocks(
                labels, float(self.train), val, block=self.block, per_class=n, seed=seed, patch=patch
            )
        if n is not None:
            return splits.split_per_class(labels, n, val, seed=seed, patch=patch)
        return splits.split_by_share(labels, float(self.train), val, seed=seed, patch=patch)

    def evaluate(
        self, scene: Scene, labels: Labels, split: Split | None = None, on_progress: OnProgress | None = None
    ) -> Scores:
        """Scores on a split's test set, or on all labelled pixels where no split is given."""
        check_kinds(scene, labels)
        model = self._fitted()
        model.check_fits(scene)
        labels.check_fits(scene)
        labels = labels.where_valid(scene)
        wanted = labels.array > 0
        if split is not None:
            if split.test.size == 0:
                raise SplitError("the split has no test pixel to evaluate on: put some into its test set")
            tested = np.zeros(labels.shape, dtype=bool)
            tested.ravel()[split.test] = True
            wanted &= tested  # without those that are invalid in this scene
            if not wanted.any():
                raise SplitError(f"no test pixel of the split is labelled and valid in scene {scene.name!r}")
        strange = np.setdiff1d(labels.array[wanted], model.legend.labels)
        if strange.size:
            raise LabelsError(
                f"labels {labels.name!r} hold classes {strange.tolist()} that the model does not know: it knows "
                f"{model.legend.labels.tolist()}; relabel them or leave them out"
            )
        compare_names(labels.legend, model.legend)
        with self._arithmetic(model):
            return compare(model, scene, labels, wanted, on_progress)

    def predict(self, scene: Scene) -> npt.NDArray[np.int16]:
        """(rows, columns) labels as in the ground truth; 0 for invalid pixels."""
        return self.map(scene).classes

    def predict_proba(self, scene: Scene) -> npt.NDArray[np.float32]:
        """(rows, columns, n) probability of each class, calibrated on the validation pixels; NaN if invalid.

        Without validation pixels there is no calibration, and these are the ``lengths``.
        """
        return self._all_scores(scene, raw=False)

    def lengths(self, scene: Scene) -> npt.NDArray[np.float32]:
        """(rows, columns, n) what the network itself says of each class, 0 to 1; NaN if invalid.

        For capsule networks the lengths of the class capsules, which need not sum to 1; for rbf-svm the share of the
        pairs of classes that it won; for the others probabilities as they were trained.
        """
        return self._all_scores(scene, raw=True)

    def _all_scores(self, scene: Scene, *, raw: bool) -> npt.NDArray[np.float32]:
        check_kinds(scene)
        model = self._fitted()
        with self._arithmetic(model):
            return map_scores(model, scene, raw=raw)

    def map(self, scene: Scene, *, only: Mask | None = None, on_progress: OnProgress | None = None) -> ClassMap:
        """Classes and confidence of every pixel, or of those marked in ``only``, e.g. ``labels.array > 0``."""
        check_kinds(scene)
        model = self._fitted()
        with self._arithmetic(model):
            return map_scene(model, scene, only=only, on_progress=on_progress)

    def map_windows(
        self,
        scene: Scene,
        windows: Iterable[Window],
        *,
        only: Mask | None = None,
        with_scores: bool = False,
        raw: bool = False,
        coverage: float | None = None,
    ) -> Iterator[MappedWindow]:
        """The same for scenes of any size: window after window, on the grid of ``tiling``; ``raw``: as ``lengths``."""
        check_kinds(scene)
        model = self._fitted()
        with self._arithmetic(model):
            yield from map_windows(model, scene, windows, WindowOutputs(with_scores, raw, coverage), only=only)

    def resampled(self, scene: Scene) -> Scene:
        """A scene of another sensor with the model's bands, to predict and evaluate on."""
        check_kinds(scene)
        return self._fitted().resampled(scene)

    def _arithmetic(self, model: TrainedModel) -> AbstractContextManager[object]:
        """The network where it is to be computed, and the precision to do it in."""
        device = Device(self.device, self.precision)
        model.network.to(device.name)
        return device.arithmetic()

    def save(self, path: str | Path) -> None:
        """Write the model file; ``load_model`` brings it back."""
        write_model(Path(path), self._fitted())

    @property
    def classes_(self) -> npt.NDArray[np.int16]:
        return self._fitted().legend.labels

    @property
    def legend_(self) -> Legend:
        return self._fitted().legend

    @property
    def n_features_in_(self) -> int:
        """Bands."""
        return self._fitted().bands

    def _fitted(self) -> TrainedModel:
        try:
            model: TrainedModel = self.model_
        except AttributeError:
            raise NotFittedError("this ConvCapsClassifier is not trained yet: call fit first") from None
        return model


def load_model(path: str | Path, *, device: str = "cpu", precision: str = "float32") -> ConvCapsClassifier:
    """A trained classifier from its file. It can predict and evaluate; split_ and history_ stay with the run."""
    model = read_model(Path(path))
    how, recipe = model.split, model.recipe
    asked = recipe.get("asked", recipe)
    classifier = ConvCapsClassifier(
        train=how.get("train", 0.2),
        val=how.get("val", 0.1),
        per_class=how.get("per_class"),
        split_by=how["kind"] if how.get("kind") in splits.KINDS else "random",
        block=how.get("block", 16),
        epochs=asked.get("epochs"),
        batch_size=asked.get("batch_size"),
        patch=model.patch,
        seed=recipe.get("seed", 0),
        method=model.method,
        recipe=recipe.get("name"),
        structure=model.structure or None,
        device=device,
        precision=precision,
    )
    classifier.model_ = model
    return classifier
