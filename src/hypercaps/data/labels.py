"""Labels and their legend: class numbers on a scene's pixel grid, with names and colours."""

from __future__ import annotations

import colorsys
import hashlib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import LabelsError, warn_data

Rgb = tuple[int, int, int]

MAX_LABEL = np.iinfo(np.int16).max


class LegendEntry(NamedTuple):
    """One class of a legend: its number in label rasters (1 to 32767), name and colour (red, green, blue; 0 to 255)."""

    label: int
    name: str
    color: Rgb

    @property
    def is_named(self) -> bool:
        return self.name != f"class {self.label}"


@dataclass(frozen=True)
class Suggestion:
    """A pixel that is worth a label."""

    rank: int  # from 1, the most useful first
    row: int
    col: int
    first: LegendEntry  # the predicted class
    second: LegendEntry  # the class with the second-highest score
    confidence: float  # in the first
    margin: float  # score of the first minus that of the second


@dataclass(frozen=True)
class DoubtfulLabel:
    """A labelled pixel that a model which was not trained on it assigns to another class."""

    rank: int  # from 1, the most doubtful first
    row: int
    col: int
    given: LegendEntry  # the class of the label
    predicted: LegendEntry
    doubt: float  # probability of the predicted class minus that of the given one, 0 to 1


# Twelve distinct colours; further classes get colours from the colour wheel.
_PALETTE = (
    "#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#911eb4",
    "#46f0f0", "#f032e6", "#bcf60c", "#008080", "#9a6324", "#808000",
)  # fmt: skip


def default_color(position: int) -> Rgb:
    """Default colour of the class at ``position`` (from 0)."""
    if position < len(_PALETTE):
        return parse_color(_PALETTE[position])
    turn = (position * 0.61803398875) % 1.0  # the golden angle keeps neighbours apart
    r, g, b = colorsys.hsv_to_rgb(turn, 0.55 + 0.35 * (position % 2), 0.85)
    return round(r * 255), round(g * 255), round(b * 255)


def parse_color(text: str) -> Rgb:
    """'#rrggbb' to (r, g, b)."""
    red, green, blue = bytes.fromhex(text[1:])
    return red, green, blue


@dataclass(frozen=True)
class Legend:
    """The classes of a map.

    Parameters
    ----------
    entries : one :class:`LegendEntry` per class, ordered by label. Label 0 means unlabelled and is not a class.

    See also
    --------
    Legend.of : a legend with default colours, e.g. ``Legend.of([1, 2], ["water", "soil"])``
    """

    entries: tuple[LegendEntry, ...]

    def __post_init__(self) -> None:
        labels = [entry.label for entry in self.entries]
        if labels != sorted(set(labels)) or (labels and labels[0] < 1):
            raise LabelsError(f"legend labels must be distinct and 1 or more, in order, but are {labels}")

    @classmethod
    def of(cls, labels: Iterable[int], names: Sequence[str] | None = None) -> Legend:
        """Make a legend with default colours.

        Parameters
        ----------
        labels : distinct class numbers, 1 or more, in any order
        names : one name per class, in ascending order of ``labels``; None for "class <label>"
        """
        numbers = sorted(int(label) for label in labels)
        if names is None:
            names = [f"class {label}" for label in numbers]
        if len(names) != len(numbers):
            raise LabelsError(f"{len(names)} names for {len(numbers)} classes {numbers}: give one for each")
        return cls(tuple(map(LegendEntry, numbers, names, map(default_color, range(len(numbers))))))

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[LegendEntry]:
        return iter(self.entries)

    @property
    def labels(self) -> npt.NDArray[np.int16]:
        """(classes,) class numbers, ascending; a position in this array is the class index of a network."""
        return np.array([entry.label for entry in self.entries], dtype=np.int16)

    def only(self, labels: Iterable[int]) -> Legend:
        """The entries of ``labels``, with a default entry for each label that is not in this legend."""
        entries = {entry.label: entry for entry in self.entries}
        return Legend(tuple(entries.get(entry.label, entry) for entry in Legend.of({int(label) for label in labels})))


@dataclass(frozen=True)
class Labels:
    """Class numbers on a scene's pixel grid. Immutable.

    Parameters
    ----------
    array : (rows, columns) class numbers, 0 = unlabelled
    legend : the classes in ``array``
    name : for messages
    groups : (rows, columns) number of the polygon of each labelled pixel, 0 = unlabelled, so that a split can keep
        polygons whole; None if polygons are not known
    tiles : the files that the labels came from, if they are several tiles on this grid, so that folds can hold out
        whole tiles

    See also
    --------
    Labels.from_array : labels from any array of whole numbers, checked
    """

    array: npt.NDArray[np.int16]
    legend: Legend
    name: str = "labels"
    groups: npt.NDArray[np.int32] | None = None
    tiles: tuple[Window, ...] = ()
    _checked: _Checked | None = field(default=None, init=False, repr=False, compare=False)  # set by where_valid

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_checked": None}  # a scene may not be picklable

    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        legend: Legend | None = None,
        *,
        name: str = "labels",
        groups: npt.NDArray[np.int32] | None = None,
        tiles: tuple[Window, ...] = (),
    ) -> Labels:
        """Check an array of class numbers and make labels of it.

        Parameters
        ----------
        array : (rows, columns) whole numbers of any type: 0 = unlabelled, classes from 1 to 32767
        legend : names and colours of classes; classes that it lacks get default ones
        name : for messages
        groups : (rows, columns) number of the polygon of each labelled pixel, from 1 up
        tiles : the files that the labels came from, if they are several
        """
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
        return cls(values, (legend or Legend(())).only(present), name, groups, tiles)

    @property
    def shape(self) -> tuple[int, int]:
        return self.array.shape[0], self.array.shape[1]

    def counts(self) -> dict[int, int]:
        """Number of labelled pixels by class number."""
        numbers = np.bincount(self.array.ravel())  # bincount of int16 keeps no copy of the raster
        return {entry.label: int(numbers[entry.label]) for entry in self.legend}

    def check_fits(self, scene: Scene) -> None:
        """Refuse labels that are not on the scene's grid."""
        if self.shape != scene.shape[:2]:
            transposed = self.shape == (scene.cols, scene.rows)
            hint = "they look transposed" if transposed else "labels must be on the scene's grid"
            raise LabelsError(
                f"labels {self.name!r} have {self.shape[0]} x {self.shape[1]} pixels but scene {scene.name!r} "
                f"has {scene.rows} x {scene.cols}: {hint}"
            )

    def where_valid(self, scene: Scene) -> Labels:
        """Labels without those on invalid pixels of the scene, with a warning if any are removed.

        The result is remembered: labels are checked against a scene once and the warning is issued once, also if this
        is called again, on these labels or on the result. The result keeps the ``digest`` of the labels as given.
        """
        if self._checked is not None and self._checked.scene() is scene:
            return self._checked.valid or self
        valid = self._without_invalid(scene)
        checked = _Checked(weakref.ref(scene), None, self.digest())
        object.__setattr__(valid, "_checked", checked)  # a frozen dataclass has no other way
        if valid is not self:
            object.__setattr__(self, "_checked", checked._replace(valid=valid))
        return valid

    def _without_invalid(self, scene: Scene) -> Labels:
        kept = self.array.copy()
        for window in tile_windows(scene.whole, 256):
            part = kept[window.rows, window.cols]
            if part.any():  # only windows with labels are read
                part[~scene.read(window.rows, window.cols).valid] = 0
        removed = int((self.array > 0).sum() - (kept > 0).sum())
        if removed == 0:
            return self
        if not kept.any():
            raise LabelsError(
                f"all {removed} labelled pixels of {self.name!r} are invalid in scene {scene.name!r} (NaN, infinity or "
                "nodata): give a cube with finite values there"
            )
        warn_data(
            f"{removed} labelled pixels of {self.name!r} are invalid in scene {scene.name!r} (NaN, infinity or nodata) "
            "and are left out"
        )
        groups = None if self.groups is None else np.where(kept > 0, self.groups, np.int32(0))
        return Labels.from_array(kept, self.legend, name=self.name, groups=groups, tiles=self.tiles)

    def only_pixels(self, pixels: npt.NDArray[np.int64]) -> Labels:
        """The labels of some pixels, flat indices; others become unlabelled."""
        kept = np.zeros(self.shape, dtype=np.int16)  # not zeros_like: the order of MATLAB's arrays has no flat view
        kept.ravel()[pixels] = self.array.ravel()[pixels]
        groups = None if self.groups is None else np.where(kept > 0, self.groups, np.int32(0))
        return Labels.from_array(kept, self.legend, name=self.name, groups=groups, tiles=self.tiles)

    def digest(self) -> str:
        """SHA-256 of shape and class numbers, of the labels as they were given; ``where_valid`` does not change it."""
        if self._checked is not None:
            return self._checked.digest
        return hashlib.sha256(repr(self.shape).encode() + self.array.astype("<i2").tobytes()).hexdigest()


class _Checked(NamedTuple):
    scene: weakref.ref[Scene]
    valid: Labels | None  # None: the labels themselves
    digest: str  # of the labels as they were given
