"""Locks between processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from hypercaps.io.writers.lock import lock_file

HOLD = """
import sys, time
from pathlib import Path
from hypercaps.io.writers.lock import lock_file
with lock_file(Path(sys.argv[1])) as is_held:
    print(is_held, flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time_holds_a_lock_and_a_killed_one_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        with lock_file(path) as is_held:
            assert not is_held
        os.kill(other.pid, signal.SIGKILL)
    assert path.exists()
    with lock_file(path) as is_held, lock_file(path) as again:
        assert is_held and not again
    assert not path.exists()
