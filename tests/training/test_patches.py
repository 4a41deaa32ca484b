from __future__ import annotations

import numpy as np
import pytest
import torch

from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.training import patches
from hypercaps.training.patches import PatchStore, mirrored, read_with_halo, reflect_invalid
from hypercaps.training.preprocessing import PCAWhitening


def cube(rows: int = 9, cols: int = 11, bands: int = 6) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, cols, bands)).astype(np.float32)


def padded_patches(white: np.ndarray, pixels: np.ndarray, patch: int) -> np.ndarray:
    """The plain way: pad the whole scene and cut every patch out of it."""
    half = patch // 2
    around = np.pad(white, ((half, half), (half, half), (0, 0)), mode="reflect")
    cols = white.shape[1]
    return np.stack([around[p // cols : p // cols + patch, p % cols : p % cols + patch] for p in pixels])


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_mirroring_is_numpys_reflect(size: int) -> None:
    positions = np.arange(-9, size + 9)
    np.testing.assert_array_equal(mirrored(positions, size), np.pad(np.arange(size), 9, mode="reflect"))


@pytest.mark.parametrize("patch", [1, 3, 7])
@pytest.mark.parametrize("strip", [1 << 23, 1])  # the whole scene at once, or a row at a time
def test_gathered_patches_are_cut_from_the_mirrored_scene(
    patch: int, strip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "_READ_VALUES", strip)
    scene = Scene.from_array(cube())
    whitening = PCAWhitening.fit(scene)
    pixels = np.array([0, 10, 49, 98, 88, 54])  # corners, borders, inside, in no order
    store = PatchStore(scene, whitening, pixels, patch)
    white = whitening.transform(scene.read().values)
    expected = padded_patches(white, pixels, patch)
    found = store.gather(torch.arange(6))
    assert found.shape == (6, patch, patch, 6) and found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(store.gather(torch.tensor([4, 1])), found[[4, 1]])


def test_few_labels_of_a_large_scene_cost_little() -> None:
    """Neither every patch nor the whole scene is held or read: only what the patches touch."""
    read = []
    rows, cols, bands = 3000, 2000, 30

    class Vast:
        shape, dtype, ndim = (rows, cols, bands), np.dtype(np.float32), 3

        def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
            h, w = (s.stop - s.start for s in key)
            read.append(h * w)
            return np.random.default_rng(h).standard_normal((h, w, bands))

    whitening = PCAWhitening(np.zeros(bands), np.eye(bands), np.ones(bands))
    pixels = np.array([0, 5 * cols + 7, rows * cols - 1])
    store = PatchStore(Scene.from_array(Vast()), whitening, pixels, 7)
    assert store._spectra.shape[0] == 4 * 4 + 7 * 7 + 4 * 4  # two corners and one inside
    assert sum(read) < 0.1 * rows * cols


def test_invalid_pixels_are_mirrored_in_patches() -> None:
    array = cube()
    scene = Scene.from_array(array.copy())
    whitening = PCAWhitening.fit(scene)
    array[4, 5, 0] = np.nan
    store = PatchStore(Scene.from_array(array), whitening, np.array([4 * 11 + 4]), 3)
    patch = store.gather(torch.tensor([0]))[0]
    assert torch.equal(patch[1, 2], patch[1, 0]) and torch.isfinite(patch).all() and (patch != 0).any(dim=2).all()


def test_a_window_with_halo_is_cut_from_the_mirrored_scene() -> None:
    array = cube()
    array[0, 0, 0] = np.nan
    scene = Scene.from_array(array)
    around = np.pad(array, ((3, 3), (3, 3), (0, 0)), mode="reflect")
    for window in (Window(0, 9, 0, 11), Window(0, 2, 9, 11), Window(3, 5, 4, 6), Window(8, 9, 0, 1)):
        pixels = read_with_halo(scene, window, 3)
        expected = around[window.r0 : window.r1 + 6, window.c0 : window.c1 + 6]
        np.testing.assert_array_equal(pixels.values, expected)
        np.testing.assert_array_equal(pixels.valid, np.isfinite(expected).all(axis=2))


def test_scenes_smaller_than_a_patch_are_mirrored_more_than_once() -> None:
    scene = Scene.from_array(cube(2, 1))
    pixels = read_with_halo(scene, Window(0, 2, 0, 1), 3)
    assert pixels.values.shape == (8, 7, 6)
    np.testing.assert_array_equal(pixels.values[:, 0], cube(2, 1)[[1, 0, 1, 0, 1, 0, 1, 0], 0])


def test_at_a_straight_edge_of_nodata_the_scene_is_mirrored_as_at_its_border() -> None:
    """A scene in a frame of nodata has the same patches as the scene alone."""
    bare = cube()
    framed = np.full((9 + 8, 11 + 6, 6), np.nan, dtype=np.float32)
    framed[4:13, 3:14] = bare
    scene, around = Scene.from_array(bare), Scene.from_array(framed)
    whitening = PCAWhitening.fit(scene)
    r, c = np.divmod(np.arange(9 * 11), 11)
    alone = PatchStore(scene, whitening, np.arange(9 * 11), 7).gather(torch.arange(9 * 11))
    within = PatchStore(around, whitening, (r + 4) * 17 + c + 3, 7).gather(torch.arange(9 * 11))
    assert torch.equal(alone, within)


@pytest.mark.parametrize("side", [1, 3, 5, 7])
def test_invalid_positions_are_replaced_by_valid_ones(side: int) -> None:
    valid = np.random.default_rng(side).random((500, side, side)) < np.linspace(0.05, 1, 500)[:, None, None]
    valid[:, side // 2, side // 2] = True
    standing = reflect_invalid(valid)
    flat = valid.reshape(500, -1)
    assert np.take_along_axis(flat, standing, axis=1).all()
    own = np.broadcast_to(np.arange(side * side), flat.shape)
    np.testing.assert_array_equal(standing[flat], own[flat])  # whoever is valid stands for itself


def test_replaced_positions_of_a_patch_worked_out_by_hand() -> None:
    valid = np.ones((4, 5, 5), dtype=bool)
    valid[0, 0, 1] = False  # mirrored at row 1: row 2
    valid[1, :2, 1] = False  # row 0 at row 2: row 4; row 1 at row 2: row 3
    valid[2, :, 4] = False  # no valid pixel in the column: along the row, at column 3: column 2
    valid[3] = False  # nothing but the middle
    valid[3, 2, 2] = True
    standing = reflect_invalid(valid).reshape(4, 5, 5)
    assert standing[0, 0, 1] == 2 * 5 + 1
    assert (standing[1, 0, 1], standing[1, 1, 1]) == (4 * 5 + 1, 3 * 5 + 1)
    assert standing[2, :, 4].tolist() == [row * 5 + 2 for row in range(5)]
    assert (standing[3] == 12).all()
