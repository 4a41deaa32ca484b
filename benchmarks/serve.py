"""How fast the workbench is: python benchmarks/serve.py [--quick]

Starts 'hypercaps serve' as a user does and talks to it as the page does, and then uses the page itself in chromium
(workbench_browser.py). S is Indian Pines; L, which is made in a temporary folder and needs 2 GB there, has
2,000 x 2,000 pixels and 200 bands. Prints a table: one row for each figure, with what it must reach on two cores.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import platform
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from _pytest.outcomes import Skipped

from hypercaps import open_labels
from hypercaps.workbench.app import static_folder
from hypercaps.workbench.label_store import LabelStore
from workbench_browser import measure_page, serving, show

SIDE, BANDS = 2000, 200


@dataclass
class Server:
    """A running 'hypercaps serve'."""

    process: subprocess.Popen[str]
    http: httpx.Client
    address: str
    strokes: Iterator[int] = field(default_factory=itertools.count)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self.http.post(path, json=body or {}, headers={"X-Client": "bench"})
        answer.raise_for_status()
        return answer.json()

    def state(self) -> Any:
        return self.http.get("/api/state?client=bench").raise_for_status().json()

    def paint(self, number: int, pixels: list[tuple[int, int]]) -> None:
        for row, col in pixels:
            spans = [[row, col, col + 1]]
            name = f"{number}-{next(self.strokes)}-{time.monotonic_ns()}"
            self.post("/api/strokes", {"stroke": name, "class": number, "tool": "point", "spans": spans})

    def worker_seconds(self) -> float:
        """Processor time of the processes that the server has started."""
        times = [one.cpu_times() for one in psutil.Process(self.process.pid).children(recursive=True)]
        return sum(time.user + time.system for time in times)

    def worker_memory(self) -> float:
        """Bytes that only the worker has: not the pages of the scene's file, which the system can take back."""
        return max(one.memory_full_info().uss for one in psutil.Process(self.process.pid).children(recursive=True))

    def wait(self, done: Callable[[Any], bool], seconds: float = 600) -> float:
        """Seconds until the state is as wanted."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            if done(self.state()):
                return time.monotonic() - started
            time.sleep(0.02)
        raise TimeoutError


@contextmanager
def running(scene: str, project: Path) -> Iterator[Server]:
    with serving(scene, project) as (process, address):
        base = address.partition("/?")[0]
        headers = {"Origin": base, "X-Hypercaps": "1"}
        with httpx.Client(base_url=base, headers=headers, timeout=120, trust_env=False) as http:
            http.get(address)
            yield Server(process, http, address)


def p95(values: list[float]) -> float:
    return float(np.percentile(values, 95))


def timed(function: Callable[[], object]) -> float:
    started = time.monotonic()
    function()
    return time.monotonic() - started


def measure_view(server: Server, name: str, must: tuple[str, str]) -> None:
    scene = server.state()["scene"]
    level, preset = scene["levels"] - 1, scene["presets"][0]["id"]
    first = timed(lambda: server.http.get(f"/api/tiles/scene/{preset}/auto/{level}/0/0").raise_for_status())
    show(f"first tile of {name}", f"{first:.2f} s", must[0])
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, (scene["rows"], scene["cols"]), (100, 2)).tolist()
    paths = [f"/api/spectrum?row={row}&col={col}" for row, col in pixels]
    times = [timed(partial(server.http.get, path)) for path in paths]
    show(f"spectrum under the cursor, p95, {name}", f"{1000 * p95(times):.0f} ms", must[1])


def paint_indian_pines(server: Server) -> None:
    """10 pixels of each of 16 classes."""
    truth = open_labels("indian-pines")
    rng = np.random.default_rng(0)
    for entry in truth.legend:
        server.post("/api/classes", {"action": "add", "name": entry.name})
        places = np.argwhere(truth.array == entry.label)
        server.paint(entry.label, rng.choice(places, 10, replace=False).tolist())


def measure_training(server: Server) -> None:
    paint_indian_pines(server)
    server.post("/api/train", {"method": "lda", "split": "none"})  # the worker has started when this is done
    server.wait(lambda state: state["training"] is None)
    started, computed = time.monotonic(), server.worker_seconds()
    number = server.post("/api/train", {"view": [0, 145, 0, 145]})["id"]
    server.wait(lambda state: state["current"] == number)
    computed = server.worker_seconds() - computed
    show(
        "from Train to the whole map of S, 10 pixels of each of 16 classes",
        f"{time.monotonic() - started:.1f} s",
        "10 s",
    )
    show("processor time of the worker for that", f"{computed:.1f} s", "")
    server.wait(lambda state: state["training"] is None)
    show("and until the score is there", f"{time.monotonic() - started:.1f} s", "")
    server.post("/api/train")
    server.wait(lambda state: bool(state["training"] and state["training"]["epoch"]))
    measure_tiles(server)
    server.post("/api/cancel")
    server.wait(lambda state: state["training"] is None)


def measure_tiles(server: Server) -> None:
    """200 different tiles, none of which was drawn before."""

    def one(number: int) -> float:
        path = f"/api/tiles/scene/{number}-{number // 2}-10/auto/0/0/0"
        return timed(lambda: server.http.get(path).raise_for_status())

    with ThreadPoolExecutor(8) as pool:
        times = list(pool.map(one, range(200)))
    when = "while training" if server.state()["training"] else "(training ended too early)"
    show(f"tiles {when}, p95 of 200, 8 clients", f"{1000 * p95(times):.0f} ms", "250 ms")


def measure_cancel(server: Server) -> None:
    server.post("/api/train", {"method": "mlp", "recipe": "paper", "split": "none"})
    server.wait(lambda state: bool(state["training"] and state["training"]["epoch"]))
    started = time.monotonic()
    server.post("/api/cancel")
    server.wait(lambda state: state["training"] is None)
    show("cancel", f"{time.monotonic() - started:.2f} s", "1 s")


def make_large(path: Path) -> None:
    rng = np.random.default_rng(0)
    cube = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint16, shape=(SIDE, SIDE, BANDS))
    waves = np.linspace(0, 1, BANDS)
    spectra = np.stack([2000 + 1500 * np.sin(2 * np.pi * (k + 1) * waves / 3 + k) for k in range(8)])
    rows, cols = np.indices((SIDE, SIDE))
    truth = (rows // 125 * 16 + cols // 125) % 8
    for r0 in range(0, SIDE, 50):
        noise = 60 * rng.standard_normal((50, SIDE, BANDS))
        cube[r0 : r0 + 50] = np.clip(spectra[truth[r0 : r0 + 50]] + noise, 0, 60000)
    cube.flush()


def measure_large(large: Path, project: Path) -> None:
    with running(str(large), project) as server:
        measure_view(server, "L", ("", "200 ms"))
        for number in range(8):
            server.post("/api/classes", {"action": "add", "name": f"kind {number}"})
            fields = [(r, c) for r in range(0, 16) for c in range(0, 16) if (r * 16 + c) % 8 == number][:10]
            server.paint(number + 1, [(125 * r + 60, 125 * c + 60) for r, c in fields])
        view = [744, 1256, 744, 1256]
        warm = server.post("/api/train", {"method": "lda", "split": "none", "view": view})["id"]
        wait_for_view(server, warm, view)
        server.post("/api/cancel")
        server.wait(lambda state: state["training"] is None)
        started, computed = time.monotonic(), server.worker_seconds()
        number = server.post("/api/train", {"view": view})["id"]
        windows, mapping = wait_for_view(server, number, view)
        show("visible 512 x 512 of L after training", f"{mapping:.1f} s", "15 s")
        show("and from Train", f"{time.monotonic() - started:.1f} s")
        show("processor time of the worker for that", f"{server.worker_seconds() - computed:.1f} s")
        show(
            "memory of the worker then", f"{server.worker_memory() / 1e6:.0f} MB ({windows} pieces)", "1 GB (--memory)"
        )
        server.post("/api/cancel")


def wait_for_view(server: Server, number: str, view: list[int]) -> tuple[int, float]:
    """Until the middle of the map is there; the number of pieces that arrived, and the seconds since the training."""
    r0, r1, c0, c1 = view
    missing = np.ones((r1 - r0, c1 - c0), dtype=bool)
    pieces, trained = 0, time.monotonic()
    with server.http.stream("GET", "/api/events?client=bench") as stream:
        name = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and name == "training":
                if (json.loads(line[6:]) or {}).get("state") == "running":
                    trained = time.monotonic()
            elif line.startswith("data: ") and name == "map":
                data = json.loads(line[6:])
                for a, b, c, d in data["windows"] if data["id"] == number else ():
                    pieces += 1
                    missing[max(a - r0, 0) : max(b - r0, 0), max(c - c0, 0) : max(d - c0, 0)] = False
                if not missing.any():
                    return pieces, time.monotonic() - trained
    raise TimeoutError


def measure_kills(folder: Path, kills: int) -> None:
    """Kill the server while somebody paints, again and again."""
    scene = folder / "small.npy"
    np.save(scene, np.ones((200, 200, 3), dtype=np.float32))
    project, answered, lost = folder / "killed", set[int](), 0
    rng = np.random.default_rng(0)
    for number in range(kills):
        with running(str(scene), project) as server:
            if number == 0:
                server.post("/api/classes", {"action": "add", "name": "water"})
            try:
                for turn, place in enumerate(itertools.count(number * 199)):
                    if turn == 3:
                        delay = float(rng.uniform(0.0, 0.3))
                        threading.Timer(delay, os.kill, (server.process.pid, signal.SIGKILL)).start()
                    row, col = divmod(place % 40_000, 200)
                    server.paint(1, [(row, col)])
                    answered.add(row * 200 + col)
            except httpx.TransportError:
                server.process.wait()
        store = LabelStore(project, (200, 200))
        store.close()
        lost = len(answered - set(np.flatnonzero(store.raster.classes).tolist()))
        if lost:
            break
    show(f"{kills} x kill -9 of the server while painting: answered strokes lost", f"{lost} of {len(answered):,}", "0")


def measure_clients(server: Server, seconds: float) -> None:
    """32 clients that look and read spectra."""
    pids = psutil.Process(server.process.pid)
    before = pids.memory_info().rss
    end = time.monotonic() + seconds
    problems, requests = [0], [0]

    def work(number: int) -> None:
        with httpx.Client(
            base_url=server.http.base_url, cookies=server.http.cookies, timeout=60, trust_env=False
        ) as http:
            for turn in itertools.count(number):
                if time.monotonic() > end:
                    return
                for path in (
                    f"/api/tiles/scene/{turn % 150}-20-10/2-{90 + turn % 9}/0/0/0",
                    f"/api/spectrum?row={turn % 145}&col={number}",
                    "/api/state",
                ):
                    requests[0] += 1
                    problems[0] += http.get(path).status_code != 200

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))
    grown = (pids.memory_info().rss - before) / 1e6
    show(f"32 clients for {seconds:.0f} s: errors", f"{problems[0]} of {requests[0]:,}", "0")
    show("memory that the server has gained by that", f"{grown:.0f} MB", "bounded")


def measure_size() -> None:
    sizes = [
        len(gzip.compress(path.read_bytes(), 9)) for path in static_folder().iterdir() if path.name != "licences.txt"
    ]
    show("page, gzip", f"{sum(sizes) / 1000:.0f} kB", "300 kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few kills, 5 s of clients, without L and suggestions")
    quick = parser.parse_args().quick
    started = time.monotonic()
    print("| | measured | must |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="hypercaps-serve-") as name:
        folder, large = Path(name), None
        measure_size()
        with running("indian-pines", folder / "s.hypercaps") as server:
            measure_view(server, "S", ("", "60 ms"))
            measure_training(server)
            measure_cancel(server)
            measure_clients(server, 5 if quick else 60)
        if not quick:
            large = folder / "large.npy"
            make_large(large)
            measure_large(large, folder / "large.hypercaps")
        measure_kills(folder, 8 if quick else 160)
        try:
            measure_page(folder, large, kills=2 if quick else 40, with_suggestions=not quick)
        except Skipped as reason:  # as the tests say it
            show("in the browser", f"not measured: {reason}")
    print(f"\n{time.monotonic() - started:.0f} s, {platform.machine()}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
