"""Scenes from xarray objects in memory, by the same CF rules as files. xarray itself is not imported."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.raster import StoredRaster, scene_from
from hypercaps.io.readers.cf import Axes, axes_of, class_colors, class_names, cube_arrays, cube_raster, unknown_dims
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
    axes = _checked_axes(cube, variables, label)
    if len(unknown := unknown_dims(cube, variables)) > 1:
        warn_data(
            f"the dimensions {', '.join(unknown)} of {label!r} have no names that say which is which, and are taken in "
            "the order rows, columns, bands: name them, such as dims=('y', 'x', 'wavelength')"
        )
    raster = _with_accessor(cube_raster(cube, variables), data, cube.dims, axes)
    if wavelengths is not None:
        raster = with_given(raster, wavelengths)
    if nodata is not None:
        raster = replace(raster, nodata=(nodata,) * raster.shape[2])
    if good_bands is not None:
        raster = replace(raster, good=_flags(good_bands, raster.shape[2], label))
    return replace(scene_from(raster), name=label)


def _checked_axes(cube: Variable, variables: Mapping[str, Variable], label: str) -> Axes:
    """Rows, columns and bands; refuses data without them."""
    if not cube.is_numeric:
        raise SceneError(f"{label!r} holds {cube.dtype} values: a cube of integers or real numbers is expected")
    if 0 in cube.shape:
        raise SceneError(f"{label!r} has no values along {cube.dims[cube.shape.index(0)]}: select some")
    axes = axes_of(cube, variables)
    if axes is None or axes.band is None:
        sizes = ", ".join(f"{dim} {length}" for dim, length in zip(cube.dims, cube.shape, strict=True))
        moment = "; select one moment with .isel(time=0)" if "time" in cube.dims or len(cube.dims) > 3 else ""
        raise SceneError(
            f"{label!r} has the dimensions {sizes or '(none)'}: one each for rows, columns and bands is expected, such "
            f"as (y, x, wavelength){moment}"
        )
    return axes


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


def legend_of(data: Any) -> Legend:
    """Names and colours of the classes of a DataArray, by the attributes that ``ClassMap.to_xarray`` writes."""
    described = _variable(Path("xarray"), "array", data.variable)
    names, colors = class_names(described), class_colors(described)
    listed = data.attrs.get("class_names")  # as they are: flag_meanings has no spaces
    if isinstance(listed, list | tuple) and len(listed) == len(names):
        names = dict(zip(names, map(str, listed), strict=True))
    numbers = sorted(number for number in names if number > 0)
    return Legend.of(numbers, [names[number] for number in numbers], colors)


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
