"""Scenes with a known answer, and the way to real ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line does, before torch is loaded
if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores
    os.environ["OMP_NUM_THREADS"] = "1"

# Where the tests run in the background, signals are ignored; the processes that they start must not inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from support.scenes import QUICK, make_cube

# Where real data may be: a folder the user names, or one beside the project.
_DATA = Path(os.environ.get("HYPERCAPS_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests for ``--dist loadgroup``: those of a module share its fixtures, so one worker runs them.

    Tests of several methods are grouped by method, and long trainings are distributed one by one.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None and item.get_closest_marker("scene") is None:
            parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
            method = parameters.get("fitted", parameters.get("method", ""))
            item.add_marker(pytest.mark.xdist_group(f"{item.path.name} {method}".strip()))


@pytest.fixture
def made() -> tuple[Scene, Labels]:
    cube, labels = make_cube()
    return Scene.from_array(cube, name="made"), Labels.from_array(labels, name="made")


@pytest.fixture
def restored_threads() -> Iterator[None]:
    """For tests that change the number of threads."""
    before = threads_in_use()
    yield
    use_threads(before)


@pytest.fixture
def real_data() -> Path:
    """The folder of real data; tests that need it are skipped where it is not."""
    if not _DATA.is_dir():
        pytest.skip(f"no real data: HYPERCAPS_DATA is not set and {_DATA} is not there")
    return _DATA


@pytest.fixture(autouse=True)
def on_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's data folder, mirror or cache."""
    monkeypatch.delenv("HYPERCAPS_DATA", raising=False)
    monkeypatch.delenv("HYPERCAPS_MIRROR", raising=False)
    monkeypatch.setattr("hypercaps.io.catalog.cache_folder", lambda: tmp_path / "cache")


@pytest.fixture(autouse=True, scope="session")
def in_little_memory() -> Iterator[None]:
    """Maps don't see how much memory the tests before them have left behind."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr("hypercaps.pipeline.map.resident_memory", lambda: 300_000_000)
        yield


@pytest.fixture(scope="session")
def trained() -> ConvCapsClassifier:
    """A classifier that has learned the scene of ``made``; not to be changed."""
    cube, labels = make_cube()
    scene, truth = Scene.from_array(cube, name="made", wavelengths=np.arange(26) * 10 + 400), Labels.from_array(labels)
    return ConvCapsClassifier(**QUICK).fit(scene, truth)
