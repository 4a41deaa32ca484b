"""Scenes from xarray objects in memory, by the same CF rules as files. xarray itself is not imported."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Scene
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.raster import StoredRaster, scene_from
from hypercaps.io.readers.cf import Axes, axes_of, cube_arrays, cube_raster
from hypercaps.io.readers.variables import Part, Slices, Variable, attribute
from hypercaps.io.wavelengths import with_given


@dataclass(frozen=True, eq=False)
class _XarrayVariable(Variable):
    data: Any  # xarray.Variable

    def take(self, window: Slices) -> Part:
        stored: npt.NDArray[Any] = self.data[window].values  # lazy data (dask, open_dataset) is read here
        return Part(stored.astype(self.dtype, copy=False), None)


def scene_from_xarray(
    data: Any,
    name: str | None,
    wavelengths: npt.ArrayLike | None,
    nodata: float | None = None,
    good_bands: npt.ArrayLike | None = None,
) -> Scene:
    """See :meth:`Scene.from_xarray`."""
    is_dataset = hasattr(data, "data_vars")
    if not is_dataset and not (hasattr(data, "coords") and hasattr(data, "variable")):
        raise SceneError(
            f"Scene.from_xarray takes a DataArray or a Dataset of xarray, not {type(data).__name__}: for other arrays "
            "use Scene.from_array"
        )
    own = None if is_dataset else data.name
    label = name or ("xarray" if own is None else str(own))
    source = Path(label)  # for messages; nothing is opened
    listed = dict(data.variables) if is_dataset else {key: item.variable for key, item in data.coords.items()}
    variables = {str(key): _variable(source, str(key), item) for key, item in listed.items()}
    cube = _only_cube(variables, data) if is_dataset else _variable(source, label, data.variable)
    axes = axes_of(cube, variables) if cube.is_numeric and 0 not in cube.shape else None
    if axes is None or axes.band is None:
        sizes = ", ".join(f"{dim} {length}" for dim, length in zip(cube.dims, cube.shape, strict=True))
        raise SceneError(
            f"{label!r} holds {cube.dtype} values over {sizes or 'no dimension'}: numbers over one dimension each for "
            "rows, columns and bands are expected, such as (y, x, wavelength); select one moment with .isel(time=0)"
        )
    if not is_dataset:
        _warn_of_unknown_names(cube, label)
    raster = _with_accessor(cube_raster(cube, variables), data, cube.dims, axes)
    if wavelengths is not None:
        raster = with_given(raster, wavelengths)
    if nodata is not None:
        raster = replace(raster, nodata=(nodata,) * raster.shape[2])
    if good_bands is not None:
        raster = replace(raster, good=_flags(good_bands, raster.shape[2], label))
    return replace(scene_from(raster), name=label)


def _warn_of_unknown_names(cube: Variable, label: str) -> None:
    """Of dimensions that xarray itself named, such as dim_0: nobody has said which is which."""
    if all(re.fullmatch(r"dim_\d+", dim) for dim in cube.dims):
        warn_data(
            f"the dimensions of {label!r} have no names ({', '.join(cube.dims)}) and are taken as rows, columns and "
            "bands: name them, such as dims=('y', 'x', 'wavelength')"
        )


def _with_accessor(raster: StoredRaster, data: Any, dims: Sequence[str], axes: Axes) -> StoredRaster:
    """With coordinate system and grid of rioxarray's accessor, where coordinates and attributes say none."""
    if raster.crs is not None or not hasattr(data, "rio"):  # the accessor is there if rioxarray was imported
        return raster
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the accessor's own code
            placed = data.rio.set_spatial_dims(x_dim=dims[axes.col], y_dim=dims[axes.row])
            crs, grid = placed.rio.crs, raster.transform or tuple(placed.rio.transform())[:6]
    except Exception as error:  # the accessor's own, for data that it can't describe
        warn_data(f"rioxarray can't tell where {raster.path.name!r} lies ({error}), so it has no coordinate system")
        return raster
    return raster if crs is None else replace(raster, crs=crs.to_wkt(), transform=grid)


def _flags(good_bands: npt.ArrayLike, bands: int, label: str) -> npt.NDArray[np.bool_]:
    flags = np.asarray(good_bands, dtype=bool).ravel()
    if flags.size != bands:
        raise SceneError(f"scene {label!r} has {bands} bands but {flags.size} good-band flags: give one for each band")
    return flags


def map_by_names(data: Any) -> npt.NDArray[Any]:
    """The values of a DataArray with its dimensions in the order (rows, columns); as they are if that is unclear."""
    source = Path("xarray")  # for messages; nothing is opened
    variables = {str(key): _variable(source, str(key), item.variable) for key, item in data.coords.items()}
    axes = axes_of(_variable(source, "array", data.variable), variables)
    if axes is None or (axes.band is not None and data.shape[axes.band] > 1):
        return np.asarray(data)
    keep = [data.dims[axes.row], data.dims[axes.col]]
    return np.asarray(data.transpose(*keep, ...)).reshape([data.sizes[dim] for dim in keep])


def _only_cube(variables: Mapping[str, Variable], dataset: Any) -> Variable:
    cubes = [array.key for array in cube_arrays(variables) if len(array.shape) > 2]
    cubes = [key for key in cubes if key in map(str, dataset.data_vars)]
    if len(cubes) != 1:
        names = ", ".join(map(str, dataset.data_vars)) or "none"
        raise SceneError(
            f"a Dataset with one variable over rows, columns and bands is expected, but it holds {len(cubes)} (all its "
            f"variables: {names}): give one of them, such as dataset['reflectance']"
        )
    return variables[cubes[0]]


def _variable(source: Path, key: str, data: Any) -> Variable:
    # open_dataset moves the name of the grid mapping from the attributes to the encoding.
    attrs = {"grid_mapping": data.encoding.get("grid_mapping"), **data.attrs}
    dtype = data.dtype.newbyteorder("=") if isinstance(data.dtype, np.dtype) else np.dtype("O")
    cleaned = {str(name): attribute(value) for name, value in attrs.items()}
    dims, shape = tuple(map(str, data.dims)), tuple(data.shape)
    return _XarrayVariable(source, key, dims, shape, dtype, cleaned, _chunks(data), data)


def _chunks(data: Any) -> tuple[int, ...] | None:
    """Lengths of the pieces that data is read in: of dask, or else of the file."""
    if data.chunks is not None:
        return tuple(max(lengths) for lengths in data.chunks)
    preferred: Any = data.encoding.get("preferred_chunks") or {}
    lengths = tuple(preferred.get(dim) for dim in data.dims)
    return lengths if lengths and all(type(length) is int for length in lengths) else None
