"""ConvCapsClassifier, the estimator in the style of scikit-learn, and ``load_model``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from hypercaps.compute.devices import Device, current_versions
from hypercaps.data import splits
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.window import Window
from hypercaps.errors import LabelsError, SplitError
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
from hypercaps.models.history import History, Overrides, TrainingRecord
from hypercaps.models.protocols import Solvable
from hypercaps.models.recipes import Recipe, Trained
from hypercaps.models.registry import Method, get_method
from hypercaps.training.checks import as_int, check_enough, check_kinds, check_split, compare_names
from hypercaps.training.job import TrainingData, TrainingJob
from hypercaps.training.loop import LoopSettings
from hypercaps.training.loop import OnProgress as OnTraining
from hypercaps.training.memory import check_memory
from hypercaps.training.preprocessing import Preprocessing


class ConvCapsClassifier(BaseEstimator):  # type: ignore[misc]
    """Classify every pixel of a scene with 1D-ConvCapsNet, or with another registered method.

    Follows scikit-learn's conventions: the constructor stores its arguments, ``fit`` checks them, and attributes that
    end in ``_`` exist after ``fit``. ``X`` is a :class:`Scene`, ``y`` are :class:`Labels` on its grid.

    Parameters
    ----------
    train : float, default 0.2
        Share of each class's labelled pixels to train on, 0 to 1. Whole polygons and blocks come as near to it as they
        can.
    val : float, default 0.1
        Share to validate on, 0 to 1: these pixels calibrate the confidence and, in recipes ``paper`` and ``tuned``,
        choose the epoch (``best`` keeps the last one). With 0 the last epoch is kept and confidences are not
        calibrated. The rest is the test set.
    per_class : int, optional
        Number of training pixels of each class, in place of the share ``train``.
    split_by : {"random", "polygons", "blocks"}, default "random"
        Unit that the split draws. "random": single pixels. "polygons": whole polygons, each in one of the three sets.
        "blocks": squares of ``block`` x ``block`` pixels with a guard band between the sets, so that no patch of a test
        pixel contains a training pixel.
    block : int, default 16
        Side of the blocks in pixels.
    epochs : int, optional
        Number of epochs; for recipe ``best``, of the first of its two stages. Default: the recipe's.
    batch_size : int, optional
        Training pixels in a step of the optimizer. Default: the recipe's.
    patch : int, optional
        Side of the square patch around a pixel, in pixels, odd. Default: the method's (7 for convcapsnet).
    seed : int, default 0
        Seed of the split, the initial weights and the order of training, 0 or more. The same seed gives the same bits.
    method : str, default "convcapsnet"
        Name of a registered method, as listed by ``hypercaps methods``.
    recipe : str, optional
        Name of one of the method's recipes. Default: ``best``, ``tuned`` or ``paper``, the first that the method has.
    structure : dict, optional
        Changes to the network's sizes, e.g. ``{"routings": 5}``.
    device : str, default "cpu"
        Where networks are computed, as torch names it: "cpu", "cuda", "cuda:1", "mps".
    precision : {"float32", "bfloat16"}, default "float32"
        Precision of matrix products and convolutions.

    Attributes
    ----------
    model_ : TrainedModel
        The network with its preprocessing, legend and calibration.
    classes_ : (n,) int16 array
        Label of each class, in the order of ``predict_proba``.
    legend_ : Legend
        Label, name and colour of each class.
    n_features_in_ : int
        Number of bands.
    split_ : Split
        The training, validation and test pixels.
    scores_ : Scores
        Accuracy on the test pixels; not after ``fit(..., evaluate=False)``.
    history_ : History
        Loss and validation accuracy of each epoch.

    See Also
    --------
    load_model : A trained classifier from its file.

    Examples
    --------
    >>> scene, labels = open_scene("indian-pines"), open_labels("indian-pines")  # doctest: +SKIP
    >>> classifier = ConvCapsClassifier(train=0.1).fit(scene, labels)  # doctest: +SKIP
    >>> classifier.scores_.oa, classifier.predict(scene).shape  # doctest: +SKIP
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
        structure: Mapping[str, object] | None = None,
        device: str = "cpu",
        precision: str = "float32",
    ) -> None:
        self.train, self.val, self.per_class, self.split_by, self.block = train, val, per_class, split_by, block
        self.epochs, self.batch_size, self.patch, self.seed = epochs, batch_size, patch, seed
        self.method, self.recipe, self.structure = method, recipe, structure
        self.device, self.precision = device, precision

    def fit(
        self,
        scene: Scene,
        labels: Labels,
        split: Split | None = None,
        *,
        evaluate: bool = True,
        on_progress: OnTraining | None = None,
    ) -> ConvCapsClassifier:
        """Train on the labelled pixels of a scene and score the test pixels.

        Parameters
        ----------
        scene : Scene
            Cube of (rows, columns, bands), in memory or in a file.
        labels : Labels
            Class numbers (rows, columns), 0 = unlabelled. Labels on invalid pixels are left out with a warning.
        split : Split, optional
            Training, validation and test pixels. Default: drawn by ``draw_split``.
        evaluate : bool, default True
            Classify and score the test pixels; without it there is no ``scores_``.
        on_progress : callable, optional
            Called with a ``Progress`` after every step and epoch. KeyboardInterrupt, raised by it or by Ctrl-C, ends
            the training and keeps the best epoch so far.

        Returns
        -------
        ConvCapsClassifier
            This classifier.
        """
        job = self._check(scene, labels, split)
        self.__dict__.pop("scores_", None)  # of an earlier model
        data = TrainingData.read(job)
        method, batch_size = job.method, job.record.batch_size or 1
        settings = LoopSettings(method.loss, batch_size, method.semi_supervised, job.device, on_progress)
        trained = job.recipe.train(data.trainer(job, settings))
        self.split_: Split = job.split
        self.history_: History = trained.history
        self.model_ = _build_model(job, data.preprocessing, trained)
        with self._applied(scene) as model:
            calibration = calibrate(model, scene, job.labels, job.split.val)
        self.model_ = replace(self.model_, calibration=calibration)
        if evaluate:
            self.scores_: Scores = self.evaluate(scene, job.labels, job.split)
            scores = {"oa": self.scores_.oa, "aa": self.scores_.aa, "kappa": self.scores_.kappa}
            self.model_ = replace(self.model_, scores=scores)
        return self

    def _check(self, scene: Scene, labels: Labels, split: Split | None) -> TrainingJob:
        """Refuse bad input before any work, and draw the split if none is given."""
        check_kinds(scene, labels)
        method = get_method(self.method)
        recipe = method.recipe(self.recipe)
        patch = self._patch()
        as_int("seed", self.seed, 0)
        labels.check_fits(scene)
        labels = labels.where_valid(scene)
        check_enough(scene, labels, method, patch)
        device = Device(self.device, self.precision)
        structure = {**(recipe.structure or {}), **(self.structure or {})}
        split = self.draw_split(labels) if split is None else split.with_patch(patch)
        check_split(split, labels)
        record = self._settings(method, recipe, labels, split)
        job = TrainingJob(scene, labels, split, method, recipe, patch, structure, record, device)
        check_memory(job)
        return job

    def _patch(self) -> int:
        return get_method(self.method).patch if self.patch is None else as_int("patch", self.patch, 1)

    def _settings(self, method: Method, recipe: Recipe, labels: Labels, split: Split) -> TrainingRecord:
        """Epochs, batch size and learning rate: the recipe's, or the user's in their place."""
        given = {"epochs": self.epochs, "batch_size": self.batch_size}
        recipe.check_overrides(method.name, given)
        overrides = Overrides(**{name: None if n is None else as_int(name, n, 1) for name, n in given.items()})
        labelled = int((labels.array > 0).sum())
        seed = as_int("seed", self.seed, 0)
        return recipe.settings(overrides, training_pixels=split.train.size, labelled_pixels=labelled, seed=seed)

    def draw_split(self, labels: Labels) -> Split:
        """Draw the split that ``fit`` uses for these labels.

        Parameters
        ----------
        labels : Labels
            As given to ``fit``, without labels on invalid pixels: ``labels.where_valid(scene)``.
        """
        request = splits.SplitRequest(
            kind=self.split_by,
            train=float(self.train),
            val=float(self.val),
            per_class=None if self.per_class is None else as_int("per_class", self.per_class, 1),
            block=self.block,
            seed=as_int("seed", self.seed, 0),
            patch=self._patch(),
        )
        return splits.draw(labels, request)

    def evaluate(
        self, scene: Scene, labels: Labels, split: Split | None = None, on_progress: OnProgress | None = None
    ) -> Scores:
        """Score the classifier on labelled pixels.

        Parameters
        ----------
        scene : Scene
            With the model's bands, not necessarily the scene it was trained on.
        labels : Labels
            Class numbers (rows, columns), 0 = unlabelled. Labels on invalid pixels are left out with a warning.
        split : Split, optional
            Score its test pixels only. Default: all labelled pixels.
        on_progress : callable, optional
            Called with the number of pixels done and their total.

        Returns
        -------
        Scores
            Accuracies in percent, confusion matrix and reliability of the confidences.
        """
        check_kinds(scene, labels)
        model = self._fitted()
        model.check_fits(scene)
        labels.check_fits(scene)
        labels = labels.where_valid(scene)
        scored = labels.array > 0  # (rows, columns)
        if split is not None:
            scored &= _test_mask(split, labels.shape)
            if not scored.any():
                raise SplitError(f"no test pixel of the split is labelled and valid in scene {scene.name!r}")
        if (unknown := np.setdiff1d(labels.array[scored], model.legend.labels)).size:
            raise LabelsError(
                f"labels {labels.name!r} hold classes {unknown.tolist()} that the model does not know: it knows "
                f"{model.legend.labels.tolist()}; relabel them or leave them out"
            )
        compare_names(labels.legend, model.legend)
        with self._applied(scene):
            return compare(model, scene, labels, scored, on_progress)

    def predict(self, scene: Scene) -> npt.NDArray[np.int16]:
        """Label of every pixel (rows, columns), numbered as in the training labels; 0 for invalid pixels."""
        return self.map(scene).classes

    def predict_proba(self, scene: Scene) -> npt.NDArray[np.float32]:
        """Probability of each class (rows, columns, n), calibrated on the validation pixels; NaN for invalid pixels.

        A model that was trained without validation pixels is not calibrated: then these are the ``lengths``.
        """
        return self._all_scores(scene, raw=False)

    def lengths(self, scene: Scene) -> npt.NDArray[np.float32]:
        """The network's own scores (rows, columns, n), 0 to 1; NaN for invalid pixels.

        For capsule networks the lengths of the class capsules, which need not sum to 1; for rbf-svm the share of the
        pairs of classes that a class won; for other methods uncalibrated probabilities.
        """
        return self._all_scores(scene, raw=True)

    def _all_scores(self, scene: Scene, *, raw: bool) -> npt.NDArray[np.float32]:
        with self._applied(scene) as model:
            return map_scores(model, scene, raw=raw)

    def map(self, scene: Scene, *, only: Mask | None = None, on_progress: OnProgress | None = None) -> ClassMap:
        """Class and confidence of every pixel.

        Parameters
        ----------
        scene : Scene
            With the model's bands.
        only : (rows, columns) bool array, optional
            Pixels to classify, e.g. ``labels.array > 0``. Default: all.
        on_progress : callable, optional
            Called with the number of pixels done and their total.

        Returns
        -------
        ClassMap
            ``classes`` (rows, columns) int16, 0 where nothing was classified, and ``confidence`` (rows, columns)
            float32, NaN there.
        """
        with self._applied(scene) as model:
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
        """Map a scene of any size window by window.

        Parameters
        ----------
        scene : Scene
            With the model's bands.
        windows : iterable of Window
            Parts of the scene, on the grid of ``tiling``.
        only : (rows, columns) bool array, optional
            Pixels to classify. Default: all.
        with_scores : bool, default False
            Also give the scores of all classes.
        raw : bool, default False
            Scores as by ``lengths``, not calibrated.
        coverage : float, optional
            Also give the size of the set of classes that contains the true one with this probability, 0 to 1.

        Yields
        ------
        MappedWindow
            The classes, confidences and other layers of one window.
        """
        with self._applied(scene) as model:
            yield from map_windows(model, scene, windows, WindowOutputs(with_scores, raw, coverage), only=only)

    def resampled(self, scene: Scene) -> Scene:
        """The scene of another sensor, resampled to the model's bands, to predict and evaluate on."""
        check_kinds(scene)
        return self._fitted().resampled(scene)

    @contextmanager
    def _applied(self, scene: Scene) -> Iterator[TrainedModel]:
        """The model on its device; inside the context, products have the classifier's precision."""
        check_kinds(scene)
        model, device = self._fitted(), Device(self.device, self.precision)
        model.to(device.name)
        with device.arithmetic():
            yield model

    def save(self, path: str | Path) -> None:
        """Write the model file, for ``load_model``."""
        write_model(Path(path), self._fitted())

    @property
    def classes_(self) -> npt.NDArray[np.int16]:
        return self._fitted().legend.labels

    @property
    def legend_(self) -> Legend:
        return self._fitted().legend

    @property
    def n_features_in_(self) -> int:
        """Number of bands."""
        return self._fitted().bands

    def _fitted(self) -> TrainedModel:
        try:
            model: TrainedModel = self.model_
        except AttributeError:
            raise NotFittedError("this ConvCapsClassifier is not trained yet: call fit first") from None
        return model


def _build_model(job: TrainingJob, preprocessing: Preprocessing, trained: Trained) -> TrainedModel:
    """The trained network with all that is needed to use it, not calibrated yet."""
    network = trained.network.eval()
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
        recipe=replace(trained.record, best_epoch=trained.history.best_epoch),
        split=replace(job.split.describe(), labels=job.labels.digest()),
        scene=job.scene.name,
        versions=current_versions(),
    )


def _test_mask(split: Split, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The test pixels of a split as a mask (rows, columns)."""
    if split.test.size == 0:
        raise SplitError("the split has no test pixel to evaluate on: put some into its test set")
    mask = np.zeros(shape, dtype=bool)
    mask.ravel()[split.test] = True
    return mask


def load_model(path: str | Path, *, device: str = "cpu", precision: str = "float32") -> ConvCapsClassifier:
    """A trained classifier from its file.

    Parameters
    ----------
    path : str or Path
        A model file, such as ``model.safetensors`` of a run.
    device, precision : str
        As of :class:`ConvCapsClassifier`.

    Returns
    -------
    ConvCapsClassifier
        Ready to predict and evaluate; ``split_``, ``scores_`` and ``history_`` are not in the file.
    """
    model = read_model(Path(path))
    drawn, record = model.split.request(patch=model.patch) or splits.SplitRequest(), model.recipe
    classifier = ConvCapsClassifier(
        train=drawn.train,
        val=drawn.val,
        per_class=drawn.per_class,
        split_by=drawn.kind,
        block=drawn.block,
        epochs=record.user_overrides.epochs,
        batch_size=record.user_overrides.batch_size,
        patch=model.patch,
        seed=0 if record.seed is None else record.seed,
        method=model.method,
        recipe=record.name,
        structure=model.structure or None,
        device=device,
        precision=precision,
    )
    classifier.model_ = model
    return classifier
