"""ConvCapsClassifier, the estimator in the style of scikit-learn, and ``load_model``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from hypercaps.compute.devices import Device
from hypercaps.data import splits
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.splits.draw import draw_requested_folds
from hypercaps.data.splits.folds import Folds
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
from hypercaps.inference.run_metrics import Baseline
from hypercaps.inference.scoring import calibrate, compare, with_intervals
from hypercaps.models.history import History
from hypercaps.models.registry import get_method
from hypercaps.selection.candidates import choose_candidates
from hypercaps.selection.fit import fit_model
from hypercaps.selection.folded import LDA, FoldedResult, FoldedTraining
from hypercaps.selection.race import OnCandidate, OnComparing, units_per_class
from hypercaps.training.checks import as_int, check_kinds, check_split, compare_names
from hypercaps.training.loop import OnProgress as OnTraining
from hypercaps.training.spec import TrainingSpec

AUTO = "auto"  # the method that is chosen by comparing candidates


@dataclass(frozen=True)
class FoldObserver:
    """Functions that ``fit`` calls while folds are run; each may be None."""

    on_comparing: OnComparing | None = None  # a fold of a candidate begins
    on_candidate: OnCandidate | None = None  # a candidate is finished


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
    split_by : {"random", "polygons", "blocks", "folds", "none"}, default "random"
        Unit that the split draws. "random": single pixels. "polygons": whole polygons, each in one of the three sets.
        "blocks": squares of ``block`` x ``block`` pixels with a guard band between the sets, so that no patch of a test
        pixel contains a training pixel. "folds": spatial cross-validation; whole polygons, areas, tiles or points are
        held out in turn for the scores, and the model that is kept is trained on all labels. "none": all labels
        train, nothing is scored.
    block : int, default 16
        Side of the blocks in pixels; with folds, the side to which large areas may be cut.
    folds : int, optional
        Number of folds. Default: 5, or as many as there are units if they are fewer.
    epochs : int, optional
        Number of epochs; for recipe ``best``, of the first of its two stages. Default: the recipe's.
    batch_size : int, optional
        Training pixels in a step of the optimizer. Default: the recipe's.
    patch : int, optional
        Side of the square patch around a pixel, in pixels, odd. Default: the method's (7 for convcapsnet).
    seed : int, default 0
        Seed of the split, the initial weights and the order of training, 0 or more. The same seed gives the same bits.
    method : str, default "convcapsnet"
        Name of a registered method, as listed by ``hypercaps methods``, or "auto": candidates are compared on spatial
        folds of the training pixels, and the best one, or an average of the best few, is kept.
    candidates : sequence of str, optional
        With "auto", the methods or candidates to compare, such as ``("lda", "logistic")``. Default: all.
    budget : float, optional
        With "auto", the time limit of comparison and final training in minutes.
    recipe : str, optional
        Name of one of the method's recipes. Default: ``best``, ``tuned`` or ``paper``, the first that the method has.
    whitening : {"plain", "damped"}, optional
        For methods on whitened components: "damped" adds a hundredth of each band's variance before whitening, so
        that components of tiny variance are not scaled up. Default: plain.
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
    folds_ : Folds or None
        The fold in which each labelled pixel was held out.
    selection_ : FoldedResult or None
        The out-of-fold predictions and, with "auto", the comparison of the candidates.
    baseline_ : Baseline or None
        LDA, trained and tested on the same pixels.
    scores_ : Scores
        Accuracy on the test pixels, or of the out-of-fold predictions; not after ``fit(..., evaluate=False)`` and not
        without test pixels.
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
        folds: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        patch: int | None = None,
        seed: int = 0,
        method: str = "convcapsnet",
        candidates: Sequence[str] | None = None,
        budget: float | None = None,
        recipe: str | None = None,
        whitening: str | None = None,
        structure: Mapping[str, object] | None = None,
        device: str = "cpu",
        precision: str = "float32",
    ) -> None:
        self.train, self.val, self.per_class = train, val, per_class
        self.split_by, self.block, self.folds = split_by, block, folds
        self.epochs, self.batch_size, self.patch, self.seed = epochs, batch_size, patch, seed
        self.method, self.candidates, self.budget = method, candidates, budget
        self.recipe, self.whitening, self.structure = recipe, whitening, structure
        self.device, self.precision = device, precision

    def fit(
        self,
        scene: Scene,
        labels: Labels,
        split: Split | None = None,
        *,
        evaluate: bool = True,
        on_progress: OnTraining | None = None,
        observer: FoldObserver | None = None,
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
            Called with a ``Progress`` after every step and epoch of the final training. KeyboardInterrupt, raised by it
            or by Ctrl-C, ends the training and keeps the best epoch so far.
        observer : FoldObserver, optional
            Functions that are called while folds are run.

        Returns
        -------
        ConvCapsClassifier
            This classifier.
        """
        check_kinds(scene, labels)
        self._check_parameters()
        labels.check_fits(scene)
        labels = labels.where_valid(scene)
        split = self.draw_split(labels, scene) if split is None else split.with_patch(self._patch())
        check_split(split, labels)
        self.__dict__.pop("scores_", None)  # of an earlier model
        self.split_: Split = split
        self.folds_: Folds | None = self._draw_folds(scene, labels, split)
        self.selection_: FoldedResult | None = None
        self.baseline_: Baseline | None = None
        if self.folds_ is None:
            self._fit_once(scene, labels, on_progress)
        else:
            self._fit_folds(scene, labels, on_progress, observer or FoldObserver())
        if evaluate:
            self._evaluate_fit(scene, labels)
        return self

    def _fit_once(self, scene: Scene, labels: Labels, on_progress: OnTraining | None) -> None:
        """Train one method on the training pixels, and calibrate it on the validation pixels."""
        fitted = fit_model(self._spec().job(scene, labels, self.split_), on_progress=on_progress)
        self.history_: History = fitted.history
        self.model_ = fitted.model
        self._calibrate(scene, labels)

    def _fit_folds(self, scene: Scene, labels: Labels, on_progress: OnTraining | None, observer: FoldObserver) -> None:
        """Compare candidates, or cross-fit one method, on the folds; then train on all training pixels."""
        assert self.folds_ is not None
        training = FoldedTraining(
            spec=self._spec(),
            candidates=choose_candidates(self.candidates) if self.method == AUTO else None,
            seconds=None if self.budget is None else 60.0 * self.budget,
            on_training=on_progress,
            on_comparing=observer.on_comparing,
            on_candidate=observer.on_candidate,
        )
        self.selection_ = result = training.run(scene, labels, self.folds_, self.split_)
        self.history_, self.model_ = result.final.history, result.final.model
        if self.split_.val.size:  # pixels that no model of the comparison has seen
            self._calibrate(scene, labels)

    def _calibrate(self, scene: Scene, labels: Labels) -> None:
        with self._applied(scene) as model:
            calibration = calibrate(model, scene, labels, self.split_.val)
        self.model_ = replace(self.model_, calibration=calibration)

    def _evaluate_fit(self, scene: Scene, labels: Labels) -> None:
        """Score the test pixels or the out-of-fold predictions, and LDA on the same pixels."""
        if self.split_.kind == "folds":
            assert self.selection_ is not None
            self.scores_: Scores = self.selection_.scores()
            self.baseline_ = self.selection_.baseline
            metrics = self.scores_.to_json() | asdict(self.selection_.facts()) | {"baseline": asdict(self.baseline_)}
            self.model_ = replace(self.model_, out_of_fold=metrics | {"scene_fingerprint": scene.fingerprint()})
        elif self.split_.test.size:
            self.scores_ = self.evaluate(scene, labels, self.split_)
            is_lda = self.method == LDA.method and self.model_.patch == LDA.patch
            self.baseline_ = None if is_lda else self._lda_baseline(scene, labels)
        else:
            return
        scores = {"oa": self.scores_.oa, "aa": self.scores_.aa, "kappa": self.scores_.kappa}
        self.model_ = replace(self.model_, scores=scores)

    def _lda_baseline(self, scene: Scene, labels: Labels) -> Baseline:
        lda = ConvCapsClassifier(method=LDA.method, seed=self.seed)
        lda.split_ = self.split_.with_patch(LDA.patch)
        started = time.perf_counter()
        lda.model_ = fit_model(lda._spec().job(scene, labels, lda.split_)).model
        seconds = time.perf_counter() - started
        return Baseline(LDA.method, lda.evaluate(scene, labels, lda.split_).oa, seconds)

    def _check_parameters(self) -> None:
        """Refuse parameters that contradict each other, before any work."""
        as_int("seed", self.seed, 0)
        fixed = ("recipe", "epochs", "batch_size", "patch", "structure", "whitening")
        if self.method == AUTO:
            choose_candidates(self.candidates)
            given = [name for name in fixed if getattr(self, name) is not None]
            if given:
                raise ModelError(
                    f"method auto chooses the {given[0].replace('_', ' ')} itself: leave it out, or name a method"
                )
            if self.budget is not None and not self.budget > 0:
                raise ModelError(f"the budget is {self.budget!r}: a number of minutes above 0 is expected")
            return
        for name in ("candidates", "budget"):
            if getattr(self, name) is not None:
                raise ModelError(f"{name} has a meaning with method auto only: leave it out, or ask for auto")
        spec = self._spec()
        get_method(spec.method).recipe(spec.recipe)
        spec.preprocessing_name()

    def _spec(self) -> TrainingSpec:
        """The training of the method; of its candidates, if it is "auto", seed and device."""
        device, seed = Device(self.device, self.precision), as_int("seed", self.seed, 0)
        if self.method == AUTO:
            return TrainingSpec(seed=seed, device=device)
        return TrainingSpec(
            self.method,
            self.recipe,
            self.patch,
            self.whitening,
            self.structure,
            self.epochs,
            self.batch_size,
            seed,
            device,
        )

    def _patch(self) -> int:
        return self._spec().patch_side

    def _request(self) -> splits.SplitRequest:
        return splits.SplitRequest(
            kind=self.split_by,
            train=float(self.train),
            val=float(self.val),
            per_class=None if self.per_class is None else as_int("per_class", self.per_class, 1),
            block=self.block,
            seed=as_int("seed", self.seed, 0),
            patch=self._patch(),
            folds=self.folds,
        )

    def draw_split(self, labels: Labels, scene: Scene | None = None) -> Split:
        """Draw the split that ``fit`` uses for these labels.

        Parameters
        ----------
        labels : Labels
            As given to ``fit``, without labels on invalid pixels: ``labels.where_valid(scene)``.
        scene : Scene, optional
            If it is a mosaic, folds hold out whole tiles of it.
        """
        tiles = labels.tiles or (scene.tiles if scene else ())
        return splits.draw(labels, self._request(), tiles=tiles, scene=scene)

    def _draw_folds(self, scene: Scene, labels: Labels, split: Split) -> Folds | None:
        """The folds of the training pixels; None: neither scores nor the choice of a method need them."""
        tiles = labels.tiles or scene.tiles
        if split.kind == "folds":
            return draw_requested_folds(labels, self._request(), tiles=tiles, scene=scene)
        if self.method != AUTO:
            return None
        training = labels.only_pixels(split.train)
        request = splits.SplitRequest("folds", block=self.block, seed=as_int("seed", self.seed, 0))
        try:
            return draw_requested_folds(training, request, tiles=tiles, scene=scene)
        except SplitError as error:
            raise SplitError(
                "method auto compares candidates on folds of the training pixels, and these are too few units for "
                "that: name a method, such as --method lda, or label more areas of each class"
            ) from error

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
            scores = compare(model, scene, labels, scored, on_progress)
        return with_intervals(scores, _test_units(labels.only_pixels(np.flatnonzero(scored)), model.legend, split))

    def predict(self, scene: Scene) -> npt.NDArray[np.int16]:
        """Label of every pixel (rows, columns), numbered as in the training labels; 0 for invalid pixels."""
        return self.map(scene).classes

    def predict_proba(self, scene: Scene) -> npt.NDArray[np.float32]:
        """Probability of each class (rows, columns, n), NaN for invalid pixels.

        Calibrated on the validation pixels or on out-of-fold predictions. A model that was trained without either is
        not calibrated: then these are the ``lengths``.
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

    def __getstate__(self) -> dict[str, Any]:
        """Without the comparison, which holds the scene: a scene need not be picklable."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"selection_": None} if "selection_" in state else state

    def _fitted(self) -> TrainedModel:
        try:
            model: TrainedModel = self.model_
        except AttributeError:
            raise NotFittedError("this ConvCapsClassifier is not trained yet: call fit first") from None
        return model


def _test_mask(split: Split, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """The test pixels of a split as a mask (rows, columns)."""
    if split.test.size == 0:
        raise SplitError("the split has no test pixel to evaluate on: put some into its test set")
    mask = np.zeros(shape, dtype=bool)
    mask.ravel()[split.test] = True
    return mask


def _test_units(tested: Labels, legend: Legend, split: Split | None) -> npt.NDArray[np.int64]:
    """(n,) number of spatial units with test pixels of each class; in a random split, each pixel counts as one."""
    if split is not None and split.kind == "random":
        counts = tested.counts()
        return np.array([counts.get(int(label), 0) for label in legend.labels])
    units = splits.label_units(tested)
    classes = np.searchsorted(legend.labels, tested.legend.labels)[units.class_of]
    return units_per_class(classes, units.unit, len(legend))


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
    if model.partners:
        return _load_average(model, drawn, device, precision)
    classifier = ConvCapsClassifier(
        train=drawn.train,
        val=drawn.val,
        per_class=drawn.per_class,
        split_by=drawn.kind,
        block=drawn.block,
        folds=drawn.folds,
        epochs=record.user_overrides.epochs,
        batch_size=record.user_overrides.batch_size,
        patch=model.patch,
        seed=0 if record.seed is None else record.seed,
        method=model.method,
        recipe=record.name,
        whitening=record.whitening,
        structure=model.structure or None,
        device=device,
        precision=precision,
    )
    classifier.model_ = model
    return classifier


def _load_average(model: TrainedModel, drawn: splits.SplitRequest, device: str, precision: str) -> ConvCapsClassifier:
    """The classifier of a model that "auto" averaged: its members have settings of their own."""
    seed = 0 if model.recipe.seed is None else model.recipe.seed
    classifier = ConvCapsClassifier(
        train=drawn.train,
        val=drawn.val,
        per_class=drawn.per_class,
        split_by=drawn.kind,
        block=drawn.block,
        folds=drawn.folds,
        method=AUTO,
        seed=seed,
        device=device,
        precision=precision,
    )
    classifier.model_ = model
    return classifier
