"""Files and a run that several tests of commands use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
from click.testing import Result

from support.command import hypercaps
from support.scenes import QUICK_OPTIONS, make_cube


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A cube and its labels in one .mat each."""
    cube, labels = make_cube()
    scipy.io.savemat(tmp_path / "cube.mat", {"cube": cube})
    scipy.io.savemat(tmp_path / "gt.mat", {"gt": labels.astype(float)})
    return tmp_path / "cube.mat", tmp_path / "gt.mat"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, Result]:
    """One run of the whole main job on files: cube, labels, the run's folder, and what was said."""
    folder = tmp_path_factory.mktemp("run")
    cube, labels = make_cube()
    np.save(folder / "cube.npy", cube)
    scipy.io.savemat(folder / "gt.mat", {"gt": labels})
    result = hypercaps(
        "train", folder / "cube.npy", folder / "gt.mat", "--out", folder / "new" / "out", *QUICK_OPTIONS, "--seed", 3
    )
    assert result.exit_code == 0, result.output
    return folder / "cube.npy", folder / "gt.mat", folder / "new" / "out", result
