"""A workbench that is served on loopback, and a page that talks to it."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from hypercaps.io.open import Opening, open_scene
from hypercaps.workbench.bench import Bench
from hypercaps.workbench.project import Project
from hypercaps.workbench.security import Access
from hypercaps.workbench.serving import LOCAL, host_names, listen, make_server
from hypercaps.workbench.training_desk import Computing


@dataclass
class Page:
    """A browser's page: its cookie, its name, and requests as the page sends them."""

    http: httpx.Client
    client: str = "page"
    strokes: int = field(default=0)

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.http.post(path, json=body or {}, headers={"X-Client": self.client})

    def done(self, path: str, body: Any = None) -> Any:
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> Any:
        return self.json(f"/api/state?client={self.client}")

    def add_classes(self, *names: str) -> None:
        for name in names:
            self.done("/api/classes", {"action": "add", "name": name})

    def paint(self, number: int, *spans: tuple[int, int, int], tool: str = "brush") -> Any:
        self.strokes += 1
        uuid = f"{self.client}-{self.strokes}-{time.monotonic_ns()}"
        body = {"client": self.client, "stroke": uuid, "class": number, "tool": tool, "spans": list(spans)}
        return self.done("/api/strokes", body)

    def label_raster(self, shape: tuple[int, int]) -> np.ndarray:
        version = self.state()["labels"]["version"]
        tile = np.frombuffer(self.get(f"/api/tiles/labels/{version}/0/0/0").content, dtype=np.uint8)
        return tile.reshape(256, 256)[: shape[0], : shape[1]]

    def wait(self, seconds: float = 240.0) -> Any:
        """Until nothing is trained any more; the state then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = self.state()
            if state["training"] is None:
                return state
            time.sleep(0.05)
        raise AssertionError("still training")


@dataclass
class Served:
    """A workbench that runs in this process."""

    bench: Bench
    access: Access
    base: str
    pages: list[Page] = field(default_factory=list)

    def page(self, client: str = "page") -> Page:
        headers = {"Origin": self.base, "X-Hypercaps": "1"}
        cookies = {self.access.cookie_name: self.access.cookie}
        http = httpx.Client(base_url=self.base, headers=headers, cookies=cookies, timeout=60, trust_env=False)
        self.pages.append(Page(http, client))
        return self.pages[-1]

    @contextmanager
    def stream(self, client: str) -> Iterator[queue.Queue[tuple[str, Any]]]:
        """The events of a page, in a queue; at the end the connection is cut."""
        events: queue.Queue[tuple[str, Any]] = queue.Queue()
        host = self.base.removeprefix("http://")
        name, port = host.split(":")
        head = f"GET /api/events?client={client} HTTP/1.1\r\nHost: {host}\r\n"
        cookie = f"Cookie: {self.access.cookie_name}={self.access.cookie}\r\n\r\n"
        with socket.create_connection((name, int(port))) as connection:
            connection.sendall((head + cookie).encode())
            thread = threading.Thread(target=_read_events, args=(connection, events), daemon=True)
            thread.start()
            try:
                first = events.get(timeout=20)
                events.queue.appendleft(first)
                yield events
            finally:
                connection.shutdown(socket.SHUT_RDWR)
                thread.join(10)


def _read_events(connection: socket.socket, events: queue.Queue[tuple[str, Any]]) -> None:
    name = ""
    with connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:  # each event is one chunk: lines between events are their sizes
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                events.put((name, json.loads(line[6:])))


def next_event(events: queue.Queue[tuple[str, Any]], name: str) -> Any:
    """The data of the next event of a name; others are skipped."""
    while True:
        found, data = events.get(timeout=90)
        if found == name:
            return data


@contextmanager
def served(scene: str | Path, project: Path, port: int = 0) -> Iterator[Served]:
    """Serve a scene on a port of loopback, by default any that is free."""
    cube = open_scene(scene)
    listener = listen(LOCAL, port)
    port = listener.getsockname()[1]
    access = Access(host_names(LOCAL), port)
    computing = Computing(Opening.of(str(scene)), str(scene), niceness=0)  # tests wait for it
    with listener, Project(project, cube) as opened:
        bench = Bench(opened, cube, computing)
        bench.view.overviews.start()
        server = make_server(bench, access)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            found = Served(bench, access, f"http://{LOCAL}:{port}")
            yield found
        finally:
            for page in found.pages:
                page.http.close()
            server.should_exit = True
            thread.join(15)
            bench.close()
