from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercaps.data.scene import Scene
from hypercaps.data.tiling import TILE, plan_windows


def scene_of(rows: int, cols: int, block: tuple[int, int] | None = None) -> Scene:
    return replace(Scene.from_array(np.broadcast_to(np.float32(0), (rows, cols, 2))), block=block)


@given(
    rows=st.integers(1, 700),
    cols=st.integers(1, 700),
    pixels=st.integers(0, 400_000),
    patch=st.sampled_from([1, 7, 27]),
    block=st.sampled_from([None, (1, 700), (16, 16), (256, 256), (100, 30)]),
)
def test_windows_cover_the_scene_once_within_the_memory_limit(
    rows: int, cols: int, pixels: int, patch: int, block: tuple[int, int] | None
) -> None:
    covered = np.zeros((rows, cols), dtype=np.int8)
    halo = patch - 1
    for at in plan_windows(scene_of(rows, cols, block), patch=patch, pixels=pixels):
        covered[at.rows, at.cols] += 1
        assert at.r0 % TILE == 0 and at.c0 % TILE == 0
        size = (at.r1 - at.r0 + halo) * (at.c1 - at.c0 + halo)
        assert size <= max(pixels, (TILE + halo) * (TILE + halo) * 2)  # one tile at least
    assert (covered == 1).all()


def test_scenes_stored_by_row_are_read_in_strips() -> None:
    windows = plan_windows(scene_of(5000, 600), patch=7, pixels=65_536)
    assert {at.c1 - at.c0 for at in windows} == {600} and windows[0].r1 == 96


@pytest.mark.parametrize(("pixels", "rows", "cols"), [(1 << 20, 496, 496), (1 << 17, 352, 352), (40_000, 192, 192)])
def test_blocks_are_read_whole_if_they_fit(pixels: int, rows: int, cols: int) -> None:
    first = plan_windows(scene_of(5000, 5000, (512, 512)), patch=7, pixels=pixels)[0]
    assert (first.r1, first.c1) == (rows, cols)


def test_windows_of_whole_blocks_need_no_block_of_the_next_ones() -> None:
    windows = plan_windows(scene_of(2000, 2000, (256, 256)), patch=7, pixels=80_000)
    firsts = [at for at in windows if at.c0 == 0]
    for at, block in zip(firsts, range(256, 2000, 256), strict=False):
        assert block - TILE <= at.r1 <= block - 3
