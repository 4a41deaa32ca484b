"""MATLAB files of every version, written by scipy and h5py."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
import scipy.sparse

# Every value once and every side of another length: no mix-up of axes stays unseen.
CUBE = np.arange(6 * 5 * 8, dtype=np.uint16).reshape(6, 5, 8)
GT = (np.arange(30).reshape(6, 5) % 4).astype(np.uint8)

Save = Callable[[Path, dict[str, np.ndarray]], None]


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
    put_matlab_text(path)


def save_v73_compressed(path: Path, arrays: dict[str, np.ndarray]) -> None:
    save_v73(path, arrays, compression="gzip", chunks=True)


def save_hdf5_in_mat(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """What other programs write as v7.3: no mark, axes in the usual order."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, array in arrays.items():
            file[key] = array
    put_matlab_text(path)


def save_plain_hdf5(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array


def put_matlab_text(path: Path) -> None:
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5 schema 1.00 ."
    with path.open("r+b") as file:
        file.write(text.ljust(124) + b"\x00\x02IM")


SAVES = [save_v5, save_v7, save_v73, save_v73_compressed, save_hdf5_in_mat, save_plain_hdf5]
IN_HDF5 = [save_v73, save_v73_compressed, save_hdf5_in_mat]


def content(save: Save, arrays: dict[str, np.ndarray], folder: Path) -> bytes:
    save(folder / "whole.mat", arrays)
    return (folder / "whole.mat").read_bytes()


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
