"""MATLAB files of every version: the right cube out of a good one, one clear sentence for a bad one."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil
import pytest
import scipy.io
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers import hdf5
from support.plain_user import plain_user

# Every value once and every side of another length: no mix-up of axes stays unseen.
CUBE = np.arange(6 * 5 * 8, dtype=np.uint16).reshape(6, 5, 8)
GT = (np.arange(30).reshape(6, 5) % 4).astype(np.uint8)

Save = Callable[[Path, dict[str, np.ndarray]], None]


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the trial in another process, with one second of processor time for small files."""
    monkeypatch.setattr(hdf5, "_SECONDS", 1)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """That trial costs a third of a second."""
    if "guarded" not in request.fixturenames:
        monkeypatch.setattr(hdf5, "_is_survived", lambda path: True)


def save_v5(path: Path, arrays: dict[str, np.ndarray]) -> None:
    scipy.io.savemat(path, arrays, do_compression=False)


def save_v7(path: Path, arrays: dict[str, np.ndarray]) -> None:
    scipy.io.savemat(path, arrays, do_compression=True)


def save_v73(path: Path, arrays: dict[str, np.ndarray], **options: Any) -> None:
    """As MATLAB does: a text of its own in front, axes reversed, the class as an attribute."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, array in arrays.items():
            dataset = file.create_dataset(key, data=array.T, **options)
            dataset.attrs["MATLAB_class"] = np.bytes_({"float64": "double"}.get(array.dtype.name, array.dtype.name))
    _put_matlab_text(path)


def save_v73_compressed(path: Path, arrays: dict[str, np.ndarray]) -> None:
    save_v73(path, arrays, compression="gzip", chunks=True)


def save_hdf5_in_mat(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """What other programs write as v7.3: no mark, axes in the usual order."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, array in arrays.items():
            file[key] = array
    _put_matlab_text(path)


def save_plain_hdf5(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array


def _put_matlab_text(path: Path) -> None:
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema 1.00 ."
    with path.open("r+b") as file:
        file.write(text.ljust(124) + b"\x00\x02IM")


SAVES = [save_v5, save_v7, save_v73, save_v73_compressed, save_hdf5_in_mat, save_plain_hdf5]
IN_HDF5 = [save_v73, save_v73_compressed, save_hdf5_in_mat]


def content(save: Save, arrays: dict[str, np.ndarray], folder: Path) -> bytes:
    save(folder / "whole.mat", arrays)
    return (folder / "whole.mat").read_bytes()


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


# Damaged files

CUTS = [0, 1, 10, 19, 20, 60, 123, 127, 128, 129, 135, 136, 140, 184, 0.5, 0.75, 0.9, -9, -8, -4, -2, -1]
HDF5_CUTS = [0, 1, 19, 20, 128, 511, 512, 513, 519, 520, 521, 560, 607, 0.3, 0.5, 0.75, 0.9, -9, -8, -4, -2, -1]


def shortened(whole: bytes, cut: float) -> bytes:
    """The first ``cut`` bytes; a fraction of them, or all but so many."""
    part = whole[: int(len(whole) * cut)] if isinstance(cut, float) else whole[:cut]
    assert len(part) < len(whole)
    return part


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("save", [save_v5, save_v7])
def test_truncated(save: Save, cut: float, tmp_path: Path) -> None:
    (tmp_path / "cut.mat").write_bytes(shortened(content(save, {"cube": CUBE}, tmp_path), cut))
    with pytest.raises(SceneError, match=r"cut\.mat"):
        open_scene(tmp_path / "cut.mat")


@pytest.mark.parametrize("cut", HDF5_CUTS)
@pytest.mark.parametrize("save", IN_HDF5)
def test_truncated_v73(save: Save, cut: float, tmp_path: Path) -> None:
    (tmp_path / "cut.mat").write_bytes(shortened(content(save, {"cube": CUBE}, tmp_path), cut))
    with pytest.raises(SceneError, match=r"cut\.mat"):
        open_scene(tmp_path / "cut.mat")


def test_plain_hdf5_that_claims_more_than_it_holds(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("cube", (10**6, 10**6, 200), "i2", chunks=(10, 10, 200))
    with pytest.raises(SceneError, match="claims 400,000,000,000,000 bytes"):
        open_scene(tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("cube", (20, 10, 5), "i2", chunks=(10, 10, 5))[:10] = 1
    with pytest.raises(SceneError, match="never written to its end: '/cube' has 1 of 2 chunks"):
        open_scene(tmp_path / "b.h5")


@pytest.mark.parametrize("save", [save_v5, save_v7, save_v73])
def test_truncated_labels(save: Save, tmp_path: Path) -> None:
    whole = content(save, {"gt": GT.astype(np.float64)}, tmp_path)
    for cut in (0, 10, 0.5, -1):
        (tmp_path / "cut.mat").write_bytes(shortened(whole, cut))
        with pytest.raises(LabelsError, match=r"cut\.mat"):
            open_labels(tmp_path / "cut.mat")


def test_the_message_on_a_truncated_file_says_what_to_do(tmp_path: Path) -> None:
    whole = content(save_v7, {"cube": CUBE}, tmp_path)
    (tmp_path / "cut.mat").write_bytes(whole[:300])
    with pytest.raises(SceneError, match=r"300 bytes.*truncated.*whole file was expected.*get it again"):
        open_scene(tmp_path / "cut.mat")


@pytest.mark.parametrize("save", [save_v5, save_v7])
def test_truncated_behind_the_cube(save: Save, tmp_path: Path) -> None:
    """The cube is whole and the labels after it are not: the cube as it is or an error, and no labels."""
    whole = content(save, {"cube": CUBE, "gt": GT}, tmp_path)
    start = len(content(save, {"cube": CUBE}, tmp_path))
    for cut in range(start + 1, len(whole), 3):
        (tmp_path / "cut.mat").write_bytes(whole[:cut])
        try:
            scene = open_scene(tmp_path / "cut.mat")
        except SceneError:
            pass
        else:
            np.testing.assert_array_equal(scene.read().values, CUBE)
        with pytest.raises(LabelsError):
            open_labels(tmp_path / "cut.mat")


HEADS = {
    "none": b"",
    "v5": b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM",
    "v7.3": b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM",
    "hdf5": b"\x89HDF\r\n\x1a\n",
    "npy": b"\x93NUMPY\x01\x00",
    "zip": b"PK\x03\x04",
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", ["noise.mat", "noise.npy", "noise"])
def test_random_bytes(head: str, name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for size in (1, 7, 100, 600, 5000):
        (tmp_path / name).write_bytes(HEADS[head] + rng.bytes(size))
        with pytest.raises(SceneError, match="noise"):
            open_scene(tmp_path / name)
        with pytest.raises(LabelsError, match="noise"):
            open_labels(tmp_path / name)


@pytest.mark.parametrize("name", ["empty.mat", "empty.npy", "empty.npz", "empty"])
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(SceneError, match="empty"):
        open_scene(tmp_path / name)
    with pytest.raises(LabelsError, match="empty"):
        open_labels(tmp_path / name)


def test_text_and_pictures_are_told_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a,b,c\n" * 300)
    with pytest.raises(SceneError, match=r"not supported: GeoTIFF, ENVI, .*\.mat .*\.npy and \.npz"):
        open_scene(tmp_path / "notes.txt")
    assert detect_file(tmp_path / "notes.txt").kind == "unknown"


_V7 = io.BytesIO()
scipy.io.savemat(_V7, {"cube": CUBE}, do_compression=True)
WHOLE_V7 = _V7.getvalue()


@settings(max_examples=300, deadline=None, database=None)
@given(st.integers(0, len(WHOLE_V7) - 1), st.integers(1, 255))
@example(len(WHOLE_V7) - 1, 1)
@example(128, 1)
def test_one_wrong_byte_in_a_compressed_file(tmp_path_factory: pytest.TempPathFactory, place: int, change: int) -> None:
    """An error, or the right cube; another one only where the compression's checksum can't tell either."""
    damaged = bytearray(WHOLE_V7)
    damaged[place] ^= change
    path = tmp_path_factory.getbasetemp() / "one-wrong-byte.mat"
    path.write_bytes(damaged)
    try:
        values = open_scene(path).read().values
    except SceneError as error:
        assert path.name in str(error)
        return
    if values.shape != CUBE.shape or not (values == CUBE).all():
        zlib.decompress(damaged[136:])  # raises where the checksum tells


def test_a_wrong_data_type_does_not_end_the_program(tmp_path: Path) -> None:
    """In a process of its own, since the danger is that the process dies."""
    whole = bytearray(content(save_v5, {"cube": CUBE}, tmp_path))
    data = whole.index(CUBE.tobytes("F"))  # eight bytes before it is the tag: type and size
    assert whole[data - 8] == 4  # unsigned 16 bit
    paths = []
    for kind in (0, 8, 10, 11, 20, 132, 4 + 256, 4 + 512, 65535):
        whole[data - 8 : data - 4] = kind.to_bytes(4, "little")
        paths.append(tmp_path / f"kind-{kind}.mat")
        paths[-1].write_bytes(whole)
    program = (
        "import sys\n"
        "from hypercaps.errors import SceneError\n"
        "from hypercaps.io.open import open_scene\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        open_scene(path)\n"
        "        print('opened')\n"
        "    except SceneError:\n"
        "        print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode} after {done.stdout!r}: {done.stderr[-300:]}"
    assert done.stdout.split() == ["refused"] * len(paths)


def damage_inside(path: Path, key: str) -> None:
    """Another byte in the middle of the first compressed piece of a dataset."""
    with h5py.File(path, "r") as file:
        _, stored = file[key].id.read_direct_chunk((0,) * file[key].ndim)
    raw = bytearray(path.read_bytes())
    raw[raw.index(stored) + len(stored) // 2] ^= 0xFF
    path.write_bytes(raw)


def test_v73_damaged_inside_is_said_when_it_is_read(tmp_path: Path) -> None:
    """Opening reads no pixels, so the damage shows later; the user hears the same sentence."""
    save_v73_compressed(tmp_path / "a.mat", {"cube": CUBE})
    damage_inside(tmp_path / "a.mat", "cube")
    with pytest.raises(SceneError, match=r"a\.mat"):
        open_scene(tmp_path / "a.mat").read()


def test_v73_labels_damaged_inside(tmp_path: Path) -> None:
    save_v73_compressed(tmp_path / "gt.mat", {"gt": GT})
    damage_inside(tmp_path / "gt.mat", "gt")
    with pytest.raises(LabelsError, match=r"gt\.mat"):
        open_labels(tmp_path / "gt.mat")


# Files that the HDF5 library hangs on


def endless(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """A v7.3 file whose list of names has an unused piece that names itself as the next: HDF5 2.0 follows for ever."""
    save_v73(path, arrays)
    raw = bytearray(path.read_bytes())
    heap = raw.index(b"HEAP")
    unused, place = (int.from_bytes(raw[heap + at : heap + at + 8], "little") for at in (16, 24))
    piece = 512 + place + unused  # MATLAB's own text comes first
    raw[piece : piece + 8] = unused.to_bytes(8, "little")
    path.write_bytes(raw)
    return path


def is_open_here(path: Path) -> bool:
    return str(path) in {file.path for file in psutil.Process().open_files()}


def test_hdf5_hangs_on_an_endless_file(tmp_path: Path) -> None:
    """Otherwise the tests below test nothing."""
    program = (
        "import resource, sys, h5py; resource.setrlimit(resource.RLIMIT_CPU, (1, 1)); list(h5py.File(sys.argv[1], 'r'))"
    )
    path = endless(tmp_path / "a.mat", {"cube": CUBE})
    assert subprocess.run([sys.executable, "-c", program, path], timeout=60, check=False).returncode < 0


def test_endless_scenes_and_labels_are_refused(tmp_path: Path, guarded: None) -> None:
    path = endless(tmp_path / "a.mat", {"cube": CUBE, "gt": GT})
    with pytest.raises(SceneError, match=r"a\.mat \([\d,]+ bytes\) is damaged: HDF5 itself breaks on it; get it again"):
        open_scene(path)
    with pytest.raises(LabelsError, match="HDF5 itself breaks on it"):
        open_labels(f"{path}:gt")
    assert not is_open_here(path)


def test_commands_refuse_an_endless_file_with_exit_code_2(tmp_path: Path, guarded: None) -> None:
    path = endless(tmp_path / "a.mat", {"cube": CUBE})
    np.save(tmp_path / "gt.npy", GT)
    np.save(tmp_path / "cube.npy", CUBE)
    out = ["--out", str(tmp_path / "out")]
    for command in (
        ["info", str(path)],
        ["train", str(path), str(tmp_path / "gt.npy"), *out],
        ["train", str(tmp_path / "cube.npy"), str(path), *out],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2, done.output
        assert "HDF5 itself breaks on it" in " ".join(done.output.split()) and "Traceback" not in done.output


def test_a_sound_file_passes_the_trial_once(tmp_path: Path, guarded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    save_v73_compressed(tmp_path / "a.mat", {"cube": CUBE, "gt": GT})
    np.testing.assert_array_equal(open_scene(tmp_path / "a.mat").read().values, CUBE)
    monkeypatch.setattr(hdf5, "_is_survived", lambda path: pytest.fail("tried again"))
    np.testing.assert_array_equal(open_labels(tmp_path / "a.mat").array, GT)


@pytest.mark.parametrize("save", [*IN_HDF5, save_plain_hdf5])
def test_no_file_stays_open(save: Save, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    save(path, {"cube": CUBE, "gt": GT})
    scene, labels = open_scene(path), open_labels(path)
    assert not is_open_here(path)
    values = scene.read(slice(1, 3), slice(2, 4)).values
    assert not is_open_here(path)
    np.testing.assert_array_equal(values, CUBE[1:3, 2:4])
    np.testing.assert_array_equal(labels.array, GT)


def test_no_file_stays_open_that_is_refused(tmp_path: Path) -> None:
    linked, partial = tmp_path / "linked.mat", tmp_path / "partial.mat"
    with h5py.File(linked, "w") as file:
        file["cube"] = CUBE
        file["link"] = h5py.ExternalLink("elsewhere.h5", "/cube")
    with h5py.File(partial, "w") as file:
        file.create_dataset("cube", (20, 10, 5), "i2", chunks=(10, 10, 5))[:10] = 1
    for path in (linked, partial):
        with pytest.raises(SceneError) as caught:  # kept, and what its traceback refers to with it
            open_scene(path)
        assert not is_open_here(path), caught


# Files that lead to other files


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that another one must not be able to show."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["cube"] = CUBE
    CUBE.tofile(tmp_path / "secret.raw")
    return tmp_path / "secret.h5"


@pytest.mark.parametrize("beside", [False, True])
def test_an_external_link_is_refused(beside: bool, secret: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file["link"] = h5py.ExternalLink(str(secret), "/cube")
        if beside:
            file["cube"] = CUBE
    with pytest.raises(SceneError, match="by its entry 'link'"):
        open_scene(tmp_path / "a.mat")


def test_a_link_to_an_external_link_is_refused(secret: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file.create_group("inner")["far"] = h5py.ExternalLink(str(secret), "/cube")
        file["cube"] = h5py.SoftLink("/inner/far")
    with h5py.File(tmp_path / "a.mat", "r") as file:
        np.testing.assert_array_equal(file["cube"][:], CUBE)  # it would work
    with pytest.raises(SceneError, match=r"a\.mat"):
        open_scene(tmp_path / "a.mat")


def test_external_storage_is_refused(secret: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w") as file:
        stored = [(str(secret.with_suffix(".raw")), 0, CUBE.nbytes)]
        file.create_dataset("cube", CUBE.shape, CUBE.dtype, external=stored)
    with h5py.File(tmp_path / "a.mat", "r") as file:
        np.testing.assert_array_equal(file["cube"][:], CUBE)  # it would work
    with pytest.raises(SceneError, match="keeps 'cube' in another file"):
        open_scene(tmp_path / "a.mat")


def test_a_virtual_dataset_is_refused(secret: Path, tmp_path: Path) -> None:
    layout = h5py.VirtualLayout(CUBE.shape, CUBE.dtype)
    layout[:] = h5py.VirtualSource(str(secret), "cube", CUBE.shape)
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file.create_virtual_dataset("cube", layout)
    with h5py.File(tmp_path / "a.mat", "r") as file:
        np.testing.assert_array_equal(file["cube"][:], CUBE)  # it would work
    with pytest.raises(SceneError, match="keeps 'cube' in another file"):
        open_scene(tmp_path / "a.mat")


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


def element(kind: int, content: bytes, order: str) -> bytes:
    return struct.pack(f"{order}2I", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def mat5(array: np.ndarray, order: str, *, compressed: bool = False, claimed: tuple[int, ...] | None = None) -> bytes:
    """A file with one array of uint16, as a machine of byte order ``order`` writes it."""
    flags = element(6, struct.pack(f"{order}2I", 11, 0), order)
    shape = claimed or array.shape
    lengths = element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    numbers = element(4, array.astype(f"{order}u2").tobytes(order="F"), order)
    matrix = element(14, flags + lengths + element(1, b"cube", order) + numbers, order)
    if compressed:
        deflated = zlib.compress(matrix)
        matrix = struct.pack(f"{order}2I", 15, len(deflated)) + deflated
    text = b"MATLAB 5.0 MAT-file".ljust(124)
    return text + struct.pack(f"{order}H", 0x0100) + (b"IM" if order == "<" else b"MI") + matrix


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


def test_a_changed_byte_in_a_compressed_array_is_noticed(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 60000, (60, 50, 20), dtype=np.uint16)
    whole = bytearray(mat5(noise, "<", compressed=True))
    whole[len(whole) // 2] ^= 1
    (tmp_path / "a.mat").write_bytes(whole)
    with pytest.raises(SceneError, match=r"a\.mat"):
        open_scene(tmp_path / "a.mat").read()


# Version 7.3 is HDF5: a lost chunk, inserted bytes


def test_v73_with_a_lost_chunk(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        for key in ("cube", "gt"):
            shape, chunks = ((8, 5, 6), (4, 5, 6)) if key == "cube" else ((5, 6), (5, 3))
            dataset = file.create_dataset(key, shape, "f8", chunks=chunks, compression="gzip")
            dataset[tuple(slice(0, length) for length in chunks)] = 1
            dataset.attrs["MATLAB_class"] = np.bytes_("double")
    _put_matlab_text(tmp_path / "a.mat")
    with pytest.raises(SceneError, match="'/cube' has 1 of 2 chunks"):
        open_scene(tmp_path / "a.mat")
    with pytest.raises(LabelsError, match="'/gt' has 1 of 2 chunks"):
        open_labels(tmp_path / "a.mat")


@pytest.mark.parametrize("save", [save_v73, save_hdf5_in_mat, save_plain_hdf5])
def test_bytes_inserted_into_hdf5_are_reported(save: Save, tmp_path: Path) -> None:
    whole = content(save, {"cube": CUBE}, tmp_path)
    (tmp_path / "a.mat").write_bytes(whole[:-100] + b"\r" * 3 + whole[-100:])
    with pytest.warns(DataWarning, match=r"a\.mat has 3 bytes more than it describes"):
        open_scene(tmp_path / "a.mat")
