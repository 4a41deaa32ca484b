"""Deflated blocks: the numbers that GDAL reads, each block decoded once and never by GDAL, damage noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rasterio.windows import Window

from hypercaps.errors import SceneError
from hypercaps.io.readers import geotiff, tiff_blocks
from hypercaps.io.readers.geotiff import geotiff_raster
from hypercaps.io.readers.open_files import keep_open
from hypercaps.io.readers.tiff_check import check_tiff
from support.rasters import write

ROWS, COLS, BANDS = 45, 61, 5
WINDOWS = [(0, ROWS, 0, COLS), (3, 21, 10, 50), (44, 45, 60, 61), (15, 33, 16, 32), (5, 5, 0, 3)]
TILES: dict[str, Any] = {"tiled": True, "blockxsize": 16, "blockysize": 32}
STRIPS: dict[str, Any] = {"blockysize": 7}


def cube_of(dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    if dtype.startswith("float"):
        return rng.normal(size=(ROWS, COLS, BANDS)).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (ROWS, COLS, BANDS), dtype=dtype, endpoint=True)


def no_gdal(*_: Any, **__: Any) -> Any:
    raise AssertionError("GDAL was asked for a window")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"])
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("layout", [TILES, STRIPS], ids=["tiles", "strips"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("predictor", [1, 2])
def test_windows_are_those_of_gdal(
    dtype: str,
    order: str,
    layout: dict[str, Any],
    interleave: str,
    predictor: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = {**layout, "ENDIANNESS": order, "interleave": interleave, "predictor": predictor}
    path = write(tmp_path / "a.tif", cube_of(dtype), dtype, compress="deflate", photometric="MINISBLACK", **profile)
    with geotiff.opened_geotiff(path) as dataset:
        expected = [
            np.moveaxis(dataset.read([5, 1, 2], window=Window.from_slices((r0, r1), (c0, c1))), 0, -1)
            for r0, r1, c0, c1 in WINDOWS
        ]
    raster = geotiff_raster(path)
    monkeypatch.setattr(geotiff, "opened_geotiff", no_gdal)
    for (r0, r1, c0, c1), numbers in zip(WINDOWS, expected, strict=True):
        found = raster.take(slice(r0, r1), slice(c0, c1), np.array([4, 0, 1])).stored
        assert found.dtype == numbers.dtype
        np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize(
    ("dtype", "profile"),
    [
        ("uint16", {"compress": "lzw"}),
        ("uint16", {"compress": "deflate", "nbits": 12}),
        ("float32", {"compress": "deflate", "predictor": 3}),
        ("uint16", {}),
    ],
)
def test_other_codes_are_left_to_gdal(dtype: str, profile: dict[str, Any], tmp_path: Path) -> None:
    cube = (cube_of("uint16") % 4096).astype(dtype)
    path = write(tmp_path / "a.tif", cube, dtype, photometric="MINISBLACK", **profile)
    assert not check_tiff(path).can_decode(np.dtype(dtype))
    stored = geotiff_raster(path).take(slice(0, ROWS), slice(0, COLS), np.arange(BANDS)).stored
    np.testing.assert_array_equal(stored, cube)


def test_a_block_is_decoded_once_while_the_file_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cube, count = cube_of("uint16"), 0

    def counted(deflated: bytes, most: int) -> bytes | None:
        nonlocal count
        count += 1
        return inflate(deflated, most)

    inflate = tiff_blocks.inflated
    monkeypatch.setattr(tiff_blocks, "inflated", counted)
    raster = geotiff_raster(write(tmp_path / "a.tif", cube, "uint16", compress="deflate", **TILES))
    with keep_open():
        for row in range(32):
            found = raster.take(slice(row, row + 1), slice(0, 16), np.arange(BANDS)).stored
            np.testing.assert_array_equal(found, cube[row : row + 1, :16])
    assert count == 1


def test_damage_is_noticed_at_every_reading(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", cube_of("uint16"), "uint16", compress="deflate", predictor=2, **TILES)
    raster, blocks = geotiff_raster(path), check_tiff(path)
    data = bytearray(path.read_bytes())
    data[int(blocks.offsets[0]) + int(blocks.counts[0]) // 2] ^= 4
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(SceneError, match="block 0 fails its checksum"):
            raster.take(slice(0, 3), slice(0, 3), np.arange(BANDS))
    raster.take(slice(33, 36), slice(17, 20), np.arange(BANDS))  # another block
