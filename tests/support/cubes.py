"""Small NetCDF and Zarr cubes, made with xarray."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from rasterio.crs import CRS

from hypercaps.data.scene import Scene

ROWS, COLS, BANDS = 7, 6, 5
CUBE = np.arange(1, ROWS * COLS * BANDS + 1, dtype=np.int16).reshape(ROWS, COLS, BANDS)
WAVES = [450.0, 550.0, 650.0, 850.0, 1650.0]  # nm


def dataset(
    cube: np.ndarray = CUBE, dims: tuple[str, ...] = ("y", "x", "wavelength"), attrs: dict[str, Any] | None = None,
    **coords: Any,
) -> xr.Dataset:  # fmt: skip
    """``cube`` (rows, columns, bands) as variable 'reflectance', its axes in the order of ``dims``."""
    order = [("y", "x", "wavelength").index(role_of(dim)) for dim in dims]
    return xr.Dataset({"reflectance": (dims, cube.transpose(order), attrs or {})}, coords=coords)


def role_of(dim: str) -> str:
    rows, cols = ("y", "lat", "latitude", "row", "northing", "line", "downtrack"), ("x", "lon", "longitude", "column")
    return "y" if dim in rows else "x" if dim in (*cols, "easting", "sample", "crosstrack") else "wavelength"


def waves(units: str = "nm", values: Any = WAVES, dim: str = "wavelength") -> Any:
    return xr.Variable(dim, values, {"units": units} if units else {})


def utm(down: bool = True, **more: Any) -> dict[str, Any]:
    y = 5000000 - 30.0 * np.arange(ROWS)
    mapping = xr.Variable((), 0, {"crs_wkt": CRS.from_epsg(32633).to_wkt()} | more)
    return {"y": y if down else y[::-1], "x": 600000 + 30.0 * np.arange(COLS), "spatial_ref": mapping}


def put_sum(scene: Scene, queue: Any) -> None:
    queue.put(int(scene.read().values.sum()))


# Print the sentence that refuses a file, and by how many MB the peak of memory grew.
HUGE = """
import resource, sys, warnings
import h5py, numpy as np
from hypercaps.errors import HypercapsError
from hypercaps.io.open import open_scene
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    open_scene(sys.argv[1]).read(slice(0, 4), slice(0, 4))
except HypercapsError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
