"""Scene: a hyperspectral cube that is read by window. No file formats, no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hypercaps.data.absurd import FACTOR, AbsurdPixels, find_absurd, largest_plausible
from hypercaps.data.display import Displayed
from hypercaps.data.grid import Affine, Lookup, MapGrid
from hypercaps.data.pixels import ArrayReader, PixelReader, Pixels, SelectsBands, read_by_block, select_bands
from hypercaps.data.text import printable
from hypercaps.data.window import Window, sample_windows, strips
from hypercaps.errors import SceneError


@dataclass(frozen=True)
class Scene(Displayed):
    """A hyperspectral cube that need not be in memory: pixels are read by window with :meth:`read`. Immutable.

    Parameters
    ----------
    shape : (int, int, int)
        Rows, columns and bands.
    dtype : dtype
        Type of the stored values.
    reader : callable
        Function of two slices (rows, columns; inside the scene, step 1) that returns ``Pixels``.
    name : str
        For messages.
    wavelengths : (bands,) array, optional
        Centre wavelengths in nm.
    fwhm : (bands,) array, optional
        Full width at half maximum of each band in nm.
    good_bands : (bands,) array of bool, optional
        Flags of the bands of ``reader``, ``wavelengths`` and ``fwhm``; None: all are good. The scene has only the good
        bands. Pixels that ``reader`` calls invalid because of a bad band stay invalid, unless the scene is made by
        :meth:`from_array`, which tests good bands only.
    crs : str, optional
        Coordinate reference system, as WKT or an authority code such as "EPSG:32633".
    transform : tuple of 6 float, optional
        (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f, in units of ``crs``.
    lookup : Lookup, optional
        Projection of a swath scene, which itself has neither ``crs`` nor ``transform``.
    block : (int, int), optional
        Rows and columns of the file's blocks; None: it is stored row by row.
    tiles : tuple of Window
        Where the files of a mosaic lie in the scene; empty: it is one file.
    absurd : AbsurdPixels
        Pixels with absurd values that were found in reading; a scene made of another shares it.

    See Also
    --------
    Scene.from_array : A scene over an array.
    open_scene : A scene from a file.

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Scene
    >>> scene = Scene.from_array(np.zeros((4, 5, 3)), wavelengths=[450, 550, 650])
    >>> scene.rows, scene.cols, scene.bands
    (4, 5, 3)
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
    absurd: AbsurdPixels = field(default_factory=AbsurdPixels, repr=False, compare=False)

    def __repr__(self) -> str:
        waves = self.wavelengths
        span = "" if waves is None else f", {waves.min():.0f} to {waves.max():.0f} nm"
        return f"<Scene {self.name!r}: {self.rows} x {self.cols} pixels, {self.bands} bands of {self.dtype}{span}>"

    def __post_init__(self, good_bands: npt.ArrayLike | None) -> None:
        object.__setattr__(self, "name", printable(self.name))  # often that of a file, which may be any bytes
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
        object.__setattr__(self, "reader", select_bands(self.reader, bands))
        for name in ("wavelengths", "fwhm"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name))[bands])

    @classmethod
    def from_array(
        cls,
        cube: Any,
        *,
        name: str | None = None,
        wavelengths: npt.ArrayLike | None = None,
        nodata: float | None = None,
        good_bands: npt.ArrayLike | None = None,
        crs: Any = None,
        transform: Sequence[float] | None = None,
    ) -> Scene:
        """Make a scene of an array.

        A pixel is invalid where any good band is NaN, infinite, masked, or equal to ``nodata``.

        Parameters
        ----------
        cube : (rows, columns, bands) array
            Integers or real numbers. Arrays that slice from disk (memory-mapped, HDF5, Zarr) stay there and are read by
            window. Of an xarray DataArray, rows, columns and bands are found by the names of its dimensions, as by
            :meth:`from_xarray`.
        name : str, optional
            For messages; default: the name of a DataArray, or "array".
        wavelengths : (bands,) array, optional
            Centre wavelengths in nm of all bands of ``cube``.
        nodata : float, optional
            Stored value that marks missing data.
        good_bands : (bands,) array of bool, optional
            One flag for each band of ``cube``, 0 or False for bands to leave out, as ENVI's ``bbl``.
        crs : str or CRS of rasterio or pyproj, optional
            Coordinate reference system, as WKT or such as "EPSG:32633", so that maps of the scene have it.
        transform : sequence of float or Affine, optional
            (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f, in units of ``crs``, as rasterio has it.

        Returns
        -------
        Scene

        Examples
        --------
        >>> import numpy as np
        >>> from hypercaps import Scene
        >>> cube = np.ones((4, 5, 3))
        >>> cube[0, 0, 1] = -9999
        >>> int(Scene.from_array(cube, nodata=-9999).read().valid.sum())
        19
        """
        if crs is not None or transform is not None:
            from hypercaps.io.readers.georeference import given_georeference

            plain = cls.from_array(cube, name=name, wavelengths=wavelengths, nodata=nodata, good_bands=good_bands)
            crs, affine = given_georeference(crs, transform)
            return replace(plain, crs=plain.crs if crs is None else crs, transform=affine or plain.transform)
        if hasattr(cube, "dims") and hasattr(cube, "coords"):
            return cls.from_xarray(cube, name=name, wavelengths=wavelengths, nodata=nodata, good_bands=good_bands)
        name = "array" if name is None else name
        array = cube if isinstance(getattr(cube, "dtype", None), np.dtype) else np.asarray(cube)
        _check_cube(array, name)
        scene = cls(
            tuple(array.shape),
            np.dtype(array.dtype),
            ArrayReader(array, nodata),
            name=name,
            wavelengths=None if wavelengths is None else np.asarray(wavelengths, dtype=np.float64),
            good_bands=good_bands,
        )
        if scene.bands == array.shape[2]:
            return scene
        bands = np.flatnonzero(np.asarray(good_bands, dtype=bool))
        return replace(scene, reader=ArrayReader(array, nodata, bands))  # bad bands make no pixel invalid

    @classmethod
    def from_xarray(
        cls,
        data: Any,
        *,
        name: str | None = None,
        wavelengths: npt.ArrayLike | None = None,
        nodata: float | None = None,
        good_bands: npt.ArrayLike | None = None,
    ) -> Scene:
        """A scene over an xarray DataArray with named dimensions, or a Dataset with one such variable.

        Rows, columns and bands are recognised by the names of the dimensions (``y``, ``x``, ``wavelength`` and the
        like, in any order); wavelengths, band widths, good bands, coordinate system and grid come from coordinates and
        attributes by the CF conventions, as for NetCDF and Zarr files. Lazy data is read by window: it must be readable
        from several threads, and its file must stay open. Pixels with NaN or a missing value in any band are invalid.

        Parameters
        ----------
        data : DataArray or Dataset
            The cube; a Dataset has one variable with three dimensions.
        name : str, optional
            For messages; default: that of the data.
        wavelengths : (bands,) array, optional
            One for each band, in nm or micrometres, if the data has none.
        nodata, good_bands : optional
            Replace what the data says itself, and are as with :meth:`from_array`.

        Returns
        -------
        Scene

        Examples
        --------
        >>> import numpy as np
        >>> from hypercaps import Scene
        >>> import xarray
        >>> data = xarray.DataArray(np.zeros((3, 4, 5)), dims=("wavelength", "y", "x"))
        >>> Scene.from_xarray(data).shape
        (4, 5, 3)
        """
        from hypercaps.io.readers.xarray import scene_from_xarray

        return scene_from_xarray(data, name, wavelengths, nodata, good_bands)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def cols(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def bands(self) -> int:
        """Number of bands."""
        return self.shape[2]

    @property
    def whole(self) -> Window:
        """The window of all pixels."""
        return Window(0, self.rows, 0, self.cols)

    @property
    def map_grid(self) -> MapGrid:
        """The grid of the scene's maps: its own or, for a swath, that of the lookup table."""
        grid = self if self.lookup is None else self.lookup
        return MapGrid((grid.shape[0], grid.shape[1]), grid.crs, grid.transform)

    def __getitem__(self, key: object) -> NoReturn:
        """Refused, because scenes need not be in memory."""
        raise SceneError(
            "a Scene can't be indexed: read(rows, cols) reads a window of it; for scikit-learn's cross-validation and "
            "searches, which index their data, take hypercaps.sklearn.PixelClassifier"
        )

    def read(self, rows: slice = slice(None), cols: slice = slice(None)) -> Pixels:
        """Read a window.

        Parameters
        ----------
        rows, cols : slice
            Without a step; the default is the whole scene.

        Returns
        -------
        Pixels
            ``values`` (h, w, bands) as float32 in physical units, undefined where invalid, and ``valid`` (h, w).

        Examples
        --------
        >>> import numpy as np
        >>> from hypercaps import Scene
        >>> scene = Scene.from_array(np.arange(60.0).reshape(4, 5, 3))
        >>> values, valid = scene.read(slice(0, 2), slice(3, 5))
        >>> values.shape, valid.shape
        ((2, 2, 3), (2, 2))
        """
        r0, r1, step_r = rows.indices(self.rows)
        c0, c1, step_c = cols.indices(self.cols)
        if step_r != 1 or step_c != 1:
            raise SceneError("scenes are read in whole windows: slices with a step are not supported")
        return self._without_absurd(self.reader(slice(r0, r1), slice(c0, c1)), r0, c0)

    def _without_absurd(self, pixels: Pixels, r0: int, c0: int) -> Pixels:
        """The pixels of the window that begins at (r0, c0); those with absurd values are invalid."""
        beyond = find_absurd(pixels.values, pixels.valid, FACTOR)  # no scene's limit is lower
        if beyond is not None:
            beyond = find_absurd(pixels.values, pixels.valid, self._limit)
        if beyond is None:
            return pixels
        self.absurd.add(pixels.values, beyond, r0, c0)
        return Pixels(pixels.values, pixels.valid & ~beyond)

    def read_windows(self, windows: Sequence[Window]) -> list[Pixels]:
        """Several small windows, as :meth:`read` returns each; a block of a tiled file is decoded once for all of them.

        Parameters
        ----------
        windows : sequence of Window
            Inside the scene, in any order.
        """
        found = self._read_stored(windows)
        return [self._without_absurd(pixels, at.r0, at.c0) for pixels, at in zip(found, windows, strict=True)]

    def _read_stored(self, windows: Sequence[Window]) -> list[Pixels]:
        """Several small windows without regard to absurd values; a block of a tiled file is decoded once."""
        if self.block is None:
            return [self.reader(at.rows, at.cols) for at in windows]
        return read_by_block(self.reader, windows, self.block, self.bands)

    def read_bands(self, bands: Sequence[int], rows: slice, cols: slice) -> Pixels:
        """Some bands of a window, valid where these have data: for pictures, since other bands need not be read.

        Parameters
        ----------
        bands : positions of the bands, from 0
        rows, cols : slices inside the scene, without a step

        Returns
        -------
        values (h, w, len(bands)) as float32 in physical units, undefined where invalid, and validity (h, w)
        """
        chosen = np.asarray(bands, dtype=np.intp)
        if isinstance(self.reader, SelectsBands):
            pixels = self.reader.select(chosen)(rows, cols)
        else:
            pixels = self.read(rows, cols)
            pixels = Pixels(pixels.values[:, :, chosen], pixels.valid)
        beyond = find_absurd(pixels.values, pixels.valid, FACTOR)
        if beyond is not None:
            beyond = find_absurd(pixels.values, pixels.valid, self._limit)
        return pixels if beyond is None else Pixels(pixels.values, pixels.valid & ~beyond)

    @cached_property
    def _limit(self) -> float:
        """Largest magnitude of a plausible value."""
        return largest_plausible(self._samples())

    def _samples(self) -> Iterator[Pixels]:
        """The windows of the fingerprint and then the whole scene, without regard to absurd values."""
        yield from self._read_stored(sample_windows(self.rows, self.cols))
        for window in strips(*self.shape):
            yield self.reader(window.rows, window.cols)

    def why_invalid(self) -> str:
        """What an invalid pixel may hold, for messages, with the absurd values that were found."""
        return f"NaN, infinity, nodata or absurd values{self.absurd.in_words()}"

    def fingerprint(self) -> str:
        """SHA-256 of shape, wavelengths and some windows: fast for any size."""
        sha = hashlib.sha256(repr(self.shape).encode())
        if self.wavelengths is not None:
            sha.update(np.asarray(self.wavelengths, dtype="<f8").tobytes())
        for pixels in self.read_windows(sample_windows(self.rows, self.cols)):
            sha.update(np.packbits(pixels.valid).tobytes())
            sha.update(np.where(pixels.valid[:, :, None], pixels.values, 0).astype("<f4").tobytes())
        return sha.hexdigest()

    def digest(self) -> str:
        """SHA-256 of all values and their validity, read in strips."""
        sha = hashlib.sha256(repr(self.shape).encode())
        for window in strips(*self.shape):
            pixels = self.read(window.rows, window.cols)
            sha.update(pixels.values.tobytes())
            sha.update(pixels.valid.tobytes())
        return sha.hexdigest()


def _check_cube(array: npt.NDArray[Any], name: str) -> None:
    """Refuse anything but a 3-D array of numbers."""
    if array.ndim != 3:
        raise SceneError(
            f"a scene is a 3-D array (rows, columns, bands), but {name!r} is {array.ndim}-D with shape "
            f"{array.shape}: give the hyperspectral cube itself"
        )
    if array.dtype.kind not in "iuf":
        raise SceneError(f"scene {name!r} holds {array.dtype} values: a cube of integers or real numbers is expected")
