"""scikit-learn's tools over the pixels of a scene: cross-validation, grid search, pipelines.

``ConvCapsClassifier`` takes a scene and labels. scikit-learn's tools take rows of a table, deal them out to folds and
hand some of them to ``fit``. Here a row is a pixel, given by its place in the scene, so that its patch can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError, ModelError, SceneError
from hypercaps.inference.predict import WINDOW, windows_of
from hypercaps.training.checks import as_scene

Places = npt.NDArray[np.int64]


class PixelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of single pixels of one scene, as scikit-learn's tools expect it.

    ``X`` has one row for each pixel: its row and column (N, 2), or its flat index, row * columns + column, (N,) or
    (N, 1). ``y`` are their classes (N,), numbers or names. All pixels that are given to ``fit`` train
    (``split_by="none"``); the patches around them are read from the scene.

    Neighbouring pixels share most of their patches. Folds of single pixels therefore give a score that is too high:
    hold out whole areas, for example with scikit-learn's ``GroupKFold`` and the polygon or block of each pixel.

    Parameters
    ----------
    scene : Scene or (rows, columns, bands) array
        The scene that all pixels lie in.
    classifier : ConvCapsClassifier, optional
        Method, recipe and other settings, e.g. ``ConvCapsClassifier(method="lda")``; a grid search reaches them as
        ``classifier__patch``. Default: ``ConvCapsClassifier()``.

    Attributes
    ----------
    classes_ : (n,) array
        The classes, sorted, in the order of ``predict_proba``.
    classifier_ : ConvCapsClassifier
        The trained classifier, which also maps the whole scene.
    n_features_in_ : int
        Columns of ``X``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from hypercaps import ConvCapsClassifier, Scene
    >>> from hypercaps.sklearn import PixelClassifier
    >>> left = np.arange(20) < 10
    >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + 3 * left[None, :, None]
    >>> pixels = np.argwhere(np.ones((20, 20), dtype=bool))  # (400, 2): row and column
    >>> names = np.where(left[pixels[:, 1]], "water", "soil")
    >>> estimator = PixelClassifier(Scene.from_array(cube), ConvCapsClassifier(method="lda"))
    >>> bool(cross_val_score(estimator, pixels, names, cv=3).min() > 0.9)
    True
    """

    def __init__(
        self, scene: Scene | npt.NDArray[Any] | None = None, classifier: ConvCapsClassifier | None = None
    ) -> None:
        self.scene, self.classifier = scene, classifier

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> PixelClassifier:  # noqa: N803 - scikit-learn's name
        """Train on pixels.

        Parameters
        ----------
        X : (N, 2), (N, 1) or (N,) array of int
            Places of the pixels.
        y : (N,) array
            Their classes.
        """
        scene = self._checked_scene()
        classes = self._targets(y)
        places, self.n_features_in_ = self._places(X)
        if classes.shape != places.shape:
            raise LabelsError(f"{places.size} pixels and {classes.shape} classes were given: one for each is expected")
        if np.unique(places).size != places.size:
            raise LabelsError("X has a pixel twice: give each pixel once, with one class")
        self.classes_, number = np.unique(classes, return_inverse=True)
        array = np.zeros(scene.shape[:2], dtype=np.int16)
        array.ravel()[places] = number + 1
        legend = Legend.of(range(1, self.classes_.size + 1), [str(name) for name in self.classes_])
        labels = Labels(array, legend, "pixels")
        self._refuse_invalid(places, labels.where_valid(scene).array.ravel()[places] == 0)
        settings = self._settings().set_params(split_by="none")
        self.classifier_ = settings.fit(scene, labels, evaluate=False, progress=False)
        return self

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:  # noqa: N803
        """Classes (N,) of pixels.

        Parameters
        ----------
        X : (N, 2), (N, 1) or (N,) array of int
            Places of the pixels, as in ``fit``.
        """
        places = self._known_places(X)
        number = self.classifier_.map(self._checked_scene(), only=self._mask(places), progress=False).classes.ravel()[
            places
        ]
        self._refuse_invalid(places, number == 0)
        return np.asarray(self.classes_[number - 1])

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:  # noqa: N803
        """Scores (N, n) of all classes, which sum to 1; not calibrated, because every given pixel trained.

        Parameters
        ----------
        X : (N, 2), (N, 1) or (N,) array of int
            Places of the pixels, as in ``fit``.
        """
        scene, places = self._checked_scene(), self._known_places(X)
        scores = np.full((scene.rows * scene.cols, self.classes_.size), np.nan, dtype=np.float32)
        grid = scores.reshape(scene.rows, scene.cols, -1)
        windows = windows_of(scene, WINDOW)
        for part in self.classifier_.map_windows(scene, windows, only=self._mask(places), with_scores=True):
            grid[part.at.rows, part.at.cols] = part.scores
        found = scores[places]
        self._refuse_invalid(places, np.isnan(found[:, 0]))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def _checked_scene(self) -> Scene:
        if self.scene is None:
            raise SceneError(
                "PixelClassifier(scene) is None: give the Scene that the pixels lie in, such as "
                "open_scene('scene.tif') or Scene.from_array(cube)"
            )
        return as_scene(self.scene)

    def _settings(self) -> ConvCapsClassifier:
        if self.classifier is None:
            return ConvCapsClassifier()
        if not isinstance(self.classifier, ConvCapsClassifier):
            raise ModelError(
                f"classifier is {type(self.classifier).__name__}: a ConvCapsClassifier is expected, such as "
                'ConvCapsClassifier(method="lda")'
            )
        settings: ConvCapsClassifier = clone(self.classifier)
        return settings

    def _known_places(self, X: npt.ArrayLike) -> Places:  # noqa: N803
        """Flat indices (N,) of pixels, given as to ``fit``."""
        check_is_fitted(self)
        places, columns = self._places(X)
        if columns != self.n_features_in_:
            raise SceneError(
                f"X has {columns} features, but PixelClassifier is expecting {self.n_features_in_} features as input: "
                "give the places of pixels as they were given to fit"
            )
        return places

    def _places(self, X: npt.ArrayLike) -> tuple[Places, int]:  # noqa: N803
        """Flat indices (N,) of pixels, and the number of columns that they were given in."""
        scene = self._checked_scene()
        given = check_array(X, ensure_2d=False, dtype=None, estimator=self, input_name="X")
        is_whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and bool((given == np.floor(given)).all()))
        if given.shape[1:] not in ((), (1,), (2,)):
            raise SceneError(
                f"X has shape {given.shape}: rows and columns of pixels (N, 2), or their flat indices (N,), are "
                "expected; spectra belong into the scene"
            )
        if not is_whole:
            raise SceneError(
                f"X has shape {given.shape}, but its {given.dtype} values are not whole numbers: places of pixels are "
                "expected; leave out steps that change X, such as a scaler, because hypercaps scales spectra itself"
            )
        if given.shape[1:] == (2,):
            inside = ((given >= 0) & (given < scene.shape[:2])).all()
            flat = given[:, 0].astype(np.int64) * scene.cols + given[:, 1].astype(np.int64)
        else:
            flat = given.ravel().astype(np.int64)
            inside = ((flat >= 0) & (flat < scene.rows * scene.cols)).all()
        if not inside:
            raise SceneError(f"X has pixels outside scene {scene.name!r}, which has {scene.rows} x {scene.cols}")
        return np.asarray(flat), 2 if given.shape[1:] == (2,) else 1

    def _targets(self, y: npt.ArrayLike) -> npt.NDArray[Any]:
        """Classes (N,)."""
        if y is None:
            raise LabelsError(
                "PixelClassifier requires y to be passed, but the target y is None: give one class per pixel"
            )
        if len(shape := np.asarray(y).shape) > 1 and shape[1] != 1:
            raise LabelsError(
                f"y has shape {shape}: one class for each row of X is expected; for a map of labels take "
                "X = numpy.argwhere(labels > 0) and y = labels[labels > 0], or ConvCapsClassifier, whose fit takes it"
            )
        classes = column_or_1d(y, warn=True)
        assert_all_finite(classes, input_name="y")
        check_classification_targets(classes)
        return np.asarray(classes)

    def _mask(self, places: Places) -> npt.NDArray[np.bool_]:
        scene = self._checked_scene()
        mask = np.zeros(scene.rows * scene.cols, dtype=bool)
        mask[places] = True
        return mask.reshape(scene.rows, scene.cols)

    def _refuse_invalid(self, places: Places, invalid: npt.NDArray[np.bool_]) -> None:
        if invalid.any():
            scene = self._checked_scene()
            row, col = divmod(int(places[invalid][0]), scene.cols)
            raise SceneError(
                f"{int(invalid.sum())} of {places.size} pixels have no data, such as row {row}, column {col}: leave "
                "out the pixels that are not valid in scene.read().valid"
            )
