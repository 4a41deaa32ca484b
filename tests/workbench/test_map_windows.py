"""How a map is cut into windows."""

from __future__ import annotations

import numpy as np
import pytest

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window
from hypercaps.workbench.map_windows import windows_around

WHOLE = Window(0, 1000, 0, 1315)


@pytest.mark.parametrize(
    "view",
    [
        None,
        Window(744, 1000, 300, 812),
        Window(5, 6, 1314, 1315),
        Window(0, 1000, 0, 1315),
        Window(-50, 5000, -9, 20),  # beyond the scene
        Window(900, 100, 0, 0),  # empty
    ],
)
def test_windows_are_whole_tiles_that_cover_the_scene_once(view: Window | None) -> None:
    covered = np.zeros((1000, 1315), dtype=np.int64)
    for at in windows_around(WHOLE, view, 128):
        assert 0 < at.r1 - at.r0 <= 128 and 0 < at.c1 - at.c0 <= 128
        assert at.r0 % TILE == at.c0 % TILE == 0
        assert at.r1 % TILE == 0 or at.r1 == 1000
        covered[at.rows, at.cols] += 1
    assert (covered == 1).all()


def test_hardly_more_than_the_view_is_computed_for_it() -> None:
    view = Window(244, 756, 300, 812)
    touching = [
        at
        for at in windows_around(WHOLE, view, 128)
        if at.r1 > view.r0 and at.r0 < view.r1 and at.c1 > view.c0 and at.c0 < view.c1
    ]
    assert sum((at.r1 - at.r0) * (at.c1 - at.c0) for at in touching) <= (512 + 2 * TILE) ** 2
    assert len(touching) <= 25
