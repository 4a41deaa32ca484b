"""Out-of-fold predictions: every labelled pixel is scored by a model that has not seen its spatial unit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits.folds import Folds
from hypercaps.errors import Interrupted
from hypercaps.inference.calibration import cross_calibrate
from hypercaps.inference.intervals import score_intervals
from hypercaps.inference.metrics import confusion_counts
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.scoring import pixel_scores
from hypercaps.selection.fit import FittedModel, fit_model
from hypercaps.training.scene_cache import SceneCache
from hypercaps.training.spec import TrainingSpec

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
RawScores = npt.NDArray[np.float32]  # (M, n)


@dataclass(frozen=True, eq=False)
class FoldProblem:
    """A scene, its labels and their folds: what all candidates of a comparison share."""

    cache: SceneCache  # of the scene, for all trainings
    labels: Labels  # without those on invalid pixels, and only those that may train
    folds: Folds

    @property
    def scene(self) -> Scene:
        return self.cache.scene

    @cached_property
    def pixels(self) -> Integers:
        """(M,) flat indices of the pixels that are held out in some fold, ascending."""
        return self.folds.units.pixels[self._held]

    @cached_property
    def fold(self) -> Integers:
        return self.folds.fold[self._held]

    @cached_property
    def unit(self) -> Integers:
        return self.folds.units.unit[self._held]

    def samples(self, classes: Integers, count: int, which: npt.NDArray[np.bool_] | None = None) -> Integers:
        """(count,) number of independent units with pixels of each class, by a class index of each pixel (M,)."""
        which = np.ones(self.pixels.size, dtype=bool) if which is None else which
        return self.folds.units.independent(np.flatnonzero(self._held)[which], classes[which], count)

    @cached_property
    def truth(self) -> Integers:
        """(M,) class indices."""
        return self.folds.units.class_of[self._held]

    @property
    def _held(self) -> npt.NDArray[np.bool_]:
        return self.folds.fold >= 0

    @cached_property
    def unit_of_pixel(self) -> Integers:
        """(rows * columns,) unit of each labelled pixel, -1 elsewhere."""
        units = np.full(self.labels.array.size, -1, dtype=np.int64)
        units[self.folds.units.pixels] = self.folds.units.unit
        return units

    def fit_fold(self, spec: TrainingSpec, k: int) -> FittedModel:
        """A model that has not seen the units of fold ``k``; their pixels count as unlabelled ground."""
        job = spec.job(self.scene, self.labels, self.folds.split(k, spec.patch_side), self.unit_of_pixel)
        return fit_model(job, cache=self.cache)

    def score(self, model: TrainedModel, k: int) -> RawScores:
        """Raw scores of the pixels of fold ``k``, in ascending order."""
        return pixel_scores(model, self.scene, self.pixels[self.fold == k])


@dataclass(eq=False)
class OutOfFold:
    """The out-of-fold scores of one candidate; folds are filled one after the other."""

    problem: FoldProblem
    raw: RawScores  # (M, n); NaN: the pixel's fold has not been run
    done: int = 0  # folds that were run, the first ones
    seconds: float = 0.0

    @classmethod
    def empty(cls, problem: FoldProblem) -> OutOfFold:
        classes = len(problem.labels.legend)
        return cls(problem, np.full((problem.pixels.size, classes), np.nan, dtype=np.float32))

    @property
    def is_complete(self) -> bool:
        return self.done == self.problem.folds.count

    def add(self, scores: RawScores, seconds: float) -> None:
        """Add the scores of the next fold."""
        self.raw[self.problem.fold == self.done] = scores
        self.done += 1
        self.seconds += seconds

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """(M,) pixels whose fold was run."""
        return self.problem.fold < self.done

    @property
    def correct(self) -> int:
        """Number of known pixels whose class is right."""
        known = self.known
        return int((self.raw[known].argmax(axis=1) == self.problem.truth[known]).sum())

    @property
    def oa(self) -> float:
        """The same as a share of the known pixels, in percent."""
        return 100.0 * self.correct / int(self.known.sum())

    def oa_interval(self) -> tuple[float, float]:
        """95 % interval of the share of known pixels whose class is right, in percent."""
        known, classes = self.known, self.raw.shape[1]
        truth = self.problem.truth
        confusion = confusion_counts(truth[known], self.raw[known].argmax(axis=1), classes)
        interval = score_intervals(confusion, self.problem.samples(truth, classes, known)).oa
        return interval.low, interval.high

    def first_folds(self, count: int) -> OutOfFold:
        """The same predictions as if only the first ``count`` folds had been run."""
        raw = np.where((self.problem.fold < count)[:, None], self.raw, np.float32(np.nan))
        return OutOfFold(self.problem, raw, min(count, self.done), self.seconds)

    def probabilities(self) -> npt.NDArray[np.float32]:
        """(K, n) of the known pixels, calibrated without the pixel's own fold where two folds were run."""
        known = self.known
        return cross_calibrate(self.raw[known], self.problem.truth[known], self.problem.fold[known])


def run_fold(
    problem: FoldProblem,
    spec: TrainingSpec,
    into: OutOfFold,
    first_into: OutOfFold | None = None,
) -> None:
    """Train and score the next fold of one method; ``first_into`` gets the scores of the first of two stages."""
    started = time.perf_counter()
    k = into.done
    fitted = problem.fit_fold(spec, k)
    if fitted.history.interrupted:
        raise Interrupted("stopped while methods were compared: there is no model to keep")
    into.add(problem.score(fitted.model, k), time.perf_counter() - started)
    if first_into is not None:
        first_into.add(problem.score(fitted.first or fitted.model, k), 0.0)


def cross_fit(problem: FoldProblem, spec: TrainingSpec, on_fold: Callable[[int, int], None] | None = None) -> OutOfFold:
    """Out-of-fold scores of all folds by one method; ``on_fold`` is called with each fold, from 0, and their number."""
    result = OutOfFold.empty(problem)
    while not result.is_complete:
        if on_fold is not None:
            on_fold(result.done, problem.folds.count)
        run_fold(problem, spec, result)
    return result
