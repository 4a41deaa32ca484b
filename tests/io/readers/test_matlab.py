"""MATLAB files of every version: which array is read, and its values."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from hypercaps.errors import LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from support.matlab_files import (
    CUBE,
    GT,
    IN_HDF5,
    SAVES,
    Save,
    element,
    mat5,
    save_v7,
    save_v73,
)
from support.plain_user import plain_user

pytestmark = pytest.mark.usefixtures("quick")


# Good files


@pytest.mark.parametrize("save", SAVES)
def test_every_version_gives_the_same_cube(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "plot.mat", {"cube": CUBE})
    scene = open_scene(tmp_path / "plot.mat")
    assert (scene.name, scene.shape, scene.dtype) == ("plot", CUBE.shape, np.dtype(np.uint16))
    values, valid = scene.read()
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, CUBE)
    assert valid.all()


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "single", "double"])
def test_every_number_type(save: Save, dtype: str, tmp_path: Path) -> None:
    cube = (CUBE.astype(dtype) - 9).astype(dtype)
    save(tmp_path / "a.mat", {"cube": cube})
    np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, cube.astype(np.float32))


@pytest.mark.parametrize("save", SAVES)
def test_windows_agree_with_the_array(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"cube": CUBE})
    scene = open_scene(tmp_path / "a.mat")
    for rows, cols in [
        (slice(0, 1), slice(0, 1)),
        (slice(1, 4), slice(2, 5)),
        (slice(5, 6), slice(0, 5)),
        (slice(2, 2), slice(0, 3)),
    ]:
        np.testing.assert_array_equal(scene.read(rows, cols).values, CUBE[rows, cols])


@pytest.mark.parametrize("save", IN_HDF5)
def test_v73_is_read_by_window(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a.mat", {"cube": CUBE})
    read: list[int] = []
    whole = h5py.Dataset.__getitem__

    def counted(dataset: h5py.Dataset, key: Any, **options: Any) -> Any:
        got = whole(dataset, key, **options)
        read.append(np.size(got))
        return got

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    scene = open_scene(tmp_path / "a.mat")
    assert read == []
    scene.read(slice(1, 3), slice(2, 4))
    assert read == [2 * 2 * 8]


@pytest.mark.parametrize("save", SAVES)
def test_labels_stored_as_doubles(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "gt.mat", {"gt": GT.astype(np.float64)})
    labels = open_labels(tmp_path / "gt.mat")
    assert labels.array.dtype == np.int16
    np.testing.assert_array_equal(labels.array, GT)
    assert labels.legend.labels.tolist() == [1, 2, 3]


def test_labels_of_version_4(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "gt.mat", {"gt": GT.astype(np.float64)}, format="4")
    np.testing.assert_array_equal(open_labels(tmp_path / "gt.mat").array, GT)


def test_version_4_has_no_room_for_a_cube(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"flat": GT}, format="4")
    with pytest.raises(SceneError, match=r"no 3-D array.*flat \(6 x 5\)"):
        open_scene(tmp_path / "a.mat")


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("wrong", [0.5, np.nan, np.inf])
def test_labels_with_fractions_are_refused(save: Save, wrong: float, tmp_path: Path) -> None:
    gt = GT.astype(np.float64)
    gt[2, 3] = wrong
    save(tmp_path / "gt.mat", {"gt": gt})
    with pytest.raises(LabelsError, match="whole class numbers"):
        open_labels(tmp_path / "gt.mat")


# Which array


@pytest.mark.parametrize("save", SAVES)
def test_the_only_cube_is_found_among_other_arrays(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"gt": GT, "cube": CUBE, "mask": GT, "waves": np.ones((1, 8))})
    np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, CUBE)


@pytest.mark.parametrize("save", SAVES)
def test_labels_are_found_beside_the_cube_and_lists(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"cube": CUBE, "waves": np.ones((1, 8)), "gt": GT, "scale": np.ones((1, 1))})
    np.testing.assert_array_equal(open_labels(tmp_path / "a.mat").array, GT)


@pytest.mark.parametrize("save", SAVES)
def test_several_cubes_are_listed_and_one_is_asked_for(save: Save, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    save(path, {"early": CUBE, "late": CUBE + 1, "gt": GT})
    with pytest.raises(SceneError) as caught:
        open_scene(path)
    for part in ("early (6 x 5 x 8)", "late (6 x 5 x 8)", "gt (6 x 5)", f"{path}:early"):
        assert part in str(caught.value)
    np.testing.assert_array_equal(open_scene(f"{path}:early").read().values, CUBE)
    np.testing.assert_array_equal(open_scene(f"{path}:late").read().values, CUBE + 1)


@pytest.mark.parametrize("save", SAVES)
def test_several_label_rasters_are_listed_and_one_is_asked_for(save: Save, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    save(path, {"train": GT, "test": np.flip(GT, 0)})
    with pytest.raises(LabelsError, match=r"train \(6 x 5\)"):
        open_labels(path)
    np.testing.assert_array_equal(open_labels(f"{path}:test").array, np.flip(GT, 0))


@pytest.mark.parametrize("save", SAVES)
def test_a_wrong_key_lists_what_there_is(save: Save, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    save(path, {"cube": CUBE, "gt": GT})
    with pytest.raises(SceneError, match=r"no array 'cub'.*cube \(6 x 5 x 8\)") as caught:
        open_scene(f"{path}:cub")
    assert "gt (6 x 5)" in str(caught.value)
    with pytest.raises(LabelsError, match="no array 'truth'"):
        open_labels(f"{path}:truth")


@pytest.mark.parametrize("save", SAVES)
def test_a_file_without_a_cube(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"gt": GT, "mask": GT})
    with pytest.raises(SceneError, match=r"no 3-D array .*gt \(6 x 5\), mask \(6 x 5\)|no 3-D array .*mask"):
        open_scene(tmp_path / "a.mat")


@pytest.mark.parametrize("save", SAVES)
def test_a_flat_array_asked_for_as_a_scene(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"cube": CUBE, "gt": GT})
    with pytest.raises(SceneError, match=r"3-D array .*is 2-D with shape \(6, 5\)"):
        open_scene(f"{tmp_path / 'a.mat'}:gt")


@pytest.mark.parametrize("save", SAVES)
def test_a_cube_asked_for_as_labels(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"cube": CUBE})
    with pytest.raises(LabelsError, match="no 2-D array"):
        open_labels(tmp_path / "a.mat")
    with pytest.raises(LabelsError, match=r"2-D array .*is 3-D"):
        open_labels(f"{tmp_path / 'a.mat'}:cube")


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_not_numbers_is_passed_over(compressed: bool, tmp_path: Path) -> None:
    cells = np.empty((2, 3, 4), dtype=object)
    cells[:] = "x"
    others = {
        "note": "text",
        "blank": "",
        "cells": cells,
        "none": np.empty((0, 0), dtype=object),
        "struct": {"a": 1},
        "sparse": scipy.sparse.eye_array(4, format="csc"),
    }
    scipy.io.savemat(tmp_path / "a.mat", others | {"cube": CUBE, "hollow": np.empty((0, 0))}, do_compression=compressed)
    assert [array.key for array in detect_file(tmp_path / "a.mat").arrays] == ["cube", "hollow"]
    np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, CUBE)


def test_what_is_not_numbers_is_passed_over_in_v73(tmp_path: Path) -> None:
    save_v73(tmp_path / "a.mat", {"cube": CUBE})
    with h5py.File(tmp_path / "a.mat", "r+") as file:
        file.create_group("#refs#")
        file["cells"] = np.array([[["a", "b"]]], dtype=h5py.string_dtype())
    np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, CUBE)


def test_arrays_that_lie_in_groups_only(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["site/reflectance"] = CUBE
        file["site/truth/classes"] = GT
        file["version"] = "1"
        file.create_group("#refs#")["a"] = CUBE
    np.testing.assert_array_equal(open_scene(tmp_path / "a.h5").read().values, CUBE)
    np.testing.assert_array_equal(open_scene(f"{tmp_path / 'a.h5'}:site/reflectance").read().values, CUBE)
    np.testing.assert_array_equal(open_labels(f"{tmp_path / 'a.h5'}:site/truth/classes").array, GT)
    with pytest.raises(SceneError, match="no array 'site/none': it holds site/reflectance"):
        open_scene(f"{tmp_path / 'a.h5'}:site/none")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["top"] = CUBE + 1  # then groups are not looked at
    np.testing.assert_array_equal(open_scene(tmp_path / "a.h5").read().values, CUBE + 1)


def test_links_in_groups_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["site/reflectance"] = CUBE
        file["site/other"] = h5py.ExternalLink("b.h5", "/cube")
    with pytest.raises(SceneError, match="refers elsewhere by its entry 'site/other'"):
        open_scene(tmp_path / "a.h5")


def test_a_complex_cube_is_refused(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"cube": CUBE.astype(complex) + 1j})
    with pytest.raises(SceneError, match="complex numbers in 'cube'"):
        open_scene(tmp_path / "a.mat")


def test_a_file_without_numbers(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"note": "text"})
    with pytest.raises(SceneError, match="holds nothing"):
        open_scene(tmp_path / "a.mat")


def test_a_colon_in_a_path_is_part_of_it(tmp_path: Path) -> None:
    save_v7(tmp_path / "june:1992.mat", {"a": CUBE, "b": CUBE + 1})
    np.testing.assert_array_equal(open_scene(f"{tmp_path / 'june:1992.mat'}:b").read().values, CUBE + 1)
    save_v7(tmp_path / "june:12.mat", {"a": CUBE})
    np.testing.assert_array_equal(open_scene(tmp_path / "june:12.mat").read().values, CUBE)


def test_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_v7(tmp_path / "a.mat", {"a": CUBE, "b": CUBE + 1})
    np.testing.assert_array_equal(open_scene("~/a.mat:b").read().values, CUBE + 1)


@pytest.mark.parametrize("save", SAVES)
def test_content_decides_and_not_the_name(save: Save, tmp_path: Path) -> None:
    save(tmp_path / "a.mat", {"cube": CUBE})
    (tmp_path / "a.mat").rename(tmp_path / "a.data")
    np.testing.assert_array_equal(open_scene(tmp_path / "a.data").read().values, CUBE)


# Paths that are no files


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="is a folder"):
        open_scene(tmp_path)
    with pytest.raises(LabelsError, match="is a folder"):
        open_labels(tmp_path)


def test_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=r"no file .*nowhere\.mat.*public scene.*indian-pines"):
        open_scene(tmp_path / "nowhere.mat")
    with pytest.raises(SceneError, match=r"no file .*nowhere\.mat:cube"):
        open_scene(f"{tmp_path / 'nowhere.mat'}:cube")
    with pytest.raises(LabelsError, match="no file"):
        open_labels(tmp_path / "nowhere.mat")


def test_a_name_longer_than_any_file_has() -> None:
    with pytest.raises(SceneError, match=r"x{100}"):
        open_scene("x" * 400 + ".mat")


@pytest.mark.parametrize("save", [save_v7, save_v73])
def test_a_file_that_may_not_be_read(save: Save) -> None:
    with plain_user() as folder:
        save(folder / "a.mat", {"cube": CUBE, "gt": GT})
        (folder / "a.mat").chmod(0)
        with pytest.raises(SceneError, match="permission denied"):
            open_scene(folder / "a.mat")
        with pytest.raises(LabelsError, match="permission denied"):
            open_labels(folder / "a.mat")


def test_a_file_in_a_folder_that_may_not_be_entered() -> None:
    with plain_user() as folder:
        inner = folder / "locked"
        inner.mkdir()
        save_v7(inner / "a.mat", {"cube": CUBE})
        inner.chmod(0)
        with pytest.raises(SceneError, match=r"a\.mat"):
            open_scene(inner / "a.mat")


# Versions 5 to 7, read without scipy


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
@pytest.mark.parametrize("shape", [(6, 5, 8), (1, 1), (1, 3), (0, 4)])
def test_arrays_are_those_of_scipy(shape: tuple[int, ...], dtype: str, compressed: bool, tmp_path: Path) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    scipy.io.savemat(tmp_path / "a.mat", {"n": np.ones((2, 2)), "array": array}, do_compression=compressed)
    loaded = {each.key: each for each in detect_file(tmp_path / "a.mat").arrays}["array"].load()
    expected = scipy.io.loadmat(tmp_path / "a.mat")["array"]
    assert (loaded.shape, loaded.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(np.asarray(loaded), expected)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(order: str, compressed: bool, tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(mat5(CUBE, order, compressed=compressed))
    np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, CUBE)


def test_numbers_that_do_not_fill_their_array(tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(mat5(CUBE, "<", compressed=True, claimed=(60000, 50000, 800)))
    with pytest.raises(SceneError, match=r"a\.mat .*is truncated, damaged"):
        open_scene(tmp_path / "a.mat")


def test_v7_is_described_without_decompressing_it(tmp_path: Path) -> None:
    save_v7(tmp_path / "a.mat", {"cube": np.zeros((400, 400, 100), dtype=np.float32)})
    tracemalloc.start()
    try:
        scene = open_scene(tmp_path / "a.mat")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (scene.shape, scene.dtype) == ((400, 400, 100), np.dtype(np.float32))
    assert peak < 8e6
    np.testing.assert_array_equal(scene.read(slice(0, 2), slice(0, 3)).values, np.zeros((2, 3, 100)))


def test_v7_that_claims_much_more_than_it_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypercaps.io.limits.SMALL", 1 << 20)
    save_v7(tmp_path / "a.mat", {"cube": np.zeros((100, 100, 300), dtype=np.float32)})
    with pytest.raises(SceneError, match=r"claims 12,000,000 bytes for array 'cube' and stores 1\d,\d\d\d, which"):
        open_scene(tmp_path / "a.mat")


@pytest.mark.parametrize("kind", ["name", "flags"])
def test_a_long_name_is_not_decompressed(kind: str, tmp_path: Path) -> None:
    """A name of 60 MB, of an array of numbers and of a text."""
    flags = element(6, struct.pack("<2I", 11 if kind == "name" else 4, 0), "<")
    matrix = element(14, flags + element(5, struct.pack("<2i", 1, 1), "<") + element(1, b"a" * 60_000_000, "<"), "<")
    deflated = zlib.compress(matrix)
    head = mat5(CUBE, "<")
    (tmp_path / "a.mat").write_bytes(head + struct.pack("<2I", 15, len(deflated)) + deflated)
    del matrix
    tracemalloc.start()
    try:
        if kind == "name":
            with pytest.raises(SceneError, match=r"a\.mat"):
                open_scene(tmp_path / "a.mat")
        else:  # not a number: never looked at
            np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, CUBE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6
