from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from hypercaps.data import pixels as pixels_module
from hypercaps.data.labels import Labels, Legend, LegendEntry
from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import DataWarning, LabelsError, SceneError


def test_read_gives_float32_windows_and_their_validity() -> None:
    cube = np.arange(4 * 5 * 3, dtype=np.uint16).reshape(4, 5, 3)
    scene = Scene.from_array(cube)
    values, valid = scene.read(slice(1, 3), slice(2, 5))
    assert values.dtype == np.float32 and values.flags.c_contiguous
    np.testing.assert_array_equal(values, cube[1:3, 2:5])
    assert valid.shape == (2, 3) and valid.all()
    assert scene.read().values.shape == scene.shape == (4, 5, 3)


def test_nan_infinity_and_nodata_are_invalid() -> None:
    cube = np.ones((2, 3, 4))
    cube[0, 0, 1] = np.nan
    cube[0, 1, 2] = np.inf
    cube[1, 2, 3] = -9999
    cube[1, 0, 0] = 1e300  # too large for float32
    valid = Scene.from_array(cube, nodata=-9999).read().valid
    np.testing.assert_array_equal(valid, [[False, False, True], [False, True, False]])


def test_the_checksum_depends_on_valid_values_and_their_places() -> None:
    values = np.random.default_rng(0).random((4, 5, 3), dtype=np.float32)
    valid = np.ones((4, 5), dtype=bool)
    valid[1, 2] = False
    expected = Pixels(values, valid).checksum()
    undefined = values.copy()
    undefined[1, 2] = np.nan
    assert Pixels(undefined, valid).checksum() == expected == Pixels(np.asfortranarray(values), valid).checksum()
    changed = values.copy()
    changed[3, 4, 1] = np.nextafter(changed[3, 4, 1], 2)
    others = [Pixels(changed, valid), Pixels(values, np.ones_like(valid)), Pixels(values[::-1], valid[::-1])]
    others += [Pixels(values[:, ::-1], valid[:, ::-1]), Pixels(values[:, :, ::-1], valid)]
    assert all(other.checksum() != expected for other in others)


def test_a_scene_is_read_while_another_thread_imports_masked_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))  # its classes are not there yet
    assert Scene.from_array(np.ones((2, 2, 3))).read().valid.all()


@pytest.mark.parametrize("most", [1 << 23, 1], ids=["boxes", "parts"])
def test_windows_of_a_tiled_file_are_read_block_by_block(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    cube = np.random.default_rng(0).normal(size=(40, 50, 3))
    cube[12, 13] = np.nan
    cube[30:, 40:] *= 1e20  # absurd
    whole, read = Scene.from_array(cube), []

    def reader(rows: slice, cols: slice) -> Pixels:
        read.append((rows.start // 16, cols.start // 16))
        assert ((rows.stop - 1) // 16, (cols.stop - 1) // 16) == read[-1]  # never across blocks
        return whole.reader(rows, cols)

    monkeypatch.setattr(pixels_module, "VALUES_AT_ONCE", most)
    scene = replace(whole, reader=reader, block=(16, 16))
    windows = [Window(0, 4, 0, 4), Window(10, 20, 12, 18), Window(8, 12, 4, 8), Window(28, 36, 36, 50)]
    found = scene.read_windows(windows)
    blocks = read[:8]  # then the limit of absurd values is looked for
    for at, pixels in zip(windows, found, strict=True):
        values, valid = whole.read(at.rows, at.cols)
        np.testing.assert_array_equal(pixels.valid, valid)
        np.testing.assert_array_equal(pixels.values[valid], values[valid])
    assert not found[1].valid.all() and not found[3].valid.all()
    if most > 1:
        assert len(set(blocks)) == 8
    np.testing.assert_equal(scene.fingerprint(), replace(scene, block=None, reader=whole.reader).fingerprint())


def test_a_scene_is_not_indexed_by_mistake() -> None:
    scene = Scene.from_array(np.ones((2, 2, 3)))
    with pytest.raises(SceneError, match=r"read\(rows, cols\) reads a window"):
        scene[0:1]
    with pytest.raises(SceneError, match="PixelClassifier"):
        list(scene)  # type: ignore[call-overload]


def test_labels_are_an_array_for_numpy() -> None:
    labels = Labels.from_array([[0, 1], [7, 7]])
    assert np.unique(labels).tolist() == [0, 1, 7] and np.asarray(labels, dtype=float).dtype == np.float64


def test_masked_arrays_keep_their_mask_and_lists_and_tensors_are_cubes() -> None:
    cube = np.ma.masked_array(np.ones((2, 2, 3)), mask=False)
    cube[0, 1, 2] = np.ma.masked
    np.testing.assert_array_equal(Scene.from_array(cube).read().valid, [[True, False], [True, True]])
    assert Scene.from_array([[[1, 2, 3]]]).shape == (1, 1, 3)
    assert Scene.from_array(torch.zeros(2, 3, 4)).dtype == np.float32


def test_arrays_on_disk_are_read_by_window() -> None:
    class Counting:
        """Slices like an array and counts the values that are read."""

        shape, dtype, ndim = (100, 100, 5), np.dtype(np.float32), 3
        taken = 0

        def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
            out = np.zeros((100, 100, 5), np.float32)[key]
            self.taken += out.size
            return out

    array = Counting()
    Scene.from_array(array).read(slice(0, 2), slice(0, 3))
    assert array.taken == 2 * 3 * 5


def test_groups_of_removed_labels_are_removed() -> None:
    cube = np.ones((1, 4, 2))
    cube[0, 2] = np.nan
    groups = np.array([[1, 1, 2, 0]], dtype=np.int32)
    labels = Labels.from_array([[5, 5, 6, 0]], groups=groups)
    with pytest.warns(DataWarning, match="1 labelled pixels"):
        valid = labels.where_valid(Scene.from_array(cube))
    assert valid.groups is not None and valid.groups.tolist() == [[1, 1, 0, 0]]
    with pytest.raises(LabelsError, match="give every labelled pixel a group"):
        Labels.from_array([[5, 5, 6, 6]], groups=groups)


@pytest.mark.parametrize(
    ("cube", "message"),
    [
        (np.zeros((3, 4)), "2-D"),
        (np.zeros((2, 3, 4, 5)), "4-D"),
        (np.zeros((2, 3, 4), complex), "complex"),
        (np.array([[["a"]]]), "values"),
        (np.zeros((0, 3, 4)), "at least 1"),
    ],
)
def test_arrays_that_are_no_cube_are_refused(cube: np.ndarray, message: str) -> None:
    with pytest.raises(SceneError, match=message):
        Scene.from_array(cube)


def test_wavelengths_must_be_one_for_each_band() -> None:
    with pytest.raises(SceneError, match="4 bands but 3 wavelengths"):
        Scene.from_array(np.zeros((2, 2, 4)), wavelengths=[1, 2, 3])
    with pytest.raises(SceneError, match="4 bands but 3 band widths"):
        replace(Scene.from_array(np.zeros((2, 2, 4))), fwhm=np.ones(3))


def test_a_scene_has_its_good_bands_only() -> None:
    cube = np.arange(4 * 5 * 6, dtype=np.uint16).reshape(4, 5, 6)
    good = np.array([1, 0, 1, 1, 0, 1])
    waves, widths = np.arange(400.0, 460, 10), np.arange(6.0)
    from_array = Scene.from_array(cube, wavelengths=waves, good_bands=good)
    whole = replace(Scene.from_array(cube, wavelengths=waves), fwhm=widths)
    marked = replace(whole, good_bands=good != 0)
    for scene in (from_array, marked, replace(marked, name="again"), replace(whole, good_bands=[good])):
        assert (scene.shape, scene.bands, scene.dtype) == ((4, 5, 4), 4, np.dtype(np.uint16))
        assert scene.wavelengths is not None and scene.wavelengths.tolist() == [400, 420, 430, 450]
        values = scene.read(slice(1, 3), slice(2, 5)).values
        assert values.dtype == np.float32 and values.flags.c_contiguous
        np.testing.assert_array_equal(values, cube[1:3, 2:5, good != 0])
        assert scene.good_bands is None  # all that it has
    assert marked.fwhm is not None and marked.fwhm.tolist() == [0, 2, 3, 5]
    assert whole.bands == 6 and replace(whole, good_bands=np.ones(6)).reader is whole.reader
    stored = Scene.from_array(cube[:, :, good != 0], wavelengths=waves[good != 0])
    assert from_array.fingerprint() == stored.fingerprint() and from_array.digest() == stored.digest()


def test_bad_bands_make_no_pixel_invalid() -> None:
    cube = np.ma.masked_array(np.ones((2, 3, 4)), mask=False)
    cube[0, 0, 1] = np.nan
    cube[0, 1, 1] = -9999
    cube[0, 2, 1] = np.ma.masked
    cube[1, 0, 3] = np.inf
    valid = Scene.from_array(cube, nodata=-9999, good_bands=[True, False, True, True]).read().valid
    np.testing.assert_array_equal(valid, [[True, True, True], [False, True, True]])


def test_flags_of_good_bands_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SceneError, match="4 bands but 3 good-band flags"):
        Scene.from_array(np.zeros((2, 2, 4)), good_bands=[1, 0, 1])
    with pytest.raises(SceneError, match=r"all 4 bands of scene 'plot' are marked bad: at least one good band"):
        Scene.from_array(np.zeros((2, 2, 4)), name="plot", good_bands=np.zeros(4))
    with pytest.raises(SceneError, match="4 bands but 2 wavelengths"):  # those of all bands are expected
        Scene.from_array(np.zeros((2, 2, 4)), wavelengths=[1, 2], good_bands=[1, 0, 1, 0])


def test_tiles_cover_everything_once() -> None:
    seen = np.zeros((37, 21), int)
    for tile in tile_windows(Window(0, 37, 0, 21), 16):
        seen[tile.rows, tile.cols] += 1
    assert (seen == 1).all()


def test_labels_take_doubles_and_find_their_classes() -> None:
    labels = Labels.from_array(np.array([[0.0, 10.0], [1.0, 10.0]]))
    assert labels.array.dtype == np.int16
    assert labels.legend.labels.tolist() == [1, 10]
    assert labels.counts() == {1: 1, 10: 2}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2), int), "no class"),
        (np.full((2, 2), -1), "from -1"),
        (np.full((2, 2), 40_000), "32767"),
        (np.full((2, 2), 1.5), "fractions"),
        (np.array([[np.nan, 1]]), "NaN"),
        (np.zeros((2, 2, 2)), "3-D"),
        (np.array([["a"]]), "whole class numbers"),
    ],
)
def test_arrays_that_are_no_labels_are_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(LabelsError, match=message):
        Labels.from_array(array)


def test_labels_of_another_shape_are_refused() -> None:
    scene = Scene.from_array(np.zeros((3, 4, 5)))
    with pytest.raises(LabelsError, match=r"2 x 2 pixels but scene .* has 3 x 4"):
        Labels.from_array(np.ones((2, 2), int)).check_fits(scene)
    with pytest.raises(LabelsError, match="transposed"):
        Labels.from_array(np.ones((4, 3), int)).check_fits(scene)


def test_bands_that_come_first_are_recognised() -> None:
    scene = Scene.from_array(np.ones((4, 5, 6)))
    with pytest.raises(LabelsError, match="bands seem to come first"):
        Labels.from_array(np.ones((5, 6), dtype=int)).check_fits(scene)


def test_masked_labels_are_unlabelled() -> None:
    array = np.ma.masked_equal([[1, 2], [2, 3]], 2)
    np.testing.assert_array_equal(Labels.from_array(array).array, [[1, 0], [0, 3]])


def test_labels_on_invalid_pixels_are_dropped_with_a_count() -> None:
    cube = np.ones((2, 3, 4))
    cube[0, :2] = np.nan
    scene = Scene.from_array(cube)
    labels = Labels.from_array([[1, 2, 0], [1, 0, 2]])
    with pytest.warns(DataWarning, match="2 labelled pixels"):
        kept = labels.where_valid(scene)
    assert kept.array.tolist() == [[0, 0, 0], [1, 0, 2]]
    with pytest.raises(LabelsError, match="all 2 labelled"):
        Labels.from_array([[1, 2, 0], [0, 0, 0]]).where_valid(scene)


def test_labels_are_checked_against_a_scene_once() -> None:
    cube = np.ones((2, 3, 4))
    cube[0, :2] = np.nan
    read = Scene.from_array(cube)
    windows: list[tuple[slice, slice]] = []

    def reader(rows: slice, cols: slice) -> Pixels:
        windows.append((rows, cols))
        return read.reader(rows, cols)

    scene, labels = replace(read, reader=reader), Labels.from_array([[1, 2, 0], [1, 0, 2]])
    with pytest.warns(DataWarning, match="2 labelled pixels"):
        kept = labels.where_valid(scene)
    assert len(windows) == 1
    assert labels.where_valid(scene) is kept and kept.where_valid(scene) is kept and len(windows) == 1  # no warning
    with pytest.warns(DataWarning, match="2 labelled pixels"):
        assert labels.where_valid(read) is not kept  # another scene
    valid = Scene.from_array(np.ones((2, 3, 4)))
    assert labels.where_valid(valid) is labels and labels.where_valid(valid) is labels
    assert pickle.loads(pickle.dumps(labels)).array.tolist() == labels.array.tolist()


def test_legends_are_ordered_distinct_and_can_be_narrowed() -> None:
    legend = Legend.of([3, 1, 2], ["a", "b", "c"])
    assert [entry.name for entry in legend] == ["a", "b", "c"]
    assert [entry.label for entry in legend.only([3, 1])] == [1, 3]
    assert legend.only([2, 9]).entries[1].name == "class 9"
    with pytest.raises(LabelsError, match="distinct"):
        Legend((LegendEntry(1, "a", (0, 0, 0)), LegendEntry(1, "b", (1, 1, 1))))
    with pytest.raises(LabelsError, match="1 or more"):
        Legend((LegendEntry(0, "a", (0, 0, 0)),))
    with pytest.raises(LabelsError, match="2 names for 3"):
        Legend.of([1, 2, 3], ["a", "b"])


def test_an_array_with_a_georeference() -> None:
    grid = (30.0, 0.0, 600000.0, 0.0, -30.0, 5000000.0)
    scene = Scene.from_array(np.ones((3, 4, 2)), crs="EPSG:32633", transform=(*grid, 0, 0, 1), good_bands=[1, 0])
    assert (scene.shape, scene.transform) == ((3, 4, 1), grid) and "UTM zone 33N" in str(scene.crs)
    assert Scene.from_array(np.ones((3, 4, 2)), transform=grid).crs is None
    with pytest.raises(SceneError, match="the coordinate system 'EPSG:0' can't be read: give WKT, or EPSG:N"):
        Scene.from_array(np.ones((3, 4, 2)), crs="EPSG:0", transform=grid)
    of_gdal = (600000.0, 30.0, 0.0, 5000000.0, 0.0, -30.0)
    for wrong in (of_gdal, grid[:5], (30.0, 0.0, 1.0, 0.0, 0.0, 1.0), (np.nan, *grid[1:])):
        with pytest.raises(SceneError, match=r"is no grid: six numbers .*rasterio\.Affine\.from_gdal"):
            Scene.from_array(np.ones((3, 4, 2)), crs="EPSG:32633", transform=wrong)


def test_names_of_classes_by_their_numbers() -> None:
    labels = Labels.from_array([[1, 0, 7]], {7: "water", 1: "soil", 9: "snow"})
    assert [(entry.label, entry.name) for entry in labels.legend] == [(1, "soil"), (7, "water")]
    with pytest.raises(LabelsError, match=r"names by class number, such as .* are expected and list came"):
        Labels.from_array([[1, 0, 7]], ["soil", "water"])  # type: ignore[arg-type]
