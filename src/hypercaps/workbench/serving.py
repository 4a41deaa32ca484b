"""Start the workbench: its project, its port, its one-time address, and the server until Ctrl-C."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import OutputError
from hypercaps.workbench.app import make_app, static_folder
from hypercaps.workbench.bench import Bench
from hypercaps.workbench.label_exchange import merged
from hypercaps.workbench.project import Project
from hypercaps.workbench.security import Access
from hypercaps.workbench.training_desk import Computing

LOCAL = "127.0.0.1"
_BACKLOG = 128
_NO_PAGE = (
    "the page of the workbench is not installed, because node was missing when hypercaps was: install node and then "
    "hypercaps again (pip install --force-reinstall --no-deps 'hypercaps[serve]')"
)


@dataclass(frozen=True)
class ServeRequest:
    """Where to serve."""

    folder: Path  # of the project
    computing: Computing
    host: str = LOCAL
    port: int = 0  # 0: any that is free
    open_browser: bool = False


def check_page() -> None:
    """Refuse to start without the page's files, which are made when hypercaps is built."""
    if not (static_folder() / "index.html").is_file():
        raise OutputError(_NO_PAGE)


def serve(scene: Scene, labels: Labels | None, request: ServeRequest, say: Callable[[str], None]) -> None:
    """Serve a scene until the process is interrupted; ``say`` prints the address and other lines."""
    with closing(listen(request.host, request.port)) as listener, Project(request.folder, scene) as project:
        port = listener.getsockname()[1]
        access = Access(host_names(request.host), port, lambda again: say(f"To open it in another browser: {again}"))
        bench = Bench(project, scene, request.computing)
        try:
            _take_labels(bench, labels)
            bench.start()
            say(access.address)
            if request.open_browser:
                threading.Thread(target=webbrowser.open, args=(access.address,), daemon=True).start()
            make_server(bench, access).run(sockets=[listener])
        finally:
            bench.close()


def _take_labels(bench: Bench, labels: Labels | None) -> None:
    """Begin a new project with labels; one that has any keeps its own."""
    if labels is None:
        return
    if bench.labels.version:
        bench.say("info", "The project has labels of its own: those named in the command were not read again.")
        return
    imported = merged(labels.where_valid(bench.scene), bench.labels.snapshot())
    bench.labels.take("Labels of the command", imported.classes, imported.labels, imported.strokes)


class _Server(uvicorn.Server):
    """A server that ends its streams when it is asked to stop: it would wait for them."""

    def __init__(self, config: uvicorn.Config, bench: Bench) -> None:
        super().__init__(config)
        self._bench = bench

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._bench.hub.close()
        await super().shutdown(sockets)


def make_server(bench: Bench, access: Access) -> uvicorn.Server:
    """The server; ``run(sockets=[...])`` serves until it is asked to stop."""
    config = uvicorn.Config(
        make_app(bench, access),
        log_level="warning",
        access_log=False,  # addresses have tokens
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=3,
        proxy_headers=False,
    )
    return _Server(config, bench)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # before the address is printed: who is quick waits and is not refused
    except OSError as error:
        listener.close()
        raise OutputError(
            f"port {port} of {host} can't be used ({error.strerror}): choose another with --port"
        ) from error
    listener.set_inheritable(False)
    return listener


def host_names(host: str) -> list[str]:
    """The names under which browsers reach this host, the one to print first."""
    if host == LOCAL:
        return [LOCAL, "localhost"]
    if host in ("0.0.0.0", "::"):
        name = socket.gethostname()
        return list(dict.fromkeys([name, LOCAL, "localhost", *_addresses(name)]))
    return [f"[{host}]" if ":" in host else host]


def _addresses(name: str) -> list[str]:
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)]
    except OSError:
        return []
