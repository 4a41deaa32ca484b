"""Scene: a hyperspectral cube that is read by window. No file formats, no torch."""

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

_SAMPLES = 16  # windows that a fingerprint is made of (and one more), and their side in pixels
_SAMPLE_SIDE = 8


class Pixels(NamedTuple):
    """The pixels of a window of a scene."""

    values: npt.NDArray[np.float32]  # (h, w, bands), physical units; undefined where not valid
    valid: npt.NDArray[np.bool_]  # (h, w)


PixelReader = Callable[[slice, slice], Pixels]


class MapGrid(NamedTuple):
    """Size and georeference of a raster."""

    shape: tuple[int, int]  # rows, columns
    crs: str | None = None
    transform: Affine | None = None


@dataclass(frozen=True, eq=False)
class Lookup:
    """Geometry lookup table (GLT): the pixel of a swath scene for each pixel of a map-projected grid.

    A swath scene, in sensor geometry, is classified in its own rows and columns; its map is then projected by this
    table.
    """

    rows: npt.NDArray[np.int32]  # (rows, columns of the grid): row in the scene, from 0; -1 where there is no data
    cols: npt.NDArray[np.int32]  # the same for columns
    crs: str
    transform: Affine

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.rows.shape[1]


@dataclass(frozen=True)
class Scene:
    """A hyperspectral cube that need not be in memory: pixels are read by window with :meth:`read`. Immutable.

    Parameters
    ----------
    shape : rows, columns and bands
    dtype : type of the stored values
    reader : function of two slices (rows, columns; inside the scene, step 1) that returns :class:`Pixels`
    name : for messages
    wavelengths : (bands,) centre wavelengths in nm
    fwhm : (bands,) full width at half maximum of each band in nm
    good_bands : (bands,) flags of the bands of ``reader``, ``wavelengths`` and ``fwhm``; None: all are good. The scene
        has only the good bands. Pixels that ``reader`` calls invalid because of a bad band stay invalid, unless the
        scene is made by :meth:`from_array`, which tests good bands only.
    crs : coordinate reference system, as WKT or an authority code such as "EPSG:32633"
    transform : (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f, in units of ``crs``
    lookup : projection of a swath scene, which itself has neither ``crs`` nor ``transform``
    block : rows and columns of the file's blocks; None: it is stored row by row
    tiles : where the files of a mosaic lie in the scene; empty: it is one file

    See also
    --------
    Scene.from_array : a scene over an array
    open_scene : a scene from a file
    """

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    reader: PixelReader
    name: str = "scene"
    wavelengths: npt.NDArray[np.float64] | None = None
    fwhm: npt.NDArray[np.float64] | None = None
    good_bands: InitVar[npt.ArrayLike | None] = None
    crs: str | None = None
    transform: Affine | None = None
    lookup: Lookup | None = None
    block: tuple[int, int] | None = None
    tiles: tuple[Window, ...] = ()

    def __post_init__(self, good_bands: npt.ArrayLike | None) -> None:
        rows, cols, bands = self.shape
        if min(rows, cols, bands) < 1:
            raise SceneError(f"scene {self.name!r} has shape {self.shape}: every side must be at least 1")
        flags = None if good_bands is None else np.asarray(good_bands, dtype=bool).ravel()  # MATLAB's are 1 x n
        per_band = {"wavelengths": self.wavelengths, "band widths": self.fwhm, "good-band flags": flags}
        for name, values in per_band.items():
            if values is not None and len(values) != bands:
                raise SceneError(
                    f"scene {self.name!r} has {bands} bands but {len(values)} {name}: give one for each band"
                )
        if flags is not None and not flags.all():
            self._keep_bands(np.flatnonzero(flags))

    def _keep_bands(self, bands: npt.NDArray[np.intp]) -> None:
        """Remove all other bands; only during construction."""
        if bands.size == 0:
            raise SceneError(
                f"all {self.bands} bands of scene {self.name!r} are marked bad: at least one good band is expected"
            )
        object.__setattr__(self, "shape", (self.rows, self.cols, bands.size))  # the class is frozen
        object.__setattr__(self, "reader", _select_bands(self.reader, bands))
        for name in ("wavelengths", "fwhm"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name))[bands])

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
        """Make a scene of an array.

        A pixel is invalid where any good band is NaN, infinite, masked, or equal to ``nodata``.

        Parameters
        ----------
        cube : (rows, columns, bands) integers or real numbers. Arrays that slice from disk (memory-mapped, HDF5, Zarr)
            stay there and are read by window
        name : for messages
        wavelengths : (bands,) centre wavelengths in nm of all bands of ``cube``
        nodata : stored value that marks missing data
        good_bands : (bands,) one flag for each band of ``cube``, 0 or False for bands to leave out, as ENVI's ``bbl``
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
        scene = cls(
            tuple(array.shape),
            np.dtype(array.dtype),
            array_reader(array, nodata),
            name=name,
            wavelengths=None if wavelengths is None else np.asarray(wavelengths, dtype=np.float64),
            good_bands=good_bands,
        )
        if scene.bands == array.shape[2]:
            return scene
        bands = np.flatnonzero(np.asarray(good_bands, dtype=bool))
        return replace(scene, reader=array_reader(array, nodata, bands))  # bad bands make no pixel invalid

    @classmethod
    def from_xarray(cls, data: Any, *, name: str | None = None, wavelengths: npt.ArrayLike | None = None) -> Scene:
        """A scene over an xarray DataArray with named dimensions, or a Dataset with one such variable.

        Rows, columns and bands are recognised by the names of the dimensions (``y``, ``x``, ``wavelength`` and the
        like, in any order); wavelengths, band widths, good bands, coordinate system and grid come from coordinates and
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

    @property
    def map_grid(self) -> MapGrid:
        """The grid of the scene's maps: its own or, for a swath, that of the lookup table."""
        grid = self if self.lookup is None else self.lookup
        return MapGrid((grid.shape[0], grid.shape[1]), grid.crs, grid.transform)

    def read(self, rows: slice = slice(None), cols: slice = slice(None)) -> Pixels:
        """Read a window.

        Parameters
        ----------
        rows, cols : slices without a step; the default is the whole scene

        Returns
        -------
        values (h, w, bands) as float32 in physical units, undefined where invalid, and validity (h, w)
        """
        r0, r1, step_r = rows.indices(self.rows)
        c0, c1, step_c = cols.indices(self.cols)
        if step_r != 1 or step_c != 1:
            raise SceneError("scenes are read in whole windows: slices with a step are not supported")
        return self.reader(slice(r0, r1), slice(c0, c1))

    def fingerprint(self) -> str:
        """SHA-256 of shape, wavelengths and some windows: fast for any size."""
        sha = hashlib.sha256(repr(self.shape).encode())
        if self.wavelengths is not None:
            sha.update(np.asarray(self.wavelengths, dtype="<f8").tobytes())
        last_row, last_col = max(0, self.rows - _SAMPLE_SIDE), max(0, self.cols - _SAMPLE_SIDE)
        for part in range(_SAMPLES + 1):  # evenly spaced rows, columns in steps of 7 parts
            r, c = last_row * part // _SAMPLES, last_col * (part * 7 % (_SAMPLES + 1)) // _SAMPLES
            pixels = self.read(slice(r, r + _SAMPLE_SIDE), slice(c, c + _SAMPLE_SIDE))
            sha.update(np.packbits(pixels.valid).tobytes())
            sha.update(np.where(pixels.valid[:, :, None], pixels.values, 0).astype("<f4").tobytes())
        return sha.hexdigest()

    def digest(self) -> str:
        """SHA-256 of all values and their validity, read in strips."""
        sha = hashlib.sha256(repr(self.shape).encode())
        strip = max(1, (1 << 23) // (self.cols * self.bands))  # 32 MB of float32
        for r0 in range(0, self.rows, strip):
            pixels = self.read(slice(r0, r0 + strip))
            sha.update(pixels.values.tobytes())
            sha.update(pixels.valid.tobytes())
        return sha.hexdigest()


def _select_bands(reader: PixelReader, bands: npt.NDArray[np.intp]) -> PixelReader:
    """A reader of some of the bands of ``reader``, with the same validity."""

    def read(rows: slice, cols: slice) -> Pixels:
        values, valid = reader(rows, cols)
        return Pixels(np.take(values, bands, axis=2), valid)

    return read


def array_reader(array: Any, nodata: float | None = None, bands: npt.NDArray[np.intp] | None = None) -> PixelReader:
    """A reader of anything that slices like a (rows, columns, bands) array; of all bands, or of ``bands``."""

    def read(rows: slice, cols: slice) -> Pixels:
        window = array[rows, cols]  # (h, w, bands)
        if bands is not None:
            window = window[:, :, bands]
        raw = np.asarray(window)
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf: invalid below
            values = np.ascontiguousarray(raw, dtype=np.float32)
        if raw.dtype.kind == "f":
            valid = np.asarray(np.isfinite(values).all(axis=2))
        else:  # integers are always finite
            valid = np.ones(values.shape[:2], dtype=bool)
        if isinstance(window, np.ma.MaskedArray):
            valid &= ~np.ma.getmaskarray(window).any(axis=2)
        if nodata is not None:  # compared with the stored values, before any conversion
            valid &= ~(raw == nodata).any(axis=2)
        return Pixels(values, valid)

    return read
