"""numpy files: read from disk by window, several arrays by key, and nothing pickled ever loaded."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene

CUBE = np.arange(6 * 5 * 8, dtype=np.uint16).reshape(6, 5, 8)
GT = (np.arange(30).reshape(6, 5) % 4).astype(np.uint8)


# Good files


def test_a_npy_cube(tmp_path: Path) -> None:
    np.save(tmp_path / "plot.npy", CUBE)
    scene = open_scene(tmp_path / "plot.npy")
    assert (scene.name, scene.shape, scene.dtype) == ("plot", CUBE.shape, np.dtype(np.uint16))
    np.testing.assert_array_equal(scene.read().values, CUBE)
    np.testing.assert_array_equal(scene.read(slice(1, 3), slice(2, 5)).values, CUBE[1:3, 2:5])


def test_npy_stays_on_disk(tmp_path: Path) -> None:
    """What changes in the file after opening is seen by reading: the pixels were not taken into memory."""
    path = tmp_path / "a.npy"
    np.save(path, CUBE)
    scene = open_scene(path)
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write((4321).to_bytes(2, "little"))
    assert scene.read().values[-1, -1, -1] == 4321


@pytest.mark.parametrize("dtype", [">u2", "<i2", "u1", "i4", "i8", "f2", ">f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_number_type_and_order(dtype: str, order: str, tmp_path: Path) -> None:
    cube = np.asarray(CUBE.astype(dtype), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", cube)
    values = open_scene(tmp_path / "a.npy").read().values
    assert values.dtype == np.dtype(np.float32)
    np.testing.assert_array_equal(values, cube.astype(np.float32))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_npz_with_one_cube(save: object, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", gt=GT, cube=CUBE)  # type: ignore[operator]
    np.testing.assert_array_equal(open_scene(tmp_path / "a.npz").read().values, CUBE)
    np.testing.assert_array_equal(open_labels(tmp_path / "a.npz").array, GT)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_npz_with_several_cubes(save: object, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save(path, early=CUBE, late=CUBE + 1, gt=GT)  # type: ignore[operator]
    with pytest.raises(SceneError) as caught:
        open_scene(path)
    for part in ("early (6 x 5 x 8)", "late (6 x 5 x 8)", "gt (6 x 5)", f"{path}:early"):
        assert part in str(caught.value)
    np.testing.assert_array_equal(open_scene(f"{path}:late").read().values, CUBE + 1)
    with pytest.raises(SceneError, match=r"no array 'middle'.*early"):
        open_scene(f"{path}:middle")


def test_npy_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "gt.npy", GT.astype(np.float64))
    labels = open_labels(tmp_path / "gt.npy")
    np.testing.assert_array_equal(labels.array, GT)
    assert labels.legend.labels.tolist() == [1, 2, 3]


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    with (tmp_path / "cube.data").open("wb") as file:
        np.save(file, CUBE)
    assert detect_file(tmp_path / "cube.data").kind == "numpy"
    np.testing.assert_array_equal(open_scene(tmp_path / "cube.data").read().values, CUBE)


def test_the_listing_of_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", cube=CUBE, gt=GT)
    assert [(array.key, array.shape) for array in detect_file(tmp_path / "a.npz").arrays] == [
        ("cube", (6, 5, 8)),
        ("gt", (6, 5)),
    ]


# Arrays that are no scene


@pytest.mark.parametrize("shape", [(), (30,), (6, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_an_array_with_another_number_of_dimensions(shape: tuple[int, ...], name: str, tmp_path: Path) -> None:
    (np.save if name == "a.npy" else np.savez)(tmp_path / name, np.ones(shape))
    with pytest.raises(SceneError, match="no 3-D array") as caught:
        open_scene(tmp_path / name)
    assert " x ".join(map(str, shape)) in str(caught.value)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128", "bool", "U4", "M8[s]", [("a", "i4"), ("b", "f4")]])
def test_an_array_of_something_else_than_real_numbers(dtype: object, name: str, tmp_path: Path) -> None:
    (np.save if name == "a.npy" else np.savez)(tmp_path / name, np.zeros((2, 3, 4), dtype=dtype))  # type: ignore[call-overload]
    with pytest.raises(SceneError, match="integers or real numbers"):
        open_scene(tmp_path / name)


def test_a_cube_without_a_pixel(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 5, 8)))
    with pytest.raises(SceneError, match="at least 1"):
        open_scene(tmp_path / "a.npy")


def test_a_cube_for_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", CUBE)
    with pytest.raises(LabelsError, match=r"no 2-D array.*6 x 5 x 8"):
        open_labels(tmp_path / "a.npy")


def test_a_npz_without_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz")
    with pytest.raises(SceneError, match=r"a\.npz"):
        open_scene(tmp_path / "a.npz")


# Pickles


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed npz", "beside a cube", "pickle"])
def test_nothing_pickled_is_loaded(kind: str, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    path = tmp_path / ("a.npy" if kind in ("npy", "pickle") else "a.npz")
    objects = np.empty((1, 1, 1), dtype=object)
    objects[0, 0, 0] = Trap(sprung)
    if kind == "npy":
        np.save(path, objects, allow_pickle=True)
    elif kind == "npz":
        np.savez(path, cube=objects)
    elif kind == "compressed npz":
        np.savez_compressed(path, cube=objects)
    elif kind == "beside a cube":
        np.savez(path, cube=CUBE, extra=objects)
    else:
        path.write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(SceneError, match=path.name):
        open_scene(path)
    with pytest.raises(LabelsError, match=path.name):
        open_labels(path)
    assert not sprung.exists()
    pickle.loads(pickle.dumps(Trap(sprung)))
    assert sprung.exists()  # the trap works


# Damaged files


def content(name: str) -> bytes:
    buffer = io.BytesIO()
    if name.endswith(".npy"):
        np.save(buffer, CUBE)
    else:
        np.savez_compressed(buffer, cube=CUBE)
    return buffer.getvalue()


@pytest.mark.parametrize("cut", [0, 1, 5, 6, 8, 9, 10, 20, 60, 127, 128, 129, 0.5, 0.75, 0.9, -23, -22, -8, -2, -1])
@pytest.mark.parametrize("name", ["cut.npy", "cut.npz"])
def test_truncated(name: str, cut: float, tmp_path: Path) -> None:
    whole = content(name)
    (tmp_path / name).write_bytes(whole[: int(len(whole) * cut)] if isinstance(cut, float) else whole[:cut])
    with pytest.raises(SceneError, match="cut"):
        open_scene(tmp_path / name)


@pytest.mark.parametrize(
    "header", [b"{'descr': '<u2', 'fortran_order': False, 'shape': (6, 5, 8", b"((((", b"'''", b""]
)
def test_a_damaged_header(header: bytes, tmp_path: Path) -> None:
    text = header.ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + CUBE.tobytes())
    with pytest.raises(SceneError, match=r"a\.npy"):
        open_scene(tmp_path / "a.npy")


@pytest.mark.parametrize("name", ["one-wrong-byte.npy", "one-wrong-byte.npz"])
@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_one_wrong_byte(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    """An error, a warning, or a scene that can be read; nothing else."""
    damaged = bytearray(content(name))
    damaged[data.draw(st.integers(0, len(damaged) - 1), label="place")] ^= data.draw(st.integers(1, 255), label="by")
    path = tmp_path_factory.getbasetemp() / name
    path.unlink(missing_ok=True)  # another file, not another content of one that is mapped
    path.write_bytes(damaged)
    try:
        scene = open_scene(path)
        values = scene.read().values
    except (SceneError, DataWarning):
        return
    assert values.shape == scene.shape


def test_a_npz_that_holds_another_kind_of_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing to see")
    with pytest.raises(SceneError, match=r"a\.npz"):
        open_scene(tmp_path / "a.npz")


@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_bytes_inserted_into_a_npy_are_reported(dtype: str, tmp_path: Path) -> None:
    """A transfer in text mode inserts bytes: all values behind them are others."""
    np.save(tmp_path / "a.npy", CUBE.astype(dtype))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:200] + b"\r" * 8 + whole[200:])
    with pytest.warns(DataWarning, match=r"a\.npy has 8 bytes more than its header describes"):
        open_scene(tmp_path / "a.npy")


def test_bytes_after_an_array_in_a_npz_are_reported(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("cube.npy", content("a.npy") + b"more")
    with pytest.warns(DataWarning, match=r"cube\.npy in a\.npz has 4 bytes more"):
        open_scene(tmp_path / "a.npz")


# Sizes that a file claims


def test_a_npz_is_described_without_decompressing_it(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", cube=np.zeros((400, 400, 100), dtype=np.float32), gt=np.ones((9, 9)))
    tracemalloc.start()
    try:
        scene = open_scene(tmp_path / "a.npz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (scene.shape, scene.dtype) == ((400, 400, 100), np.dtype(np.float32))
    assert peak < 8e6
    np.testing.assert_array_equal(scene.read(slice(0, 2), slice(0, 3)).values, np.zeros((2, 3, 100)))


def test_a_npz_that_claims_much_more_than_it_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypercaps.io.limits.SMALL", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", cube=np.zeros((100, 100, 300), dtype=np.float32))
    with pytest.raises(SceneError, match=r"claims 12,000,000 bytes for array 'cube' and stores 1\d,\d\d\d, which"):
        open_scene(tmp_path / "a.npz")


def test_a_npz_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypercaps.io.limits.available_memory", lambda: 400)
    np.savez_compressed(tmp_path / "a.npz", cube=CUBE)
    with pytest.raises(SceneError, match=r"'cube' takes 0\.0 GB .*memory are free; save it in a format .*\.npy"):
        open_scene(tmp_path / "a.npz")


def test_a_npz_whose_header_claims_more_than_its_archive(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**6,) * 3})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("cube.npy", header.getvalue() + b"\0" * 100)
    with pytest.raises(SceneError, match=r"a\.npz .*is truncated"):
        open_scene(tmp_path / "a.npz")


@pytest.mark.parametrize("archive", [False, True])
def test_a_header_of_any_length_is_not_read(archive: bool, tmp_path: Path) -> None:
    content = b"\x93NUMPY\x02\x00" + (1 << 28).to_bytes(4, "little") + b" " * (1 << 28)
    path = tmp_path / ("a.npz" if archive else "a.npy")
    if archive:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            file.writestr("cube.npy", content)
    else:
        path.write_bytes(content)
    del content
    tracemalloc.start()
    try:
        with pytest.raises(SceneError, match="is truncated, damaged or not what its name says"):
            open_scene(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8e6


def test_a_message_names_a_part_of_many_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{f"cube{i}": CUBE for i in range(70)})
    with pytest.raises(SceneError, match=r"cube49 \(6 x 5 x 8\) and 20 more; name one as .*a\.npz:cube0$"):
        open_scene(tmp_path / "a.npz")


def test_labels_that_claim_far_more_than_they_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every format: labels are read as a whole."""
    monkeypatch.setattr("hypercaps.io.limits.SMALL", 1 << 20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("gt", data=np.ones((2000, 2000), np.uint8), chunks=(500, 500), compression="gzip")
    zarr.create_array(tmp_path / "a.zarr", data=np.ones((2000, 2000), np.uint8), chunks=(500, 500))
    for name in ("a.h5", "a.zarr"):
        with pytest.raises(LabelsError, match=r"claims 2,000 x 2,000 pixels of labels or a mask and stores \d"):
            open_labels(tmp_path / name)
    monkeypatch.undo()
    assert open_labels(tmp_path / "a.h5").counts() == open_labels(tmp_path / "a.zarr").counts() == {1: 4_000_000}


def test_a_npz_with_an_unusual_compression(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("cube.npy", content("a.npy"))
    with pytest.raises(SceneError, match="compressed in a way that numpy does not use"):
        open_scene(tmp_path / "a.npz")
