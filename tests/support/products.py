"""Small files with the documented structure of EMIT's and PRISMA's products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rasterio.crs import CRS

# All values and all lengths differ, so that swapped axes are noticed.
EMIT_ROWS, EMIT_COLS, EMIT_BANDS = 12, 10, 8
WGS84 = CRS.from_epsg(4326).to_wkt()


def emit_cube() -> np.ndarray:
    """Reflectance (downtrack, crosstrack, bands) with a corner without data."""
    cube = (np.arange(EMIT_ROWS * EMIT_COLS * EMIT_BANDS, dtype=np.float32) + 1).reshape(
        EMIT_ROWS, EMIT_COLS, -1
    ) / 2000
    cube[:2, :2] = -9999
    return cube


def emit_tables() -> tuple[np.ndarray, np.ndarray]:
    """glt_x and glt_y on a grid of 14 x 13: the swath rotated by 90 degrees, one pixel twice, empty margins."""
    x, y = np.zeros((14, 13), dtype=np.int32), np.zeros((14, 13), dtype=np.int32)
    rows, cols = np.mgrid[0:10, 0:12]  # of the ground: 10 rows are the swath's columns, 12 columns its rows
    x[2:12, 0:12], y[2:12, 0:12] = rows + 1, cols + 1
    x[5, 12], y[5, 12] = -4, -12  # a gap filled from its neighbour
    return x, y


def write_emit(path: Path, cube: np.ndarray | None = None, *, libver: Any = None, **changes: Any) -> Path:
    """An EMIT L2A reflectance product; ``changes`` give datasets or attributes other values, None leaves them out."""
    x, y = emit_tables()
    parts: dict[str, Any] = {
        "fill": np.float32(-9999),
        "wavelengths": np.linspace(400, 2400, EMIT_BANDS, dtype=np.float32),
        "fwhm": np.full(EMIT_BANDS, 8.5, dtype=np.float32),
        "good_wavelengths": np.array([1, 1, 1, 0, 1, 1, 1, 1], dtype=np.float32),
        "glt_x": x,
        "glt_y": y,
        "geotransform": np.array([20.0, 0.5, 0.0, 50.0, 0.0, -0.5]),
        "spatial_ref": WGS84,
        "chunks": (5, 4, EMIT_BANDS),
    } | changes
    with h5py.File(path, "w", libver=libver) as file:
        data = emit_cube() if cube is None else cube
        reflectance = file.create_dataset(
            "reflectance", data=data, chunks=parts["chunks"], compression="gzip", shuffle=True, fletcher32=True
        )
        for axis, name in enumerate(("downtrack", "crosstrack", "bands")):
            scale = file.create_dataset(name, shape=(data.shape[axis],), dtype=">f4")  # a dimension, never written
            scale.make_scale(f"This is a netCDF dimension but not a netCDF variable. {data.shape[axis]:9d}")
            reflectance.dims[axis].attach_scale(scale)
        if parts["fill"] is not None:
            reflectance.attrs["_FillValue"] = parts["fill"]
        reflectance.attrs["units"] = np.bytes_("unitless")
        for group, names in (
            ("sensor_band_parameters", ("wavelengths", "fwhm", "good_wavelengths")),
            ("location", ("glt_x", "glt_y")),
        ):
            for name in names:
                if parts[name] is not None:
                    stored = file.create_dataset(
                        f"{group}/{name}", data=parts[name], chunks=parts[name].shape, fletcher32=True
                    )
                    stored.attrs["units"] = np.bytes_("nm" if name in ("wavelengths", "fwhm") else "")
        for name in ("geotransform", "spatial_ref"):
            if parts[name] is not None:
                text = isinstance(parts[name], str)
                file.attrs[name] = np.bytes_(parts[name]) if text else parts[name]
        file.attrs["title"] = "EMIT L2A Estimated Surface Reflectance 60 m V001"
    return path


PRISMA_ROWS, PRISMA_COLS = 9, 11
# As in the products: from long to short, overlapping, with positions without a band.
VNIR = np.array([0, 975, 965, 700, 550, 410], dtype=np.float32)
SWIR = np.array([2490, 1600, 1000, 970, 0], dtype=np.float32)
SWATH = "HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"


def prisma_cubes() -> tuple[np.ndarray, np.ndarray]:
    """VNIR and SWIR (rows, bands, columns) uint16; one corner lies outside of the swath."""
    rng = np.random.default_rng(3)
    cubes = [rng.integers(1, 65536, (PRISMA_ROWS, bands.size, PRISMA_COLS)).astype(np.uint16) for bands in (VNIR, SWIR)]
    for cube in cubes:
        cube[:2, :, :3] = 0
    return cubes[0], cubes[1]


def write_prisma(path: Path, *, level: str = "L2D", libver: Any = None, **changes: Any) -> Path:
    """A PRISMA product; ``changes`` give cubes, matrices or attributes other values, None leaves them out."""
    vnir, swir = prisma_cubes()
    parts: dict[str, Any] = {
        "VNIR_Cube": vnir,
        "SWIR_Cube": swir,
        "VNIR_PIXEL_L2_ERR_MATRIX": np.zeros(vnir.shape, dtype=np.uint8),
        "SWIR_PIXEL_L2_ERR_MATRIX": np.zeros(swir.shape, dtype=np.uint8),
    }
    attributes: dict[str, Any] = {
        "List_Cw_Vnir": VNIR,
        "List_Cw_Swir": SWIR,
        "List_Cw_Vnir_Flags": (VNIR > 0).astype(np.uint8),
        "List_Cw_Swir_Flags": (SWIR > 0).astype(np.uint8),
        "List_Fwhm_Vnir": np.where(VNIR > 0, 12, 0).astype(np.float32),
        "List_Fwhm_Swir": np.where(SWIR > 0, 10, 0).astype(np.float32),
        "L2ScaleVnirMin": np.float32(0),
        "L2ScaleVnirMax": np.float32(0.75),
        "L2ScaleSwirMin": np.float32(-0.125),
        "L2ScaleSwirMax": np.float32(1.5),
        "Epsg_Code": np.uint32(32633),
        "Projection_Name": np.bytes_("UTM"),
        "Product_ULcorner_easting": np.float64(600015),  # centres of the outer pixels
        "Product_ULcorner_northing": np.float64(4999985),
        "Product_LRcorner_easting": np.float64(600015 + 30 * (PRISMA_COLS - 1)),
        "Product_LRcorner_northing": np.float64(4999985 - 30 * (PRISMA_ROWS - 1)),
    }
    options = changes.pop("options", {})
    with h5py.File(path, "w", libver=libver) as file:
        for name, value in (parts | {k: v for k, v in changes.items() if k in parts}).items():
            if value is not None:
                file.create_dataset(f"{SWATH}/{name}".replace("L2D", level), data=value, **options)
        for name, value in (attributes | {k: v for k, v in changes.items() if k not in parts}).items():
            if value is not None:
                file.attrs[name] = value
    return path
