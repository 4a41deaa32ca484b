"""Every measure against pages of other sites, on every route."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.routing import Route

from hypercaps.workbench import label_routes, scene_routes, state_routes, training_routes
from hypercaps.workbench.security import HEADERS, MOST_JSON, UPLOAD
from hypercaps.workbench.serving import LOCAL, listen
from support.workbench import Page, Served, served

ROUTERS = (state_routes, scene_routes, label_routes, training_routes)
VALUES = {"level": "0", "x": "0", "y": "0", "version": "0", "revision": "0", "stretch": "auto", "bands": "false"}
ROUTES = [
    (method, "/api" + route.path)
    for module in ROUTERS
    for route in module.router.routes
    if isinstance(route, Route)
    for method in sorted(route.methods or ())
    if method in ("GET", "POST")
] + [("GET", "/"), ("GET", "/static/app.js"), ("GET", "/api/nothing"), ("POST", "/api/nothing")]


def address(path: str) -> str:
    for name in ("training", "other", "file", "kind"):
        path = path.replace(f"{{{name}}}", "t0001")
    for name, value in VALUES.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("security")
    np.save(folder / "scene.npy", np.random.default_rng(0).random((20, 30, 8)).astype(np.float32))
    with served(folder / "scene.npy", folder / "project") as running:
        yield running


@pytest.fixture
def page(bench: Served) -> Iterator[Page]:
    page = bench.page()
    yield page
    page.http.close()


@functools.cache
def _other_client() -> httpx.Client:
    return httpx.Client(trust_env=False)  # without cookies of its own


def send(page: Page, method: str, path: str, **changes: str | None) -> httpx.Response:
    """A request as the page sends it, with some headers changed or, if None, left out."""
    path = address(path)
    headers = dict(page.http.headers)
    content = b""
    if method == "POST":
        headers["content-type"] = "application/octet-stream" if path == UPLOAD else "application/json"
        content = b"{}"
    for name, value in changes.items():
        key = name.replace("_", "-")
        if value is None:
            headers.pop(key, None)
        else:
            headers[key] = value
    request = httpx.Request(method, f"{page.http.base_url}".rstrip("/") + path, headers=headers, content=content)
    if "cookie" not in changes:
        request.headers["cookie"] = "; ".join(f"{name}={value}" for name, value in page.http.cookies.items())
    if "host" not in changes:
        request.headers["host"] = page.http.base_url.netloc.decode()
    return _other_client().send(request)


def test_the_walk_sees_all_routes(bench: Served) -> None:
    assert len(ROUTES) > 25
    assert {method for method, _ in ROUTES} == {"GET", "POST"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_refuses_what_is_not_from_our_page(page: Page, method: str, path: str) -> None:
    port = page.http.base_url.port
    wrong: list[dict[str, str | None]] = [
        {"host": "evil.example"},
        {"host": f"evil.example:{port}"},
        {"host": f"127.0.0.1:{port}.evil.example"},
        {"host": "127.0.0.1"},  # without the port
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://127.0.0.1:{port}"},
        {"origin": f"http://127.0.0.1:{port}.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"cookie": None},
        {"cookie": "hypercaps=1"},
        {"cookie": f"hypercaps-{port}="},
        {"cookie": f"hypercaps-{port}=wrong"},
    ]
    if method == "POST":
        wrong += [
            {"origin": None},
            {"content_type": None},
            {"content_type": "text/plain"},
            {"content_type": "application/x-www-form-urlencoded"},
            {"content_type": "multipart/form-data; boundary=x"},
            {"x_hypercaps": None},
            {"x_hypercaps": "2"},
        ]
    for changes in wrong:
        answer = send(page, method, path, **changes)
        assert answer.status_code == 403, (changes, answer.status_code, answer.text)
        assert set(answer.json()) == {"error"}
        assert all(answer.headers[name] == value for name, value in HEADERS.items())


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    assert send(page, method, "/api/state").status_code == 405


def test_no_answer_allows_other_origins(page: Page) -> None:
    answer = page.get("/api/state")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cache-control"] == "no-store"


def test_the_token_works_once_and_leaves_the_address(bench: Served) -> None:
    first = bench.access.address
    with httpx.Client() as browser:
        answer = browser.get(first)
        assert answer.status_code == 303
        assert answer.headers["location"] == "./"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert browser.get(f"{bench.base}/api/state").status_code == 200
        assert browser.get(first).status_code == 303  # the same browser, from its history
    with httpx.Client() as other:
        assert other.get(first).status_code == 403
        assert other.get(f"{bench.base}/?token=").status_code == 403
        assert other.get(bench.access.address).status_code == 303  # a new one, printed in the terminal


def test_the_token_opens_nothing_but_the_page(bench: Served) -> None:
    token = bench.access.token
    assert httpx.get(f"{bench.base}/api/state?token={token}").status_code == 403
    assert bench.access.token == token


def test_paths_are_refused(page: Page) -> None:
    for path in (
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/app.py",
        "/static/",
        "/api/runs/t0001/..%2f..%2fproject.json",
        "/api/runs/..%5c/map.tif",
        "/api/runs/t0001/%2fetc%2fpasswd",
        "/api/runs/../map.tif",
        "/api/trainings/..",
        "/api/labels/export/..%2fx",
    ):
        request = page.http.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=path.encode())
        assert page.http.send(request).status_code == 404, path


def test_uploads_with_a_path_for_a_name_stay_in_the_project(bench: Served, page: Page) -> None:
    headers = {"X-Name": "..%2F..%2Fescaped.csv", "Content-Type": "application/octet-stream"}
    answer = page.http.post(UPLOAD, content=b"row,col,class\n1,1,2\n2,2,3\n", headers=headers)
    assert answer.status_code == 200, answer.text
    outside = Path(bench.bench.folder).parent
    assert not list(outside.glob("escaped*"))
    assert not list(outside.parent.glob("escaped*"))
    assert not list(bench.bench.folder.glob(".upload-*"))


def test_large_bodies_are_refused_before_they_are_read(bench: Served) -> None:
    cookie = f"{bench.access.cookie_name}={bench.access.cookie}"
    host = bench.base.removeprefix("http://")
    head = (
        f"POST /api/strokes HTTP/1.1\r\nHost: {host}\r\nOrigin: {bench.base}\r\nCookie: {cookie}\r\n"
        f"X-Hypercaps: 1\r\nContent-Type: application/json\r\nContent-Length: {MOST_JSON + 1}\r\n\r\n"
    )
    name, port = host.split(":")
    with socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())  # and not a byte of the body
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


def test_bodies_without_a_length_are_refused(page: Page) -> None:
    chunks = iter([b"{}"])
    answer = page.http.post("/api/undo", content=chunks, headers={"Content-Type": "application/json"})
    assert answer.status_code == 411


def test_only_loopback_is_listened_on(bench: Served) -> None:
    others = [one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for other in [one for one in others if not str(one).startswith("127.")]:
        with pytest.raises(OSError):
            socket.create_connection((str(other), int(bench.base.rpartition(":")[2])), timeout=2).close()


def test_there_is_no_description_of_the_interface(page: Page) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert page.get(path).status_code == 404


def test_class_names_with_markup_stay_text(page: Page) -> None:
    name = "<script>alert(1)</script>"
    page.add_classes(name)
    answer = page.get("/api/state")
    assert answer.headers["content-type"] == "application/json"
    assert name in [one["name"] for one in answer.json()["classes"]]
    page.done("/api/undo")


def test_who_is_quicker_than_the_server_waits_and_is_not_refused() -> None:
    with listen(LOCAL, 0) as listener, socket.create_connection(listener.getsockname(), timeout=5):
        pass  # the address is printed as soon as the port is there
