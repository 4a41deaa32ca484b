"""A catalogue with one small scene, and a server for its files."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hypercaps.io import catalog
from support.tiny_scene import CUBE_FILE, CUBE_SHA, GT_FILE, GT_SHA, Site


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a download was tried")

    monkeypatch.setattr(catalog, "_download", refuse)


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The catalogue, with one small scene in place of the nine."""
    made: dict[str, Any] = {
        "base": "http://127.0.0.1:1/never/",
        "scenes": {
            "tiny": {
                "title": "Tiny",
                "place": "nowhere",
                "sensor": "none",
                "shape": [6, 5, 8],
                "labelled": 20,
                "range_nm": [400, 2500],
                "pixel_m": 1,
                "licence": "CC0",
                "citation": "none",
                "cube": {"path": "a/Tiny.mat", "bytes": len(CUBE_FILE), "sha256": CUBE_SHA, "key": "tiny"},
                "labels": {"path": "b/Tiny_gt.mat", "bytes": len(GT_FILE), "sha256": GT_SHA, "key": "tiny_gt"},
                "classes": [[1, "Grass", "#00ff00"], [2, "Water", "#0000ff"]],
            }
        },
    }
    monkeypatch.setattr(catalog, "_document", lambda: made)
    return made


@pytest.fixture
def site(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with the files of the small scene, as the mirror."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if site.hangs_up else content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}/"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HYPERCAPS_MIRROR", site.address)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()
    gc.collect()  # here and not in somebody else's test
