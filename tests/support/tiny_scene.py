"""A small scene in a catalogue of its own, and the server that has its files."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import scipy.io

CUBE = np.arange(6 * 5 * 8, dtype=np.uint16).reshape(6, 5, 8)
GT = (np.arange(30).reshape(6, 5) % 3).astype(np.uint8)


def mat(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays, do_compression=True)
    return buffer.getvalue()


CUBE_FILE, GT_FILE = mat(tiny=CUBE), mat(tiny_gt=GT)
CUBE_SHA, GT_SHA = (hashlib.sha256(content).hexdigest() for content in (CUBE_FILE, GT_FILE))


class Site:
    """What a server on this machine has, and what was asked of it."""

    def __init__(self) -> None:
        self.files = {"/a/Tiny.mat": CUBE_FILE, "/b/Tiny_gt.mat": GT_FILE}
        self.asked: list[str] = []
        self.hangs_up = False  # in the middle of a file
        self.address = ""


def cached(tmp_path: Path) -> list[str]:
    """The names in the cache that every test has of its own."""
    folder = tmp_path / "cache"
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []
