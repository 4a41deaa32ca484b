from __future__ import annotations

import pytest

from hypercaps.io.readers import hdf5


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the trial in another process, with one second of processor time for small files."""
    monkeypatch.setattr(hdf5, "_SECONDS", 1)


@pytest.fixture
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """That trial costs a third of a second."""
    if "guarded" not in request.fixturenames:
        monkeypatch.setattr(hdf5, "_is_survived", lambda path: True)
