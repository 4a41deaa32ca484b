"""Windows read one after the other: what they hold, and that no pixel is read twice."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import plan_windows
from hypercaps.data.window import tile_windows
from hypercaps.inference.read_ahead import read_ahead
from hypercaps.training.patches import read_with_halo


class Counted:
    """A scene that counts how often each pixel is read."""

    def __init__(self, rows: int, cols: int, block: tuple[int, int] | None = None) -> None:
        self.cube = np.random.default_rng(0).normal(size=(rows, cols, 3)).astype(np.float32)
        self.valid = np.random.default_rng(1).random((rows, cols)) < 0.8
        self.times = np.zeros((rows, cols), dtype=int)
        self.scene = replace(Scene((rows, cols, 3), np.dtype("f4"), self.read), block=block)

    def read(self, rows: slice, cols: slice) -> Pixels:
        self.times[rows, cols] += 1
        return Pixels(self.cube[rows, cols].copy(), self.valid[rows, cols].copy())


@settings(deadline=None, max_examples=60)
@given(
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    side=st.tuples(st.integers(4, 40), st.integers(4, 40)),
    halo=st.integers(0, 5),
    block=st.sampled_from([None, (16, 16), (7, 32)]),
    share=st.floats(0.1, 1.0),
)
def test_windows_are_as_if_read_alone_and_no_pixel_is_read_twice(
    size: tuple[int, int], side: tuple[int, int], halo: int, block: tuple[int, int] | None, share: float
) -> None:
    counted = Counted(*size, block)
    windows = list(tile_windows(counted.scene.whole, *side))
    chosen = np.random.default_rng(2).random(len(windows)) < share
    windows = [at for at, take in zip(windows, chosen, strict=True) if take]
    found = list(read_ahead(counted.scene, windows, halo))
    assert counted.times.max() <= 1
    for at, (pixels, checksum) in zip(windows, found, strict=True):
        expected = read_with_halo(counted.scene, at, halo)
        np.testing.assert_array_equal(pixels.values, expected.values)
        np.testing.assert_array_equal(pixels.valid, expected.valid)
        assert checksum == expected.checksum()


def test_blocks_are_read_whole_and_once() -> None:
    counted = Counted(300, 200, (64, 64))
    asked = []
    scene = replace(counted.scene, reader=lambda rows, cols: (asked.append((rows, cols)), counted.read(rows, cols))[1])
    for _ in read_ahead(scene, plan_windows(scene, patch=7, pixels=90 * 90), 3):
        pass
    assert (counted.times == 1).all()
    assert all(rows.start % 64 == 0 and cols.start % 64 == 0 for rows, cols in asked)


def test_the_next_window_is_read_during_the_work_on_the_last() -> None:
    counted, reading = Counted(20, 10), threading.Event()

    def read(rows: slice, cols: slice) -> Pixels:
        if rows.start >= 10:
            reading.set()
        return counted.read(rows, cols)

    stream = read_ahead(replace(counted.scene, reader=read), list(tile_windows(counted.scene.whole, 10)), 0)
    next(stream)
    assert reading.wait(30)  # nobody has asked for the second window yet
    stream.close()


def test_an_error_comes_with_the_window_that_it_belongs_to() -> None:
    counted = Counted(20, 10)

    def read(rows: slice, cols: slice) -> Pixels:
        if rows.start >= 10:
            raise OSError("the disk is gone")
        return counted.read(rows, cols)

    stream = read_ahead(replace(counted.scene, reader=read), list(tile_windows(counted.scene.whole, 10)), 0)
    next(stream)
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)
