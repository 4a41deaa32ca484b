"""Mapping from files, compared with the pace of the kernels: ratios for `make bench`.

A scene is written in each layout and mapped to a GeoTIFF. Its time is divided by the time that a part of the scene in
memory takes for as many pixels, measured just before and after: reading, decoding, converting and writing are the rest.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window

from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import write_model

COLS = 1000
_ORDERS = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}  # axes of (rows, columns, bands) in the file
_TIFFS: dict[str, dict[str, object]] = {
    "strips": {"interleave": "pixel"},
    "deflate": {"tiled": True, "blockxsize": 256, "blockysize": 256, "compress": "deflate", "predictor": 2},
}


def file_ratios(model: TrainedModel, rows: int) -> dict[str, float]:
    """Time to map a file of rows x 1,000 pixels over the same pixels at the kernels' pace, by layout."""
    bands = model.preprocessing.mean.size
    rng, ramp = np.random.default_rng(0), np.arange(bands, dtype=np.uint16) * 10
    cube = (
        rng.integers(0, 256, (rows, COLS, bands), dtype=np.uint16) + ramp
    )  # spectra are smooth, and compress a little
    ratios = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model.safetensors", model)
        for layout in (*_ORDERS, *_TIFFS):
            path = write_scene(folder, layout, cube)
            ratios[layout] = map_job("pace", folder / "model.safetensors", path)
            path.unlink()
    return ratios


def map_job(*arguments: object) -> float:
    """What a job of map_jobs.py prints."""
    command = [sys.executable, str(Path(__file__).with_name("map_jobs.py")), *map(str, arguments)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def write_scene(folder: Path, layout: str, cube: npt.NDArray[np.uint16]) -> Path:
    """The cube (rows, columns, bands) as an ENVI file or a GeoTIFF."""
    rows, cols, bands = cube.shape
    if layout in _ORDERS:
        header = f"ENVI\nsamples = {cols}\nlines = {rows}\nbands = {bands}\ndata type = 12\ninterleave = {layout}\n"
        path = folder / f"{layout}.img"
        path.with_suffix(".hdr").write_text(header + "header offset = 0\nbyte order = 0\n")
        with path.open("wb") as file:
            for plane in cube.transpose(_ORDERS[layout]):
                file.write(np.ascontiguousarray(plane, dtype="<u2").data)
        return path
    path = folder / f"{layout}.tif"
    shape = {"height": rows, "width": cols, "count": bands}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        raster = rasterio.open(path, "w", driver="GTiff", dtype="uint16", **shape, **_TIFFS[layout])
    with raster:
        for r0 in range(0, rows, 256):  # whole blocks
            part = cube[r0 : r0 + 256]
            raster.write(np.moveaxis(part, 2, 0), window=Window(0, r0, cols, len(part)))
    return path
