"""File Geodatabases: folders of tables."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import shapely

from hypercaps.errors import LabelsError, SceneError
from hypercaps.io.open import open_labels, open_scene
from hypercaps.pipeline.describe import describe
from support.vectors import KINDS, SQUARES, names, on_grid, scene_on, write


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "site.gdb"
    for layer, number in (("fields", 3), ("plots", 1)):
        pyogrio.raw.write(
            path, shapely.to_wkb([on_grid(square) for square in SQUARES[:number]]),
            [np.array(KINDS[:number], dtype=object)], ["kind"], layer=layer, geometry_type="Polygon", crs="EPSG:32633",
            driver="OpenFileGDB", append=path.exists(),
        )  # fmt: skip
    return path


def test_layers_of_a_geodatabase(database: Path) -> None:
    with pytest.raises(LabelsError, match=r"several layers: fields, plots; name one as .*site.gdb:fields"):
        open_labels(database, scene=scene_on(), class_field="kind")
    labels = open_labels(f"{database}:fields", scene=scene_on(), class_field="kind")
    right = open_labels(
        write(database.with_name("a.gpkg"), SQUARES, {"kind": KINDS}), scene=scene_on(), class_field="kind"
    )
    np.testing.assert_array_equal(labels.array, right.array)
    assert names(labels) == names(right)
    assert describe(str(database)).to_json()["layers"] == ["fields", "plots"]
    with pytest.raises(SceneError, match="labels or a mask only"):
        open_scene(database)


def test_folders_that_are_no_geodatabase(database: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.gdb").mkdir()
    with pytest.raises(LabelsError, match="is a folder"):
        open_labels(tmp_path / "empty.gdb", scene=scene_on())
    write(database / "a.shp", SQUARES, {"kind": KINDS})
    with pytest.raises(LabelsError, match="no part of a File Geodatabase"):
        open_labels(database, scene=scene_on())
    for file in database.glob("a.*"):
        file.unlink()
    with pytest.raises(LabelsError, match=r"name that ends in \.gdb"):
        open_labels(database.rename(tmp_path / "site"), scene=scene_on())


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
def test_damaged_tables(database: Path) -> None:
    """Tables that are too short are refused; there is no checksum that would tell of a flipped bit."""
    rng = np.random.default_rng(0)
    for table in sorted(database.glob("*.gdbtabl*")):
        content = table.read_bytes()
        table.write_bytes(content[: int(0.7 * len(content))])
        with pytest.raises(LabelsError):
            open_labels(f"{database}:fields", scene=scene_on(), class_field="kind")
        for _ in range(6):
            damaged = bytearray(content)
            damaged[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
            table.write_bytes(damaged)
            with contextlib.suppress(LabelsError):  # and no other error
                open_labels(f"{database}:fields", scene=scene_on(), class_field="kind")
        table.write_bytes(content)
