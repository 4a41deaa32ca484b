"""Open pages in Debian's chromium; a proxy on loopback keeps it off the network and records its requests."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.image import imread

OWN_HOST = "browser.invalid"
# Where chromium looks for its own components, at times and whatever its options.
UPDATES = ("redirector.gvt1.com", "update.googleapis.com")
QUIET = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars",
    # Requests that the browser sends for itself at any time, at a host that no page names.
    f"--gcm-checkin-url=https://{OWN_HOST}/", f"--gaia-url=https://{OWN_HOST}/", f"--google-base-url=https://{OWN_HOST}/",
    f"--autofill-server-url=https://{OWN_HOST}/",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Seen:
    """What opening a page showed."""

    picture: npt.NDArray[np.float32]  # (h, w, 3)
    errors: list[str]  # of the console: script errors, requests refused by the page's own policy
    hosts: set[str]  # requested by the page, or by the browser itself at its start


@contextmanager
def recording_proxy() -> Iterator[tuple[int, set[str]]]:
    """A proxy that answers nothing: its port, and the hosts that pages asked for."""
    asked: set[str] = set()

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.note(urlsplit(self.path).hostname or "")

        def do_CONNECT(self) -> None:
            self.note(self.path.rpartition(":")[0])

        def do_POST(self) -> None:
            self.do_GET()

        def note(self, host: str) -> None:
            if host not in (OWN_HOST, *UPDATES):
                asked.add(host)
            self.send_error(404)

        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy.server_port, asked
        finally:
            proxy.shutdown()


def chromium() -> str:
    """Debian's chromium; without it the test is skipped."""
    command = shutil.which("chromium")
    if command is None:
        pytest.skip("chromium is not installed (Debian's package chromium)")
    return command


def look_at(page: Path, *, width: int = 1280, height: int = 2000) -> Seen:
    """Open a page and take a screenshot."""
    command = chromium()
    with recording_proxy() as (port, hosts), tempfile.TemporaryDirectory() as own:
        shot = Path(own) / "shot.png"
        once = ["--headless=new", "--proxy-bypass-list=<-loopback>", "--virtual-time-budget=5000"]
        places = [f"--user-data-dir={own}/profile", f"--proxy-server=127.0.0.1:{port}", "--enable-logging=stderr"]
        view = [f"--window-size={width},{height}", f"--screenshot={shot}", page.absolute().as_uri()]
        done = subprocess.run([command, *once, *QUIET, *places, *view], capture_output=True, text=True, timeout=120)
        assert shot.exists(), done.stderr
        picture = imread(shot)[..., :3]
    errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Seen(picture, errors, hosts)
