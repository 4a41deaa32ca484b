"""The process that trains and maps for the workbench."""

from __future__ import annotations

from multiprocessing.context import SpawnProcess

import pytest

from hypercaps.io.open import Opening
from hypercaps.workbench.worker_process import WorkerProcess


def test_a_process_that_could_not_be_started_is_started_by_the_next_order(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess(Opening("indian-pines"), 1, 0, lambda report: None, lambda: None)
    with monkeypatch.context() as full, pytest.raises(BlockingIOError):
        full.setattr(SpawnProcess, "start", _refuse)
        worker.start()
    assert worker.pid is None
    worker.start()
    assert worker.pid is not None
    worker.close()


def _refuse(process: SpawnProcess) -> None:
    raise BlockingIOError("Resource temporarily unavailable")
