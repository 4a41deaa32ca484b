"""Permissions as an ordinary user meets them: root may read and write everything, so tests step down."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hypercaps.io import catalog

_NOBODY = 65534


@contextmanager
def plain_user() -> Iterator[Path]:
    """A folder of a user without special rights, who runs the block."""
    catalog.names()  # read once while everything may be read: error messages list them
    folder = Path(tempfile.mkdtemp(prefix="hypercaps-test-"))
    root = os.geteuid() == 0
    try:
        if root:
            os.chown(folder, _NOBODY, _NOBODY)
            try:
                os.setresuid(_NOBODY, _NOBODY, 0)  # the last one is the way back
                reachable = os.listdir(folder) == []  # noqa: PTH208 - the call itself is the test
            except PermissionError:
                reachable = False
            if not reachable:
                pytest.skip("there is no way to step down from root here")
        yield folder
    finally:
        if root:
            os.setresuid(0, 0, 0)
        for path in folder.iterdir():
            path.chmod(0o700)
        shutil.rmtree(folder)
