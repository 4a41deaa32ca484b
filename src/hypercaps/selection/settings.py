"""Settings: the parameters of the estimator, checked, and the split, folds and trainings that follow from them.

Nothing here imports torch before a training starts: parameters are checked at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import TYPE_CHECKING

from hypercaps.data import splits
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Folds, Split, SplitRequest
from hypercaps.errors import ModelError, SplitError
from hypercaps.models.descriptions import get_description
from hypercaps.selection.candidates import NETWORK, Candidate, choose_candidates
from hypercaps.training.checks import as_int

if TYPE_CHECKING:
    from hypercaps.training.spec import TrainingSpec

AUTO = "auto"  # the method that is chosen by comparing candidates
_CHOSEN_BY_AUTO = ("recipe", "epochs", "batch_size", "patch", "structure", "whitening")
_FOR_AUTO_ONLY = ("candidates", "budget")


@dataclass(frozen=True)
class Settings:
    """The parameters of :class:`hypercaps.ConvCapsClassifier`, under their names and with their meanings."""

    train: float
    val: float
    per_class: int | None
    split_by: str
    block: int
    folds: int | None
    epochs: int | None
    batch_size: int | None
    patch: int | None
    seed: int
    method: str
    candidates: Sequence[str] | None
    budget: float | None
    recipe: str | None
    whitening: str | None
    structure: Mapping[str, object] | None
    device: str
    precision: str

    def check(self) -> None:
        """Refuse parameters that contradict each other, before any work."""
        as_int("seed", self.seed, 0)
        if self.method == AUTO:
            self._check_auto()
        else:
            self._check_method()

    def _check_method(self) -> None:
        for name in _FOR_AUTO_ONLY:
            if getattr(self, name) is not None:
                raise ModelError(f"{name} has a meaning with method auto only: leave it out, or ask for auto")
        described = get_description(self.method)
        overrides = {"epochs": self.epochs, "batch_size": self.batch_size}
        described.recipe(self.recipe).check_overrides(self.method, overrides)
        for name, number in overrides.items():
            if number is not None:
                as_int(name, number, 1)
        described.preprocessing_with(self.whitening, self.recipe)
        if not self.structure:
            described.check_patch(self._patch_side)

    def _check_auto(self) -> None:
        choose_candidates(self.candidates)
        chosen_by_user = [name for name in _CHOSEN_BY_AUTO if getattr(self, name) is not None]
        if chosen_by_user:
            raise ModelError(
                f"method auto chooses the {chosen_by_user[0].replace('_', ' ')} itself: leave it out, or name a method"
            )
        if self.budget is not None and not (isinstance(self.budget, Real) and 0 < self.budget < inf):
            raise ModelError(f"the budget is {self.budget!r}: a number of minutes above 0 is expected")

    @property
    def seconds(self) -> float | None:
        """The time limit of a comparison; None: no limit."""
        return None if self.budget is None else 60.0 * self.budget

    @property
    def spec(self) -> TrainingSpec:
        """The training of the method; of its candidates, if it is "auto", seed and device."""
        from hypercaps.compute.devices import Device
        from hypercaps.training.spec import TrainingSpec

        device, seed = Device(self.device, self.precision), as_int("seed", self.seed, 0)
        if self.method == AUTO:
            return TrainingSpec(seed=seed, device=device)
        return TrainingSpec(
            method=self.method,
            recipe=self.recipe,
            patch=self.patch,
            whitening=self.whitening,
            structure=self.structure,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            device=device,
        )

    @property
    def _patch_side(self) -> int:
        """Side of the patches, for which a split counts leakage; of the largest candidate with "auto"."""
        described = get_description(NETWORK if self.method == AUTO else self.method)
        return described.patch if self.patch is None else as_int("patch", self.patch, 1)

    def compared(self) -> tuple[Candidate, ...] | None:
        """The candidates of a comparison; None: a single method is trained."""
        return choose_candidates(self.candidates) if self.method == AUTO else None

    def draw_split(self, labels: Labels, scene: Scene | None = None) -> Split:
        """Training, validation and test pixels."""
        tiles = labels.tiles or (scene.tiles if scene else ())
        return splits.draw(labels, self.split_request(), tiles=tiles, scene=scene)

    def draw_folds(self, scene: Scene, labels: Labels, split: Split) -> Folds | None:
        """The folds of the training pixels; None: neither scores nor the choice of a method need them."""
        tiles = labels.tiles or scene.tiles
        if split.kind == "folds":
            return splits.draw_requested_folds(labels, self.split_request(), tiles=tiles, scene=scene)
        if self.method != AUTO:
            return None
        training = labels.only_pixels(split.train)
        request = SplitRequest("folds", block=self.block, seed=as_int("seed", self.seed, 0))
        try:
            return splits.draw_requested_folds(training, request, tiles=tiles, scene=scene)
        except SplitError as error:
            raise SplitError(
                "method auto compares candidates on folds of the training pixels, and these are too few units for "
                "that: name a method, such as --method lda, or label more areas of each class"
            ) from error

    def split_request(self) -> SplitRequest:
        """The split to draw; refuses shares, numbers of pixels, blocks and folds that make none."""
        return SplitRequest(
            kind=self.split_by,
            train=float(self.train),
            val=float(self.val),
            per_class=None if self.per_class is None else as_int("per_class", self.per_class, 1),
            block=self.block,
            seed=as_int("seed", self.seed, 0),
            patch=self._patch_side,
            folds=self.folds,
        )
