"""Several tiles of one grid as one raster; a window reads only the tiles that it touches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import Affine
from hypercaps.data.window import Window, covered_pixels
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.raster import Bands, Bools, RawWindow, StoredRaster

_SAME = 0.01  # pixels: a smaller offset from the grid comes from rounding
_SAME_NM = 0.5  # largest difference between the wavelengths of one sensor

T = TypeVar("T")


class Mosaic(NamedTuple):
    raster: StoredRaster
    label_raster: StoredRaster  # of tiles with labels: 0 is unlabelled and hides no label of another tile
    tiles: tuple[StoredRaster, ...]
    covered: float  # share of the raster's pixels that lie in a tile
    windows: tuple[Window, ...] = ()  # of each tile, in the raster; empty: there is one only

    @classmethod
    def of_one(cls, raster: StoredRaster) -> Mosaic:
        return cls(raster, raster, (raster,), 1.0)


def mosaic(tiles: list[StoredRaster]) -> Mosaic:
    """One raster of tiles on one grid, which covers all of them.

    Where tiles overlap, the first one with a valid pixel wins; pixels outside of all tiles are nodata.
    """
    first = tiles[0]
    transforms = [_checked_transform(tile, first) for tile in tiles]
    a, b, c, d, e, f = transforms[0]
    corners = [_corner(tile, own, first, transforms[0]) for tile, own in zip(tiles, transforms, strict=True)]
    top, left = min(row for row, _ in corners), min(col for _, col in corners)
    windows = tuple(
        Window(row - top, row - top + tile.shape[0], col - left, col - left + tile.shape[1])
        for tile, (row, col) in zip(tiles, corners, strict=True)
    )
    rows, cols = max(window.r1 for window in windows), max(window.c1 for window in windows)
    one_scale = all(_same(tile.scale, first.scale) and _same(tile.offset, first.offset) for tile in tiles)
    dtype = np.result_type(*(tile.dtype for tile in tiles), *([] if one_scale else [np.float32]))
    marks = [tile.good for tile in tiles if tile.good is not None]
    folder = first.path.parent
    is_named = folder.name and all(tile.path.parent == folder for tile in tiles)
    parts = _Parts(tuple(tiles), windows, dtype, one_scale)
    raster = StoredRaster(
        folder if is_named else Path("mosaic"),
        (rows, cols, first.shape[2]),
        dtype,
        parts.take,
        wavelengths=first.wavelengths,
        fwhm=first.fwhm,
        good=np.logical_and.reduce(marks) if marks else None,  # a band that is bad in one tile is bad in all
        nodata=(float("nan"),) * first.shape[2],  # tiles test their own nodata; NaN equals no value
        scale=first.scale if one_scale else None,
        offset=first.offset if one_scale else None,
        crs=first.crs,
        transform=(a, b, a * left + b * top + c, d, e, d * left + e * top + f),
        names=_merge_legends([tile.names for tile in tiles], "name"),
        colors=_merge_legends([tile.colors for tile in tiles], "colour"),
        block=first.block if all(tile.block == first.block for tile in tiles) else None,
    )
    label_raster = replace(raster, take=parts._replace(zero_is_nodata=True).take)
    return Mosaic(raster, label_raster, tuple(tiles), covered_pixels(windows) / (rows * cols), windows)


class _Parts(NamedTuple):
    tiles: tuple[StoredRaster, ...]
    windows: tuple[Window, ...]  # of each tile, in the mosaic
    dtype: np.dtype[Any]
    one_scale: bool  # False: values are converted to physical units here
    zero_is_nodata: bool = False

    def take(self, rows: slice, cols: slice, bands: Bands) -> RawWindow:
        shape = (rows.stop - rows.start, cols.stop - cols.start, len(bands))
        stored, valid = np.zeros(shape, dtype=self.dtype), np.zeros(shape, dtype=bool)
        for tile, at in zip(self.tiles, self.windows, strict=True):
            r0, r1 = max(rows.start, at.r0), min(rows.stop, at.r1)
            c0, c1 = max(cols.start, at.c0), min(cols.stop, at.c1)
            if r0 >= r1 or c0 >= c1:
                continue
            target = (slice(r0 - rows.start, r1 - rows.start), slice(c0 - cols.start, c1 - cols.start))
            if valid[target].all():
                continue
            values, defined = self._read(tile, slice(r0 - at.r0, r1 - at.r0), slice(c0 - at.c0, c1 - at.c0), bands)
            # A pixel valid in all bands replaces one that lacks bands, which in turn is better than nodata.
            better = ~valid[target].all(axis=2) & (defined.all(axis=2) | ~valid[target].any(axis=2))
            stored[target][better], valid[target][better] = values[better], defined[better]
        return RawWindow(stored, valid)

    def _read(self, tile: StoredRaster, rows: slice, cols: slice, bands: Bands) -> tuple[npt.NDArray[Any], Bools]:
        values, defined = tile.defined(rows, cols, bands)
        if self.zero_is_nodata:
            defined = defined & (values != 0)
        if not self.one_scale:
            scale = 1.0 if tile.scale is None else tile.scale[bands]
            offset = 0.0 if tile.offset is None else tile.offset[bands]
            with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes inf, which is invalid
                values = (values * scale + offset).astype(self.dtype)
        return values, defined


def _checked_transform(tile: StoredRaster, first: StoredRaster) -> Affine:
    """The affine of a tile; refuses a tile of another scene."""
    from rasterio.crs import CRS

    if tile.crs is None or tile.transform is None:
        raise SceneError(f"{tile.path} is not georeferenced: tiles are placed by their coordinates")
    if tile.crs != first.crs and CRS.from_user_input(tile.crs) != CRS.from_user_input(first.crs):
        raise SceneError(f"{tile.path} and {first.path} differ in coordinate system: tiles of one scene are expected")
    if tile.shape[2] != first.shape[2]:
        counts = f"{tile.path} has {tile.shape[2]} bands and {first.path} has {first.shape[2]}"
        raise SceneError(f"{counts}: tiles of one scene are expected")
    waves, others = tile.wavelengths, first.wavelengths
    if (waves is None) != (others is None):
        raise SceneError(f"only one of {tile.path} and {first.path} has wavelengths: tiles of one scene are expected")
    if waves is not None and others is not None and (off := np.abs(waves - others).max()) > _SAME_NM:
        wavelengths = f"the wavelengths of {tile.path} and {first.path}"
        raise SceneError(f"{wavelengths} differ by up to {off:.3g} nm: tiles of one scene are expected")
    return tile.transform


def _corner(tile: StoredRaster, affine: Affine, first: StoredRaster, grid: Affine) -> tuple[int, int]:
    """Row and column of a tile's first pixel on the grid of the first tile, to which all its corners must fit."""
    (a, b, c, d, e, f), (ta, tb, tc, td, te, tf) = grid, affine
    height, width, _ = tile.shape
    own = np.array([(0, 0), (width, 0), (0, height), (width, height)], dtype=np.float64)  # (corners, column and row)
    xy = own @ np.array([[ta, td], [tb, te]]) + (tc - c, tf - f)
    try:
        theirs = np.linalg.solve(np.array([[a, b], [d, e]]), xy.T).T
        start = np.round(theirs[0])
        apart = np.abs(theirs - own - start).max()
    except np.linalg.LinAlgError:
        apart = np.inf
    if not apart < _SAME:  # NaN is not
        raise SceneError(
            f"{tile.path} does not lie on the grid of {first.path}: tiles with the same pixel size, a whole number of "
            "pixels apart, are expected"
        )
    return int(start[1]), int(start[0])


def _same(one: npt.NDArray[np.float64] | None, other: npt.NDArray[np.float64] | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _merge_legends(legends: list[Mapping[int, T]], what: str) -> dict[int, T]:
    """Names or colours of classes; the first tile that has one wins."""
    merged: dict[int, T] = {}
    for legend in legends:
        for label, value in legend.items():
            if merged.setdefault(label, value) != value:
                warn_data(f"class {label} has another {what} in some tiles ({value}): {merged[label]} is taken")
    return merged
