"""Scene, Labels and Legend: the nouns that all other rooms talk about. No file formats, no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import InitVar, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.window import Window
from hypercaps.errors import SceneError

# Coefficients (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f; rotated grids included.
Affine = tuple[float, float, float, float, float, float]

_LOOKS = 16  # places that stand for a whole scene, and the side of each
_LOOK = 8


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

    @classmethod
    def from_xarray(cls, data: Any, *, name: str | None = None, wavelengths: npt.ArrayLike | None = None) -> Scene:
        """A scene over an xarray DataArray with named dimensions, or a Dataset with one such variable.

        Rows, columns and bands are told by the names of the dimensions (``y``, ``x``, ``wavelength`` and the like, in
        any order); wavelengths, band widths, good bands, coordinate system and grid come from coordinates and
        attributes by the CF conventions, as for NetCDF and Zarr files. Lazy data is read by window: it must be readable
        from several threads, and its file must stay open. Pixels with NaN or a missing value in any band are invalid.

        ``wavelengths``: one for each band, in nm or micrometres, if the data has none.

        >>> scene = Scene.from_xarray(xarray.open_dataset("scene.nc"))  # doctest: +SKIP
        """
        from hypercaps.io.readers.xarray import scene_from_xarray

        return scene_from_xarray(data, name, wavelengths)

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

    def fingerprint(self) -> str:
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
