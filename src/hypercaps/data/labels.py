"""Labels and their legend: class numbers on a scene's pixel grid, with names and colours."""

from __future__ import annotations

import colorsys
import hashlib
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Scene
from hypercaps.data.window import tile_windows
from hypercaps.errors import DataWarning, LabelsError

Rgb = tuple[int, int, int]


MAX_LABEL = np.iinfo(np.int16).max


class LegendEntry(NamedTuple):
    """One class of a legend: the number in label rasters, its name and its colour."""

    label: int
    name: str
    color: Rgb

    @property
    def is_named(self) -> bool:
        """Whether somebody gave it a name."""
        return self.name != f"class {self.label}"


# Twelve colours that stay apart on a map; more classes go on around the colour wheel.
_PALETTE = (
    "#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#911eb4",
    "#46f0f0", "#f032e6", "#bcf60c", "#008080", "#9a6324", "#808000",
)  # fmt: skip


def default_color(position: int) -> Rgb:
    """The colour of the class at ``position`` (from 0) when nobody chose one."""
    if position < len(_PALETTE):
        return parse_color(_PALETTE[position])
    turn = (position * 0.61803398875) % 1.0  # the golden angle keeps neighbours apart
    r, g, b = colorsys.hsv_to_rgb(turn, 0.55 + 0.35 * (position % 2), 0.85)
    return round(r * 255), round(g * 255), round(b * 255)


def parse_color(text: str) -> Rgb:
    """'#rrggbb' to (r, g, b)."""
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


@dataclass(frozen=True)
class Legend:
    """The classes of a map, ordered by label. Label 0 always means 'no class' and is never in it."""

    entries: tuple[LegendEntry, ...]

    def __post_init__(self) -> None:
        labels = [entry.label for entry in self.entries]
        if labels != sorted(set(labels)) or (labels and labels[0] < 1):
            raise LabelsError(f"legend labels must be distinct and 1 or more, in order, but are {labels}")

    @classmethod
    def of(cls, labels: Iterable[int], names: Sequence[str] | None = None) -> Legend:
        """A legend with default colours, and default names unless they are given."""
        numbers = sorted(int(label) for label in labels)
        if names is None:
            names = [f"class {label}" for label in numbers]
        if len(names) != len(numbers):
            raise LabelsError(f"{len(names)} names for {len(numbers)} classes {numbers}: give one for each")
        return cls(
            tuple(
                LegendEntry(label, name, default_color(i))
                for i, (label, name) in enumerate(zip(numbers, names, strict=True))
            )
        )

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[LegendEntry]:
        return iter(self.entries)

    @property
    def labels(self) -> npt.NDArray[np.int16]:
        """The label of each class, ascending: position in this array = class index of a network."""
        return np.array([entry.label for entry in self.entries], dtype=np.int16)

    def only(self, labels: Iterable[int]) -> Legend:
        """The part of this legend for ``labels``; a label it does not know gets a default entry."""
        known = {entry.label: entry for entry in self.entries}
        wanted = sorted({int(label) for label in labels})
        return Legend(
            tuple(
                known.get(label, LegendEntry(label, f"class {label}", default_color(i)))
                for i, label in enumerate(wanted)
            )
        )


@dataclass(frozen=True)
class Labels:
    """Class numbers on a scene's grid: (rows, columns) int16, 0 = unlabelled, and their legend.

    ``groups`` says which pixels belong together, such as those of one polygon: a split can keep them together.
    """

    array: npt.NDArray[np.int16]
    legend: Legend
    name: str = "labels"
    groups: npt.NDArray[np.int32] | None = None  # (rows, columns), 0 = unlabelled; None: nobody said
    # The scene that where_valid was called with, and its result (None: the same labels); set on the instance.
    _checked: ClassVar[tuple[weakref.ref[Scene], Labels | None] | None] = None

    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        legend: Legend | None = None,
        *,
        name: str = "labels",
        groups: npt.NDArray[np.int32] | None = None,
    ) -> Labels:
        """Check an array of whole numbers, 0 = unlabelled; classes come from ``legend`` or are numbered."""
        raw = np.asarray(array)
        if raw.ndim != 2:
            raise LabelsError(
                f"labels are a 2-D array (rows, columns) of class numbers, but {name!r} is {raw.ndim}-D with "
                f"shape {raw.shape}"
            )
        if raw.dtype.kind not in "iufb":
            raise LabelsError(f"labels {name!r} hold {raw.dtype} values: whole class numbers are expected")
        # MATLAB stores whole numbers as doubles; NaN and fractions are not labels.
        if raw.dtype.kind == "f" and not (np.isfinite(raw).all() and (raw == np.floor(raw)).all()):
            raise LabelsError(f"labels {name!r} hold fractions or NaN: whole class numbers are expected")
        if raw.size and (raw.min() < 0 or raw.max() > MAX_LABEL):
            raise LabelsError(
                f"labels {name!r} go from {raw.min()} to {raw.max()}: class numbers from 1 to {MAX_LABEL} are "
                "expected, and 0 where nothing is labelled"
            )
        values = raw.astype(np.int16)
        present = np.unique(values[values > 0])
        if present.size == 0:
            raise LabelsError(
                f"labels {name!r} hold no class: every pixel is 0 (unlabelled); give class numbers from 1 up"
            )
        if groups is not None and (groups.shape != values.shape or ((groups == 0) & (values > 0)).any()):
            raise LabelsError(
                f"labels {name!r} don't go with their groups: give every labelled pixel a group, from 1 up"
            )
        known = Legend(()) if legend is None else legend
        return cls(values, known.only(present), name, groups)

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    def counts(self) -> dict[int, int]:
        """Labelled pixels of each class."""
        numbers = np.bincount(self.array.ravel())  # bincount of int16 keeps no copy of the raster
        return {entry.label: int(numbers[entry.label]) for entry in self.legend}

    def check_fits(self, scene: Scene) -> None:
        """Refuse labels that are not on the scene's grid."""
        if self.shape != scene.shape[:2]:
            turned = self.shape == (scene.cols, scene.rows)
            hint = "they look transposed" if turned else "labels must be on the scene's grid"
            raise LabelsError(
                f"labels {self.name!r} have {self.shape[0]} x {self.shape[1]} pixels but scene {scene.name!r} "
                f"has {scene.rows} x {scene.cols}: {hint}"
            )

    def where_valid(self, scene: Scene) -> Labels:
        """These labels without those on invalid pixels of the scene.

        The result is remembered: the labels are checked against a scene once, and a warning is issued once.
        """
        if self._checked is not None and self._checked[0]() is scene:
            return self._checked[1] or self
        valid = self._without_invalid(scene)
        object.__setattr__(self, "_checked", (weakref.ref(scene), None if valid is self else valid))
        object.__setattr__(valid, "_checked", self._checked if valid is self else (weakref.ref(scene), None))
        return valid

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_checked"}

    def _without_invalid(self, scene: Scene) -> Labels:
        """Only windows with labels are read."""
        kept = self.array.copy()
        for window in tile_windows(scene.whole, 256):
            part = kept[window.rows, window.cols]
            if part.any():
                part[~scene.read(window.rows, window.cols).valid] = 0
        lost = int((self.array > 0).sum() - (kept > 0).sum())
        if lost == 0:
            return self
        if not kept.any():
            raise LabelsError(
                f"all {lost} labelled pixels of {self.name!r} are invalid in scene {scene.name!r} (NaN, infinity or "
                "nodata): give a cube with finite values there"
            )
        warnings.warn(
            f"{lost} labelled pixels of {self.name!r} are invalid in scene {scene.name!r} (NaN, infinity or nodata) "
            "and are left out",
            DataWarning,
            stacklevel=3,
        )
        groups = None if self.groups is None else np.where(kept > 0, self.groups, np.int32(0))
        return Labels.from_array(kept, self.legend, name=self.name, groups=groups)

    def digest(self) -> str:
        """A fingerprint, to tell whether two label rasters are the same."""
        return hashlib.sha256(repr(self.shape).encode() + self.array.astype("<i2").tobytes()).hexdigest()
