"""MATLAB files that never end or lead to other files: refused, and no file stays open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import LabelsError, SceneError
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers import hdf5
from support.matlab_files import (
    CUBE,
    GT,
    IN_HDF5,
    Save,
    save_plain_hdf5,
    save_v73,
    save_v73_compressed,
)

pytestmark = pytest.mark.usefixtures("quick")


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
