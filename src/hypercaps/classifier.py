"""ConvCapsClassifier, the estimator in the style of scikit-learn.

What only trainings need is imported by ``fit``: a trained capsule network is loaded and applied without torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from hypercaps.compute.devices import import_torch
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.inference.known_scores import KnownScores
from hypercaps.inference.metrics import Scores
from hypercaps.inference.model_user import Cube, ModelUser
from hypercaps.inference.parameters import Parameters
from hypercaps.inference.run_metrics import Baseline
from hypercaps.inference.scoring import calibrate
from hypercaps.inference.shown_progress import ShownProgress, both
from hypercaps.selection.candidates import LDA
from hypercaps.selection.settings import Settings
from hypercaps.training.checks import as_labels, as_scene, check_split, warn_of_similar_names

if TYPE_CHECKING:
    from hypercaps.data.splits.folds import Folds
    from hypercaps.inference.model import TrainedModel
    from hypercaps.models.history import History
    from hypercaps.selection.folded import FoldedResult
    from hypercaps.selection.race import OnCandidate, OnComparing
    from hypercaps.training.checkpoint_file import CheckpointFile
    from hypercaps.training.loop import OnProgress as OnTraining
    from hypercaps.training.scene_cache import SceneCache


@dataclass(frozen=True)
class FitObserver:
    """Functions that ``fit`` calls while it runs; each may be None."""

    on_comparing: OnComparing | None = None  # a fold of a candidate begins
    on_candidate: OnCandidate | None = None  # a candidate is finished
    on_model: Callable[[TrainedModel], None] | None = None  # the model is trained; calibration and scores follow


class ConvCapsClassifier(ModelUser, Parameters):
    """Classify every pixel of a scene with 1D-ConvCapsNet, or with another registered method.

    Follows scikit-learn's conventions: the constructor stores its arguments, ``fit`` checks them, and attributes that
    end in ``_`` exist after ``fit``. ``X`` is a :class:`Scene` or an array (rows, columns, bands), ``y`` are
    :class:`Labels` on its grid or an array (rows, columns) of class numbers.

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
    whitening : {"plain", "damped", "robust"}, optional
        For methods on whitened components: "damped" adds a hundredth of each band's variance before whitening, so
        that components of tiny variance are not scaled up; "robust" adds the variance that changes of illumination,
        calibration and wavelengths cause, so that a model survives them. Default: the recipe's, "robust" for ``best``,
        ``augmented`` and ``guided`` and plain for others.
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
    >>> from hypercaps import ConvCapsClassifier, open_labels, open_scene
    >>> scene, labels = open_scene("indian-pines"), open_labels("indian-pines")
    >>> classifier = ConvCapsClassifier(method="lda", train=0.1).fit(scene, labels)
    >>> round(classifier.scores_.oa), classifier.predict(scene).shape
    (75, (145, 145))
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
        scene: Scene | Cube,
        labels: Labels | npt.NDArray[Any],
        split: Split | None = None,
        *,
        evaluate: bool = True,
        on_progress: OnTraining | None = None,
        observer: FitObserver | None = None,
        checkpoint: CheckpointFile | None = None,
        cache: SceneCache | None = None,
        progress: bool | None = None,
    ) -> ConvCapsClassifier:
        """Train on the labelled pixels of a scene and score the test pixels.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            Cube in memory or in a file.
        labels : Labels or (rows, columns) array
            Class numbers (rows, columns), 0 = unlabelled. Labels on invalid pixels are left out with a warning.
        split : Split, optional
            Training, validation and test pixels. Default: drawn by ``draw_split``.
        evaluate : bool, default True
            Classify and score the test pixels; without it there is no ``scores_``.
        on_progress : callable, optional
            Called with a ``Progress`` after every step and epoch of the final training. KeyboardInterrupt, raised by it
            or by Ctrl-C, ends the training and keeps the best epoch so far.
        observer : FitObserver, optional
            Functions that are called when folds, candidates and the model are trained.
        checkpoint : CheckpointFile, optional
            Where the training keeps a checkpoint, and continues from one that is there. Not used for folds.
        cache : SceneCache, optional
            What earlier trainings computed of this scene and need not be computed again.
        progress : bool, optional
            Whether to show progress, in a notebook as a bar, elsewhere on stderr. Default: in notebooks and interactive
            sessions on a terminal, and not in scripts; not if ``on_progress`` or ``observer`` is given.

        Returns
        -------
        ConvCapsClassifier
            This classifier.
        """
        import_torch("training")
        from hypercaps.training.scene_cache import SceneCache

        scene, labels = as_scene(scene), as_labels(labels)
        own_cache = SceneCache(scene)
        cache = own_cache if cache is None else cache
        cache.check_is_of(scene)
        labels = self._draw(scene, labels, split)
        observer = observer or FitObserver()
        if progress is None and (on_progress is not None or observer != FitObserver()):
            progress = False  # the caller shows progress
        with ShownProgress("fit", progress) as shown:
            if shown.is_shown:
                on_progress = both(shown.training, on_progress)
                observer = replace(observer, on_comparing=both(shown.comparing, observer.on_comparing))
            if self.folds_ is None:
                self._fit_once(cache, labels, on_progress, checkpoint)
            else:
                self._fit_folds(cache, labels, on_progress, observer)
            if observer.on_model is not None:
                observer.on_model(self.model_)
            if self.split_.val.size:  # pixels that no training has seen
                self._calibrate(cache.scene, labels)
            own_cache.forget_spectra()  # large, and not needed any more
            self._add_scene_statistics(cache, labels)
            if evaluate:
                self._evaluate_fit(cache, labels, shown)
        return self

    def _draw(self, scene: Scene, labels: Labels, split: Split | None) -> Labels:
        """Check parameters and input and draw split and folds; returns the labels on valid pixels."""
        settings = self._settings()
        settings.check()
        labels.check_fits(scene)
        labels = labels.where_valid(scene)
        warn_of_similar_names(labels.legend)
        split = settings.draw_split(labels, scene) if split is None else split.with_patch(settings.spec.patch_side)
        check_split(split, labels)
        self.__dict__.pop("scores_", None)  # of an earlier model
        self._known = None
        self.split_: Split = split
        self.folds_: Folds | None = settings.draw_folds(scene, labels, split)
        self.selection_: FoldedResult | None = None
        self.baseline_: Baseline | None = None
        return labels

    def _add_scene_statistics(self, cache: SceneCache, labels: Labels) -> None:
        """Add band statistics and familiarity to the model, which recognise other scenes and unknown ground."""
        from hypercaps.inference.familiarity_fit import fit_familiarity

        familiarity = fit_familiarity(cache, labels, self.split_, self.folds_, self.seed)
        self.model_ = replace(self.model_, statistics=cache.statistics, familiarity=familiarity)

    def _fit_once(
        self, cache: SceneCache, labels: Labels, on_progress: OnTraining | None, checkpoint: CheckpointFile | None
    ) -> None:
        """Train one method on the training pixels."""
        from hypercaps.selection.fit import fit_model

        job = self._settings().spec.job(cache.scene, labels, self.split_)
        fitted = fit_model(job, cache=cache, on_progress=on_progress, checkpoint=checkpoint)
        self.history_: History = fitted.history
        self.model_ = fitted.model
        self._known = KnownScores.of(self.model_, cache.scene)

    def _fit_folds(
        self, cache: SceneCache, labels: Labels, on_progress: OnTraining | None, observer: FitObserver
    ) -> None:
        """Compare candidates, or cross-fit one method, on the folds; then train on all training pixels."""
        from hypercaps.selection.folded import FoldedTraining

        assert self.folds_ is not None
        settings = self._settings()
        training = FoldedTraining(
            spec=settings.spec,
            candidates=settings.compared(),
            seconds=settings.seconds,
            on_training=on_progress,
            on_comparing=observer.on_comparing,
            on_candidate=observer.on_candidate,
        )
        self.selection_ = result = training.run(cache, labels, self.folds_, self.split_)
        self.history_, self.model_ = result.final.history, result.final.model

    def _calibrate(self, scene: Scene, labels: Labels) -> None:
        with self._applied() as model:
            calibration = calibrate(model, scene, labels, self.split_.val, self._known_of(scene))
        self.model_ = replace(self.model_, calibration=calibration)

    def _evaluate_fit(self, cache: SceneCache, labels: Labels, shown: ShownProgress) -> None:
        """Score the test pixels or the out-of-fold predictions, and LDA on the same pixels."""
        scene = cache.scene
        if self.split_.kind == "folds":
            assert self.selection_ is not None
            self.scores_: Scores = self.selection_.scores()
            self.baseline_ = self.selection_.baseline
            baseline = asdict(replace(self.baseline_, seconds=0.0))  # a time would make two model files differ
            metrics = self.scores_.to_json() | asdict(self.selection_.facts()) | {"baseline": baseline}
            self.model_ = replace(self.model_, out_of_fold=metrics | {"scene_fingerprint": scene.fingerprint()})
        elif self.split_.test.size:
            on_progress = shown.mapping if shown.is_shown else None
            self.scores_ = self.evaluate(scene, labels, self.split_, on_progress, progress=False)
            is_lda = self.method == LDA.method and self.model_.patch == LDA.patch
            self.baseline_ = None if is_lda else self._lda_baseline(cache, labels)
        else:
            return
        scores = self.scores_.to_json()
        kept = {key: scores[key] for name in ("oa", "aa", "kappa") for key in (name, f"{name}_interval")}
        listed = {
            key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()
        }  # as in a file
        self.model_ = replace(self.model_, scores=listed)

    def _lda_baseline(self, cache: SceneCache, labels: Labels) -> Baseline:
        from hypercaps.compute import linalg
        from hypercaps.selection.fit import fit_model

        lda = ConvCapsClassifier(method=LDA.method, seed=self.seed)
        lda.split_ = self.split_.with_patch(LDA.patch)
        started = time.perf_counter()
        with linalg.one_thread():  # a second one would wait for the core on which facts for a report are found
            lda.model_ = fit_model(lda._settings().spec.job(cache.scene, labels, lda.split_), cache=cache).model
        seconds = time.perf_counter() - started
        scores = lda.evaluate(cache.scene, labels, lda.split_, progress=False)
        return Baseline(LDA.method, scores.oa, seconds, scores.oa_interval)

    def _settings(self) -> Settings:
        return Settings(**self.get_params(deep=False))

    def draw_split(self, labels: Labels | npt.NDArray[Any], scene: Scene | Cube | None = None) -> Split:
        """Draw the split that ``fit`` uses for these labels.

        Parameters
        ----------
        labels : Labels or (rows, columns) array
            As given to ``fit``, without labels on invalid pixels: ``labels.where_valid(scene)``.
        scene : Scene or (rows, columns, bands) array, optional
            If it is a mosaic, folds hold out whole tiles of it.
        """
        return self._settings().draw_split(as_labels(labels), None if scene is None else as_scene(scene))

    def __getstate__(self) -> dict[str, Any]:
        """Without the comparison and the known scores, which hold the scene: a scene need not be picklable."""
        state = {name: value for name, value in vars(self).items() if name != "_known"}
        return state | {"selection_": None} if "selection_" in state else state
