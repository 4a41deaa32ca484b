"""Damaged MATLAB files: truncated, with wrong bytes, or with parts that were lost."""

from __future__ import annotations

import io
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from support.matlab_files import (
    CUBE,
    GT,
    IN_HDF5,
    Save,
    content,
    mat5,
    put_matlab_text,
    save_hdf5_in_mat,
    save_plain_hdf5,
    save_v5,
    save_v7,
    save_v73,
    save_v73_compressed,
)

pytestmark = pytest.mark.usefixtures("quick")


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
    put_matlab_text(tmp_path / "a.mat")
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
