"""kill -9 while somebody paints: no stroke that was answered is lost. ``make bench-serve`` kills 200 times."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from hypercaps.workbench.label_store import LabelStore

KILLS = 4
SERVER = """
import sys
from pathlib import Path
from hypercaps.io.open import Opening, open_scene
from hypercaps.workbench.serving import ServeRequest, serve
from hypercaps.workbench.training_desk import Computing, TrainingDesk
TrainingDesk.start = lambda self: None  # no worker is needed to paint
scene, project = sys.argv[1:]
request = ServeRequest(Path(project), Computing(Opening.of(scene), scene))
serve(open_scene(scene), None, request, lambda text: print(text, flush=True))
"""


def paint_until_killed(address: str, answered: dict[str, int], round_number: int) -> None:
    """Paint one pixel after the other; ``answered`` are the strokes that the server has confirmed."""
    base = address.partition("/?")[0]
    with httpx.Client(base_url=base, headers={"Origin": base, "X-Hypercaps": "1"}, timeout=60, trust_env=False) as http:
        http.get(address)
        try:
            if round_number == 0:
                http.post("/api/classes", json={"action": "add", "name": "water"}).raise_for_status()
            for number in range(10_000):
                pixel = round_number * 400 + number
                row, col = divmod(pixel % 3600, 60)
                body = {
                    "stroke": f"{round_number}-{number}",
                    "class": 1,
                    "tool": "point",
                    "spans": [[row, col, col + 1]],
                }
                http.post("/api/strokes", json=body).raise_for_status()
                answered[body["stroke"]] = row * 60 + col
        except httpx.TransportError:
            return  # killed


def test_no_answered_stroke_is_lost(tmp_path: Path) -> None:
    np.save(tmp_path / "scene.npy", np.ones((60, 60, 3), dtype=np.float32))
    rng = np.random.default_rng(0)
    answered: dict[str, int] = {}
    for round_number in range(KILLS):
        command = [sys.executable, "-c", SERVER, str(tmp_path / "scene.npy"), str(tmp_path / "project")]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        )
        assert server.stdout is not None
        painter = threading.Thread(
            target=paint_until_killed, args=(server.stdout.readline().strip(), answered, round_number)
        )
        painter.start()
        before = len(answered)
        while len(answered) < before + 5 and painter.is_alive():
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.05)))
        server.kill()
        server.wait()
        painter.join(20)
        server.stdout.close()
        assert len(answered) >= before + 5
        store = LabelStore(tmp_path / "project", (60, 60))
        store.close()
        assert store.journal.lost is None
        painted = set(np.flatnonzero(store.raster.classes).tolist())
        assert set(answered.values()) <= painted
        assert len(painted - set(answered.values())) <= round_number + 1  # those written but not answered
