"""ModelUser: what an estimator does with its trained model: predict, map, score and save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.compute.devices import Device
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split, count_test_units
from hypercaps.data.window import Window
from hypercaps.errors import LabelsError, SplitError, warn_data
from hypercaps.inference.class_map import ClassMap
from hypercaps.inference.known_scores import KnownScores
from hypercaps.inference.metrics import Scores
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import write_model
from hypercaps.inference.predict import (
    MappedWindow,
    Mask,
    OnProgress,
    WindowOutputs,
    map_familiarity,
    map_scene,
    map_scores,
    map_windows,
)
from hypercaps.inference.scene_shift import prepare_scene
from hypercaps.inference.scoring import compare, with_intervals
from hypercaps.inference.shown_progress import ShownProgress, both
from hypercaps.training.checks import as_labels, as_scene, compare_names

Cube = npt.NDArray[Any]  # (rows, columns, bands)
_MOST_LISTED = 20  # classes in a message


class ModelUser:
    """Base of :class:`hypercaps.ConvCapsClassifier`: the methods that need a trained model, ``model_``."""

    device: str
    precision: str
    model_: TrainedModel
    _known: KnownScores | None = None  # of the scene that it was trained on

    def evaluate(
        self,
        scene: Scene | Cube,
        labels: Labels | npt.NDArray[Any],
        split: Split | None = None,
        on_progress: OnProgress | None = None,
        *,
        progress: bool | None = None,
    ) -> Scores:
        """Score the classifier on labelled pixels.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            With the model's bands, not necessarily the scene it was trained on.
        labels : Labels or (rows, columns) array
            Class numbers (rows, columns), 0 = unlabelled. Labels on invalid pixels are left out with a warning.
        split : Split, optional
            Score its test pixels only. Default: all labelled pixels; on the labels of the training, these include
            training pixels, and the score is too high, as a warning says: ``scores_`` after ``fit`` has that of
            held-out pixels.
        on_progress : callable, optional
            Called with the number of pixels done and their total.
        progress : bool, optional
            As of :meth:`map`.

        Returns
        -------
        Scores
            Accuracies in percent, confusion matrix and reliability of the confidences.
        """
        model = self._fitted()
        scene, labels = as_scene(scene), as_labels(labels)
        scores = self._evaluate(model, scene, labels, split, on_progress, progress)
        if split is None and _are_of_training(model, scene, labels):
            warn_data(
                "the model was trained on these labels: unless the scene is another one, its training pixels were "
                "scored as well and the score is too high; scores_ after fit has that of held-out pixels, and split "
                "names the pixels to score"
            )
        return scores

    def _evaluate(
        self,
        model: TrainedModel,
        scene: Scene,
        labels: Labels,
        split: Split | None = None,
        on_progress: OnProgress | None = None,
        progress: bool | None = False,
    ) -> Scores:
        model.check_fits(scene)
        labels.check_fits(scene)
        labels = labels.where_valid(scene)
        scored = labels.array > 0  # (rows, columns)
        if split is not None:
            scored &= split.test_mask(labels)
            if not scored.any():
                raise SplitError(f"no test pixel of the split is labelled and valid in scene {scene.name!r}")
        if (unknown := np.setdiff1d(labels.array[scored], model.legend.labels)).size:
            raise LabelsError(
                f"labels {labels.name!r} hold classes that the model does not know, "
                f"{_listed(labels.legend.only(unknown))}: it knows {_listed(model.legend)}; relabel them or leave them "
                "out"
            )
        compare_names(labels.legend, model.legend)
        with self._applied(), _shown("evaluate", progress, on_progress) as reported:
            scores = compare(model, scene, labels, scored, reported, self._known_of(scene))
        return with_intervals(
            scores, count_test_units(labels.only_pixels(np.flatnonzero(scored)), model.legend.labels, split)
        )

    def score(self, scene: Scene | Cube, labels: Labels | npt.NDArray[Any]) -> float:
        """Share of the labelled pixels that get their class, 0 to 1, as scikit-learn's classifiers give it.

        Parameters
        ----------
        scene, labels
            As of :meth:`evaluate`, which gives this in percent, with much more. Training pixels are scored as well.
        """
        return self._evaluate(self._fitted(), as_scene(scene), as_labels(labels)).oa / 100

    def predict(self, scene: Scene | Cube, *, progress: bool | None = None) -> npt.NDArray[np.int16]:
        """Label of every pixel (rows, columns), numbered as in the training labels; 0 for invalid pixels.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            With the model's bands.
        progress : bool, optional
            As of :meth:`map`.
        """
        return self._map("predict", self._scene(scene), None, progress).classes

    def predict_proba(self, scene: Scene | Cube, *, progress: bool | None = None) -> npt.NDArray[np.float32]:
        """Probability of each class (rows, columns, n), NaN for invalid pixels.

        Calibrated on the validation pixels or on out-of-fold predictions. A model that was trained without either is
        not calibrated: then these are the ``lengths``.

        Parameters
        ----------
        scene, progress
            As of :meth:`predict`.
        """
        return self._all_scores("predict_proba", self._scene(scene), progress, raw=False)

    def lengths(self, scene: Scene | Cube, *, progress: bool | None = None) -> npt.NDArray[np.float32]:
        """The network's own scores (rows, columns, n), 0 to 1; NaN for invalid pixels.

        For capsule networks the lengths of the class capsules, which need not sum to 1; for rbf-svm the share of the
        pairs of classes that a class won; for other methods uncalibrated probabilities.

        Parameters
        ----------
        scene, progress
            As of :meth:`predict`.
        """
        return self._all_scores("lengths", self._scene(scene), progress, raw=True)

    def _all_scores(self, what: str, scene: Scene, progress: bool | None, *, raw: bool) -> npt.NDArray[np.float32]:
        with self._applied() as model, _shown(what, progress) as reported:
            return map_scores(model, scene, raw=raw, on_progress=reported)

    def map(
        self,
        scene: Scene | Cube,
        *,
        only: Mask | None = None,
        on_progress: OnProgress | None = None,
        progress: bool | None = None,
    ) -> ClassMap:
        """Class and confidence of every pixel.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            With the model's bands.
        only : (rows, columns) bool array, optional
            Pixels to classify, e.g. ``labels.array > 0``. Default: all.
        on_progress : callable, optional
            Called with the number of pixels done and their total.
        progress : bool, optional
            Whether to show progress, in a notebook as a bar, elsewhere on stderr. Default: in notebooks and interactive
            sessions on a terminal, and not in scripts; not if ``on_progress`` is given.

        Returns
        -------
        ClassMap
            ``classes`` (rows, columns) int16, 0 where nothing was classified, and ``confidence`` (rows, columns)
            float32, NaN there.
        """
        return self._map("map", self._scene(scene), only, progress, on_progress)

    def _map(
        self,
        what: str,
        scene: Scene,
        only: Mask | None,
        progress: bool | None,
        on_progress: OnProgress | None = None,
    ) -> ClassMap:
        with self._applied() as model, _shown(what, progress, on_progress) as reported:
            return map_scene(model, scene, only=only, on_progress=reported, known=self._known_of(scene))

    def map_windows(
        self,
        scene: Scene | Cube,
        windows: Iterable[Window],
        *,
        only: Mask | None = None,
        with_scores: bool = False,
        raw: bool = False,
        coverage: float | None = None,
        with_familiarity: bool = False,
    ) -> Iterator[MappedWindow]:
        """Map a scene of any size window by window.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
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
        with_familiarity : bool, default False
            Also give the similarity of pixels to the labelled ground, 0 to 1.

        Yields
        ------
        MappedWindow
            The classes, confidences and other layers of one window.
        """
        scene = self._scene(scene)
        with self._applied() as model:
            outputs = WindowOutputs(with_scores, raw, coverage, with_familiarity)
            yield from map_windows(model, scene, windows, outputs, only=only, known=self._known_of(scene))

    def familiarity(self, scene: Scene | Cube) -> npt.NDArray[np.float32]:
        """Similarity of every pixel to the labelled ground.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            With the model's bands.

        Returns
        -------
        (rows, columns) float32 array
            0 to 1: the share of known ground, labelled but held out of training, that is at least as different from the
            training pixels; NaN for invalid pixels.
        """
        return map_familiarity(self._fitted(), as_scene(scene))

    def resampled(self, scene: Scene | Cube) -> Scene:
        """The scene of another sensor, resampled to the model's bands, to predict and evaluate on.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            With wavelengths that cover the model's.
        """
        return self._fitted().resampled(as_scene(scene))

    def adapted(self, scene: Scene | Cube, how: str = "auto") -> Scene:
        """A new scene as the model should see it, to predict and evaluate on; warns of what differs.

        Parameters
        ----------
        scene : Scene or (rows, columns, bands) array
            Its mean spectrum is compared with that of the training scene. Bands that are dead or out of range are
            interpolated, and bands that lie beside the model's by less than a band are resampled.
        how : {"auto", "none", "mean", "standardise"}, default "auto"
            "auto" undoes another unit, and another illumination or calibration of the same ground; "mean" moves the
            mean of each band to that of the training scene, "standardise" also scales it to its standard deviation.
        """
        return prepare_scene(self._fitted(), as_scene(scene), how).scene

    def _scene(self, scene: object) -> Scene:
        """What is to be classified, once there is a model."""
        self._fitted()
        return as_scene(scene)

    @contextmanager
    def _applied(self) -> Iterator[TrainedModel]:
        """The model on its device; inside the context, products have the classifier's precision."""
        device = Device(self.device, self.precision)
        self.model_ = model = self._fitted().to(device)
        with device.arithmetic():
            yield model

    def _known_of(self, scene: Scene) -> KnownScores | None:
        """Scores of pixels that the model has already classified, to be used inside of ``_applied``."""
        return self._known if self._known is not None and self._known.fits(self.model_, scene) else None

    def save(self, path: str | Path) -> None:
        """Write the model file, for ``load_model``.

        Parameters
        ----------
        path : str or Path
            Such as ``model.safetensors``.
        """
        write_model(Path(path), self._fitted())

    @property
    def classes_(self) -> npt.NDArray[np.int16]:
        """Class numbers (n,), in the order of ``predict_proba``."""
        return self._fitted().legend.labels

    @property
    def legend_(self) -> Legend:
        """Names and colours of the classes."""
        return self._fitted().legend

    @property
    def n_features_in_(self) -> int:
        """Number of bands."""
        return self._fitted().bands

    def _fitted(self) -> TrainedModel:
        try:
            model: TrainedModel = self.model_
        except AttributeError:
            from sklearn.exceptions import NotFittedError  # imports all of scikit-learn

            raise NotFittedError("this ConvCapsClassifier is not trained yet: call fit first") from None
        return model


@contextmanager
def _shown(what: str, progress: bool | None, on_progress: OnProgress | None = None) -> Iterator[OnProgress | None]:
    """What to call while pixels are classified: the user's function and, if progress is shown, one that shows it."""
    with ShownProgress(what, False if on_progress is not None and progress is None else progress) as shown:
        yield both(shown.mapping, on_progress) if shown.is_shown else on_progress


def _are_of_training(model: TrainedModel, scene: Scene, labels: Labels) -> bool:
    """Whether a model was trained on these labels and, as far as it tells, on this scene."""
    if model.split.labels != labels.digest() or model.scene != scene.name:
        return False
    return not model.out_of_fold or model.out_of_fold["scene_fingerprint"] == scene.fingerprint()


def _listed(legend: Legend) -> str:
    """Classes as '1 soil, 3, 4 water', at most 20 of them."""
    texts = [f"{entry.label} {entry.name}" if entry.is_named else str(entry.label) for entry in legend]
    return ", ".join(texts[:_MOST_LISTED]) + (", ..." if len(texts) > _MOST_LISTED else "")
