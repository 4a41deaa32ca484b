"""Scene, Labels and Legend: the nouns that all other rooms talk about. No file formats, no torch."""

from __future__ import annotations

import colorsys
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import DataWarning, LabelsError, SceneError

Rgb = tuple[int, int, int]
# Coefficients (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f; rotated grids included.
Affine = tuple[float, float, float, float, float, float]

_LOOKS = 16  # places that stand for a whole scene, and the side of each
_LOOK = 8

MAX_LABEL = np.iinfo(np.int16).max


class Window(NamedTuple):
    """A rectangle of a scene: rows r0 to r1 and columns c0 to c1, ends excluded."""

    r0: int
    r1: int
    c0: int
    c1: int

    @property
    def rows(self) -> slice:
        return slice(self.r0, self.r1)

    @property
    def cols(self) -> slice:
        return slice(self.c0, self.c1)


def tile_windows(within: Window, size: int) -> Iterator[Window]:
    """Cover ``within`` by squares of ``size``, clipped at its far edges, row by row."""
    for r in range(within.r0, within.r1, size):
        for c in range(within.c0, within.c1, size):
            yield Window(r, min(r + size, within.r1), c, min(c + size, within.c1))


class Pixels(NamedTuple):
    """What a scene gives for a window."""

    values: npt.NDArray[np.float32]  # (h, w, bands), physical units; undefined where not valid
    valid: npt.NDArray[np.bool_]  # (h, w)


PixelReader = Callable[[slice, slice], Pixels]


@dataclass(frozen=True, eq=False)
class Lookup:
    """Where each pixel of a grid on the ground comes from in a scene that lies as its sensor flew.

    Such a scene is classified in its own rows and columns; its map is then put on the ground through this table.
    """

    rows: npt.NDArray[np.int32]  # (rows, columns on the ground): row in the scene, from 0; -1 where nothing was seen
    cols: npt.NDArray[np.int32]  # the same for columns
    crs: str
    transform: Affine

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.rows.shape[1]


@dataclass(frozen=True)
class Scene:
    """A hyperspectral cube that need not be in memory: all access goes through :meth:`read`.

    ``reader`` gets two slices with plain bounds inside the scene and returns :class:`Pixels`.

    ``good_bands`` has one flag for each band of ``reader``, ``wavelengths`` and ``fwhm``; None: all are good. It is
    used once, here: the scene then reads, counts and describes its good bands only, so that training, mapping and
    resampling see the same list of bands. What ``reader`` calls invalid because of a bad band stays invalid, unless the
    scene is made by :meth:`from_array`, which tests good bands only.
    """

    shape: tuple[int, int, int]  # rows, columns, bands
    dtype: np.dtype[Any]
    reader: PixelReader
    name: str = "scene"
    wavelengths: npt.NDArray[np.float64] | None = None  # (bands,) in nm
    fwhm: npt.NDArray[np.float64] | None = None  # (bands,) in nm: how wide each band is at half of its height
    good_bands: InitVar[npt.ArrayLike | None] = None  # (bands,)
    crs: str | None = None  # WKT or an authority code
    transform: Affine | None = None
    lookup: Lookup | None = None  # then the scene itself has neither crs nor transform
    block: tuple[int, int] | None = None  # rows and columns that the file keeps in one piece; None: single rows

    def __post_init__(self, good_bands: npt.ArrayLike | None) -> None:
        rows, cols, bands = self.shape
        if min(rows, cols, bands) < 1:
            raise SceneError(f"scene {self.name!r} has shape {self.shape}: every side must be at least 1")
        flags = None if good_bands is None else np.asarray(good_bands, dtype=bool).ravel()  # MATLAB's are 1 x n
        of_bands = {"wavelengths": self.wavelengths, "band widths": self.fwhm, "good-band flags": flags}
        for what, values in of_bands.items():
            if values is not None and len(values) != bands:
                raise SceneError(
                    f"scene {self.name!r} has {bands} bands but {len(values)} {what}: give one for each band"
                )
        if flags is not None and not flags.all():
            self._keep(np.flatnonzero(flags))

    def _keep(self, bands: npt.NDArray[np.intp]) -> None:
        """Leave out all other bands; only while the scene is made."""
        if bands.size == 0:
            raise SceneError(
                f"all {self.bands} bands of scene {self.name!r} are marked bad: at least one good band is expected"
            )
        kept: dict[str, Any] = {
            "shape": (self.rows, self.cols, bands.size),
            "reader": _reader_of_bands(self.reader, bands),
            "wavelengths": None if self.wavelengths is None else np.asarray(self.wavelengths)[bands],
            "fwhm": None if self.fwhm is None else np.asarray(self.fwhm)[bands],
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)  # a frozen dataclass has no other way

    @classmethod
    def from_array(
        cls,
        cube: Any,
        *,
        name: str = "array",
        wavelengths: npt.ArrayLike | None = None,
        nodata: float | None = None,
        good_bands: npt.ArrayLike | None = None,
    ) -> Scene:
        """A scene over an array (rows, columns, bands).

        Arrays that slice from disk (memory-mapped, HDF5, Zarr) stay there and are read by window. A pixel is
        invalid where any band is NaN, infinite, masked, or equal to ``nodata``.

        ``good_bands``: one flag for each band of the array, 0 or False for those to leave out, as ENVI's ``bbl``; the
        scene has the other bands only. ``wavelengths`` are those of all bands.
        """
        array = cube if isinstance(getattr(cube, "dtype", None), np.dtype) else np.asarray(cube)
        if array.ndim != 3:
            raise SceneError(
                f"a scene is a 3-D array (rows, columns, bands), but {name!r} is {array.ndim}-D with shape "
                f"{array.shape}: give the hyperspectral cube itself"
            )
        if array.dtype.kind not in "iuf":
            raise SceneError(
                f"scene {name!r} holds {array.dtype} values: a cube of integers or real numbers is expected"
            )
        waves = None if wavelengths is None else np.asarray(wavelengths, dtype=np.float64)
        scene = cls(
            tuple(array.shape),
            np.dtype(array.dtype),
            array_reader(array, nodata),
            name=name,
            wavelengths=waves,
            good_bands=good_bands,
        )
        if scene.bands == array.shape[2]:
            return scene
        bands = np.flatnonzero(np.asarray(good_bands, dtype=bool))
        return replace(scene, reader=array_reader(array, nodata, bands))  # bad bands make no pixel invalid

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def cols(self) -> int:
        return self.shape[1]

    @property
    def bands(self) -> int:
        return self.shape[2]

    @property
    def whole(self) -> Window:
        return Window(0, self.rows, 0, self.cols)

    def read(self, rows: slice = slice(None), cols: slice = slice(None)) -> Pixels:
        """Values (h, w, bands) as float32 in physical units, and their validity (h, w)."""
        r0, r1, step_r = rows.indices(self.rows)
        c0, c1, step_c = cols.indices(self.cols)
        if step_r != 1 or step_c != 1:
            raise SceneError("scenes are read in whole windows: slices with a step are not supported")
        return self.reader(slice(r0, r1), slice(c0, c1))

    def look(self) -> str:
        """A fingerprint of shape, wavelengths and some pixels, to tell two scenes apart: quick for any size."""
        sha = hashlib.sha256(repr(self.shape).encode())
        if self.wavelengths is not None:
            sha.update(np.asarray(self.wavelengths, dtype="<f8").tobytes())
        last_row, last_col = max(0, self.rows - _LOOK), max(0, self.cols - _LOOK)
        for part in range(_LOOKS + 1):  # evenly down the rows, and across in leaps
            r, c = last_row * part // _LOOKS, last_col * (part * 7 % (_LOOKS + 1)) // _LOOKS
            pixels = self.read(slice(r, r + _LOOK), slice(c, c + _LOOK))
            sha.update(np.packbits(pixels.valid).tobytes())
            sha.update(np.where(pixels.valid[:, :, None], pixels.values, 0).astype("<f4").tobytes())
        return sha.hexdigest()

    def digest(self) -> str:
        """A fingerprint of all values, to tell whether two scenes are the same; one pass, strip by strip."""
        sha = hashlib.sha256(repr(self.shape).encode())
        strip = max(1, (1 << 23) // (self.cols * self.bands))  # 32 MB of float32
        for r0 in range(0, self.rows, strip):
            pixels = self.read(slice(r0, r0 + strip))
            sha.update(pixels.values.tobytes())
            sha.update(pixels.valid.tobytes())
        return sha.hexdigest()


def _reader_of_bands(reader: PixelReader, bands: npt.NDArray[np.intp]) -> PixelReader:
    """Read some bands of what ``reader`` gives; its validity stays."""

    def read(rows: slice, cols: slice) -> Pixels:
        values, valid = reader(rows, cols)
        return Pixels(np.take(values, bands, axis=2), valid)

    return read


def array_reader(array: Any, nodata: float | None = None, bands: npt.NDArray[np.intp] | None = None) -> PixelReader:
    """Read windows of anything that slices like a (rows, columns, bands) array; all bands, or some of them."""

    def read(rows: slice, cols: slice) -> Pixels:
        taken = array[rows, cols]  # (h, w, bands)
        if bands is not None:
            taken = taken[:, :, bands]
        raw = np.asarray(taken)
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf: invalid below
            values = np.ascontiguousarray(raw, dtype=np.float32)
        if raw.dtype.kind == "f":
            valid = np.asarray(np.isfinite(values).all(axis=2))
        else:  # whole numbers are always finite
            valid = np.ones(values.shape[:2], dtype=bool)
        if isinstance(taken, np.ma.MaskedArray):
            valid &= ~np.ma.getmaskarray(taken).any(axis=2)
        if nodata is not None:  # tested on the stored numbers, before any conversion
            valid &= ~(raw == nodata).any(axis=2)
        return Pixels(values, valid)

    return read


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
        """These labels without those on invalid pixels of the scene; only windows with labels are read."""
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
            stacklevel=2,
        )
        groups = None if self.groups is None else np.where(kept > 0, self.groups, np.int32(0))
        return Labels.from_array(kept, self.legend, name=self.name, groups=groups)

    def digest(self) -> str:
        """A fingerprint, to tell whether two label rasters are the same."""
        return hashlib.sha256(repr(self.shape).encode() + self.array.astype("<i2").tobytes()).hexdigest()
