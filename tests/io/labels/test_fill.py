"""Pixels of 255 in label rasters that state no nodata value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio

from hypercaps.data.labels import Labels
from hypercaps.errors import DataWarning
from hypercaps.io.open import open_labels

FILLED = np.array([[255, 255, 1], [2, 9, 0]], np.uint8)


def read(path: Path, array: np.ndarray, **profile: object) -> Labels:
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        size = {"height": array.shape[0], "width": array.shape[1], "count": 1, "dtype": array.dtype}
        with rasterio.open(path, "w", driver="GTiff", **size, **profile) as file:
            file.write(array, 1)
    return open_labels(path)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("name", ["a.tif", "a.npy"])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_255_far_above_the_other_classes_is_unlabelled(name: str, dtype: str, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"its 2 pixels of 255 are taken as unlabelled.*end at 9"):
        labels = read(tmp_path / name, FILLED.astype(dtype))
    assert labels.counts() == {1: 1, 2: 1, 9: 1}


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_255_that_is_a_class(tmp_path: Path) -> None:
    assert read(tmp_path / "only.npy", np.where(FILLED == 255, FILLED, 0)).counts() == {255: 2}
    assert read(tmp_path / "all.npy", np.arange(256, dtype=np.uint8).reshape(16, 16)).counts()[255] == 1
    (tmp_path / "named.tif.aux.xml").write_text(
        "<PAMDataset><PAMRasterBand band='1'><CategoryNames>"
        + "".join(f"<Category>{'rock' if k == 255 else ''}</Category>" for k in range(256))
        + "</CategoryNames></PAMRasterBand></PAMDataset>"
    )
    assert read(tmp_path / "named.tif", FILLED).counts()[255] == 2
    assert read(tmp_path / "stated.tif", FILLED, nodata=0).counts()[255] == 2  # 255 is not what it states
