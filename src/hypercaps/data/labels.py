"""Labels and their legend: class numbers on a scene's pixel grid, with names and colours."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.colors import Rgb, choose_colors
from hypercaps.data.display import Displayed
from hypercaps.data.scene import Scene
from hypercaps.data.text import printable
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import LabelsError, warn_data

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
    """A pixel suggested for labelling."""

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


def _cleaned(entry: LegendEntry) -> LegendEntry:
    """The entry with a name that can be shown anywhere."""
    return entry._replace(name=printable(entry.name).strip() or f"class {entry.label}")


@dataclass(frozen=True)
class Legend:
    """The classes of a map.

    Parameters
    ----------
    entries : tuple of LegendEntry
        ``label``, ``name`` and ``color`` of each class, ordered by label. Label 0 means unlabelled and is not a class.
        Control characters in names become spaces, wherever the names come from.

    See Also
    --------
    Legend.of : A legend with default colours.

    Examples
    --------
    >>> from hypercaps import Legend
    >>> legend = Legend.of([1, 2], ["water", "soil"])
    >>> [(entry.label, entry.name) for entry in legend]
    [(1, 'water'), (2, 'soil')]
    """

    entries: tuple[LegendEntry, ...]

    def __post_init__(self) -> None:
        labels = [entry.label for entry in self.entries]
        if labels != sorted(set(labels)) or (labels and labels[0] < 1):
            raise LabelsError(f"legend labels must be distinct and 1 or more, in order, but are {labels}")
        object.__setattr__(self, "entries", tuple(map(_cleaned, self.entries)))  # the class is frozen

    @classmethod
    def of(
        cls, labels: Iterable[int], names: Sequence[str] | None = None, colors: Mapping[int, Rgb] | None = None
    ) -> Legend:
        """Make a legend with default colours: by typical names such as water, and never two alike.

        Parameters
        ----------
        labels : iterable of int
            Distinct class numbers, 1 or more, in any order.
        names : sequence of str, optional
            One name per class, in ascending order of ``labels``; None for "class <label>".
        colors : mapping of int to (red, green, blue), optional
            Colours by class number, 0 to 255; classes that it lacks get default ones.

        Returns
        -------
        Legend

        Examples
        --------
        >>> from hypercaps import Legend
        >>> Legend.of([1, 3], colors={3: (255, 0, 0)}).entries[1]
        LegendEntry(label=3, name='class 3', color=(255, 0, 0))
        """
        numbers = sorted(int(label) for label in labels)
        if names is None:
            names = [f"class {label}" for label in numbers]
        if len(names) != len(numbers):
            raise LabelsError(f"{len(names)} names for {len(numbers)} classes {numbers}: give one for each")
        given = [(colors or {}).get(label) for label in numbers]
        return cls(tuple(map(LegendEntry, numbers, names, choose_colors(names, given))))

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[LegendEntry]:
        return iter(self.entries)

    @property
    def labels(self) -> npt.NDArray[np.int16]:
        """(classes,) class numbers, ascending; a position in this array is the class index of a network."""
        return np.array([entry.label for entry in self.entries], dtype=np.int16)

    def only(self, labels: Iterable[int]) -> Legend:
        """The entries of some classes, with a default entry for each that is not in this legend.

        Parameters
        ----------
        labels : iterable of int
            Class numbers.
        """
        entries = {entry.label: entry for entry in self.entries}
        numbers = sorted({int(label) for label in labels})
        names = [entries[label].name if label in entries else f"class {label}" for label in numbers]
        return Legend.of(numbers, names, {label: entry.color for label, entry in entries.items()})


def _as_legend(given: Legend | Mapping[int, str] | None) -> Legend:
    if given is None or isinstance(given, Legend):
        return given or Legend(())
    if not isinstance(given, Mapping):
        raise LabelsError(
            f"a legend or names by class number, such as {{1: 'water', 2: 'soil'}}, are expected and "
            f"{type(given).__name__} came: say which number has which name"
        )
    return Legend.of(given, [str(given[label]) for label in sorted(given)])


@dataclass(frozen=True)
class Labels(Displayed):
    """Class numbers on a scene's pixel grid. Immutable.

    Parameters
    ----------
    array : (rows, columns) int16 array
        Class numbers, 0 = unlabelled.
    legend : Legend
        The classes in ``array``.
    name : str
        For messages.
    groups : (rows, columns) int32 array, optional
        Number of the polygon of each labelled pixel, 0 = unlabelled, so that a split can keep polygons whole; None if
        polygons are not known.
    tiles : tuple of Window
        The files that the labels came from, if they are several tiles on this grid, so that folds can hold out whole
        tiles.

    See Also
    --------
    Labels.from_array : Labels from any array of whole numbers, checked.
    open_labels : Labels from files.

    Examples
    --------
    >>> from hypercaps import Labels, Legend
    >>> labels = Labels.from_array([[1, 1, 0], [2, 0, 0]], Legend.of([1, 2], ["water", "soil"]))
    >>> labels.shape, labels.counts()
    ((2, 3), {1: 2, 2: 1})
    """

    array: npt.NDArray[np.int16]
    legend: Legend
    name: str = "labels"
    groups: npt.NDArray[np.int32] | None = None
    tiles: tuple[Window, ...] = ()
    _checked: _Checked | None = field(default=None, init=False, repr=False, compare=False)  # set by where_valid

    def __repr__(self) -> str:
        rows, cols = self.shape
        labelled = int(np.count_nonzero(self.array))
        return f"<Labels {self.name!r}: {rows} x {cols} pixels, {labelled} labelled, {len(self.legend)} classes>"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_checked": None}  # a scene may not be picklable

    @classmethod
    def from_array(
        cls,
        array: npt.ArrayLike,
        legend: Legend | Mapping[int, str] | None = None,
        *,
        name: str = "labels",
        groups: npt.NDArray[np.int32] | None = None,
        tiles: tuple[Window, ...] = (),
    ) -> Labels:
        """Check an array of class numbers and make labels of it.

        Parameters
        ----------
        array : (rows, columns) array
            Whole numbers of any type: 0 = unlabelled, classes from 1 to 32767; what is masked is unlabelled. Rows and
            columns of an xarray DataArray are found by the names of its dimensions.
        legend : Legend or dict of int to str, optional
            Names and colours of classes, or their names by number; classes that it lacks get default ones. Default:
            those that the attributes of a DataArray give, as :meth:`ClassMap.to_xarray` writes them.
        name : str
            For messages.
        groups : (rows, columns) int32 array, optional
            Number of the polygon of each labelled pixel, from 1 up.
        tiles : tuple of Window
            The files that the labels came from, if they are several.

        Returns
        -------
        Labels

        Examples
        --------
        >>> from hypercaps import Labels
        >>> [entry.name for entry in Labels.from_array([[0, 1], [7, 7]]).legend]
        ['class 1', 'class 7']
        """
        if hasattr(array, "dims") and hasattr(array, "coords"):
            from hypercaps.io.readers.xarray import legend_of, map_by_names

            legend = legend_of(array) if legend is None else legend
            array = map_by_names(array)
        values = _class_numbers(np.asarray(np.ma.filled(array, 0) if np.ma.isMaskedArray(array) else array), name)
        present = np.unique(values[values > 0])
        if present.size == 0:
            raise LabelsError(
                f"labels {name!r} hold no class: every pixel is 0 (unlabelled); give class numbers from 1 up"
            )
        if groups is not None and (groups.shape != values.shape or ((groups == 0) & (values > 0)).any()):
            raise LabelsError(
                f"labels {name!r} don't go with their groups: give every labelled pixel a group, from 1 up"
            )
        return cls(values, _as_legend(legend).only(present), name, groups, tiles)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        """The class numbers, for NumPy's functions."""
        return np.asarray(self.array, dtype=dtype, copy=copy)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.array.shape[0], self.array.shape[1]

    def counts(self) -> dict[int, int]:
        """Number of labelled pixels by class number."""
        numbers = np.bincount(self.array.ravel())  # bincount of int16 keeps no copy of the raster
        return {entry.label: int(numbers[entry.label]) for entry in self.legend}

    def check_fits(self, scene: Scene) -> None:
        """Refuse labels that are not on the scene's grid.

        Parameters
        ----------
        scene : Scene
            Whose rows and columns are expected.
        """
        if self.shape != scene.shape[:2]:
            hint = "labels must be on the scene's grid"
            if self.shape == (scene.cols, scene.rows):
                hint = "they look transposed"
            elif self.shape == scene.shape[1:]:
                hint = (
                    "its bands seem to come first; rows, columns, bands is expected, as np.moveaxis(cube, 0, -1) gives"
                )
            raise LabelsError(
                f"labels {self.name!r} have {self.shape[0]} x {self.shape[1]} pixels but scene {scene.name!r} "
                f"has {scene.rows} x {scene.cols}: {hint}"
            )

    def where_valid(self, scene: Scene, *, warn: bool = True) -> Labels:
        """Labels without those on invalid pixels of the scene.

        The result is remembered: labels are checked against a scene once and the warning is issued once, also if this
        is called again, on these labels or on the result. The result keeps the ``digest`` of the labels as given.

        Parameters
        ----------
        scene : Scene
            On the grid of the labels.
        warn : bool, default True
            Whether to warn if any label is removed.
        """
        if self._checked is not None and self._checked.scene() is scene:
            return self._checked.valid or self
        valid = self._without_invalid(scene, warn)
        checked = _Checked(weakref.ref(scene), None, self.digest())
        object.__setattr__(valid, "_checked", checked)  # a frozen dataclass has no other way
        if valid is not self:
            object.__setattr__(self, "_checked", checked._replace(valid=valid))
        return valid

    def _without_invalid(self, scene: Scene, warn: bool) -> Labels:
        valid_labels = self.array.copy()
        for window in tile_windows(scene.whole, 256):
            part = valid_labels[window.rows, window.cols]
            if part.any():  # only windows with labels are read
                part[~scene.read(window.rows, window.cols).valid] = 0
        removed = int((self.array > 0).sum() - (valid_labels > 0).sum())
        if removed == 0:
            return self
        if not valid_labels.any():
            raise LabelsError(
                f"all {removed} labelled pixels of {self.name!r} are invalid in scene {scene.name!r}, which holds "
                f"{scene.why_invalid()} there: give a cube with finite values there"
            )
        if warn:
            warn_data(
                f"{removed} labelled pixels of {self.name!r} are invalid in scene {scene.name!r}, which holds "
                f"{scene.why_invalid()} there, and are left out"
            )
        return self._restricted_to(valid_labels)

    def only_pixels(self, pixels: npt.NDArray[np.int64]) -> Labels:
        """The labels of some pixels; others become unlabelled.

        Parameters
        ----------
        pixels : (N,) array of int
            Flat indices, row * columns + column.
        """
        chosen = np.zeros(self.shape, dtype=np.int16)  # not zeros_like: the order of MATLAB's arrays has no flat view
        chosen.ravel()[pixels] = self.array.ravel()[pixels]
        return self._restricted_to(chosen)

    def _restricted_to(self, kept: npt.NDArray[np.int16]) -> Labels:
        """These labels with the class numbers ``kept``, of which some have become 0."""
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


def _class_numbers(raw: npt.NDArray[Any], name: str) -> npt.NDArray[np.int16]:
    """Refuse anything but a 2-D array of class numbers."""
    if raw.ndim != 2:
        raise LabelsError(
            f"labels are a 2-D array (rows, columns) of class numbers, but {name!r} is {raw.ndim}-D with "
            f"shape {raw.shape}"
        )
    if raw.dtype.kind not in "iufb":
        raise LabelsError(f"labels {name!r} hold {raw.dtype} values: whole class numbers are expected")
    # MATLAB stores whole numbers as doubles; NaN and fractions are not labels.
    if raw.dtype.kind == "f" and not (np.isfinite(raw).all() and (raw == np.floor(raw)).all()):
        raise LabelsError(
            f"labels {name!r} hold fractions or NaN: whole class numbers are expected, and 0 where nothing is labelled"
        )
    if raw.size and (raw.min() < 0 or raw.max() > MAX_LABEL):
        raise LabelsError(
            f"labels {name!r} go from {raw.min()} to {raw.max()}: class numbers from 1 to {MAX_LABEL} are "
            "expected, and 0 where nothing is labelled"
        )
    return raw.astype(np.int16)
