"""Points on a disk that is full."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypercaps.data.labels import LegendEntry, Suggestion
from hypercaps.data.scene import Scene
from hypercaps.errors import OutputError
from hypercaps.io.writers.points import write_points

SCENE = replace(Scene.from_array(np.ones((30, 30, 3))), crs="EPSG:32633", transform=(30.0, 0.0, 5e5, 0.0, -30.0, 4e6))
ONE, TWO = LegendEntry(1, "water", (0, 0, 255)), LegendEntry(2, "wood", (0, 255, 0))
POINTS = [Suggestion(i + 1, i // 30, i % 30, ONE, TWO, 0.5, 0.1) for i in range(900)]


@pytest.mark.parametrize("kilobytes", [0, 4, 28, 36])
@pytest.mark.parametrize("suffix", [".gpkg", ".geojson", ".csv"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(suffix: str, kilobytes: int, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, hard))
    try:
        with pytest.raises(OutputError, match=r"points\.\w+ can't be written: File too large"):
            write_points(tmp_path / f"points{suffix}", POINTS, SCENE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
