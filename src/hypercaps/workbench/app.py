"""The application: all routes under /api/, the page's own files, and errors as one sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from hypercaps.errors import HypercapsError
from hypercaps.workbench import label_routes, scene_routes, state_routes, training_routes
from hypercaps.workbench.bench import Bench
from hypercaps.workbench.refusals import not_found, status_of
from hypercaps.workbench.security import Access, Guard

STATIC = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "licences.txt": "text/plain; charset=utf-8",
}


def static_folder() -> Traversable:
    return resources.files("hypercaps.workbench") / "static"


def make_app(bench: Bench, access: Access) -> Guard:
    """The application, inside its guard."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.bench = bench
    for module in (state_routes, scene_routes, label_routes, training_routes):
        app.include_router(module.router, prefix="/api")
    app.add_api_route("/", _index, methods=["GET"])
    app.add_api_route("/static/{name}", _file, methods=["GET"])
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return Guard(app, access)


def _index() -> Response:
    return _file("index.html")


def _file(name: str) -> Response:
    if name not in STATIC:  # whole names, no paths
        raise not_found(f"file {name[:40]!r}")
    path = static_folder() / name
    if not path.is_file():
        raise not_found(f"file {name!r}")
    return Response(path.read_bytes(), media_type=STATIC[name], headers={"Cache-Control": "no-cache"})


async def _sentence(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_of(error))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    return JSONResponse({"error": f"the request makes no sense: {where}: {first['msg']}"}, 400)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    missing = "there is nothing at this address"
    return JSONResponse({"error": missing if error.status_code == 404 else str(error.detail)}, error.status_code)


async def _unexpected(request: Request, error: Exception) -> Response:
    status = status_of(error)
    text = "the disk is full: free some space" if status == 507 else f"unexpected error: {type(error).__name__}"
    return JSONResponse({"error": text}, status)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    HypercapsError: _sentence,
    RequestValidationError: _invalid,
    HTTPException: _http,
    Exception: _unexpected,
}
