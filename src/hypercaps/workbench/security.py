"""Security: every request is checked before anything else sees it, and every answer gets the same headers.

A page of another site can make the browser send requests here, under this server's name even (DNS rebinding). So the
host, the origin, the cookie and the kind of content are compared with whole strings, never with patterns, and nothing
is decided by the request's URL.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
MOST_JSON = 8_000_000  # bytes of a request
MOST_FILE = 512_000_000
UPLOAD = "/api/labels/import"  # the only request that is a file
_log = logging.getLogger(__name__)
_JSON, _BYTES = "application/json", "application/octet-stream"


class Access:
    """Who may enter: the hosts of this server, the token of the first address, and the cookie that replaces it."""

    def __init__(self, hosts: list[str], port: int, on_used: Callable[[str], None] | None = None) -> None:
        self.hosts = frozenset(f"{host}:{port}" for host in hosts)
        self.origins = frozenset(f"http://{host}" for host in self.hosts)
        self.cookie_name = f"hypercaps-{port}"
        self.cookie = secrets.token_urlsafe(32)  # in memory only: a new one each start
        self.token = secrets.token_urlsafe(32)
        self._address = f"http://{hosts[0]}:{port}/"
        self._on_used = on_used

    @property
    def address(self) -> str:
        """The address to open, which works once."""
        return f"{self._address}?token={self.token}"

    def takes_token(self, given: str) -> bool:
        """Whether this is the token; it is replaced, so that nobody can use it again."""
        if not _same(given, self.token):
            return False
        self.token = secrets.token_urlsafe(32)
        if self._on_used is not None:
            self._on_used(self.address)
        return True

    def knows_cookie(self, header: str) -> bool:
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == self.cookie_name and _same(value, self.cookie):
                return True
        return False


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Guard:
    """The middleware around the whole application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks another protocol
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send)
        try:
            redirect = self._check(scope)
            if redirect is not None:
                await _answer(send, 303, b"", redirect)
                return
            await self._app(scope, _limited(receive, _most(scope)), send)
        except _RefusedError as refusal:
            body = json.dumps({"error": refusal.message}).encode()
            await _answer(send, refusal.status, body, {"Content-Type": _JSON, "Connection": "close"})
        except Exception:  # the application has answered it: the server stays up
            _log.exception("unexpected error")

    def _check(self, scope: Scope) -> dict[str, str] | None:
        """Refuse what is not from our page; the headers of a redirect, if the request brought the token."""
        headers = _Headers(scope)
        access = self._access
        if headers.one("host") not in access.hosts:
            raise _RefusedError(403, "this server does not have that name")
        origin = headers.one("origin")
        if origin is not None and origin not in access.origins:
            raise _RefusedError(403, "requests from other sites are refused")
        if headers.one("sec-fetch-site") not in (None, "same-origin", "none"):
            raise _RefusedError(403, "requests from other sites are refused")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise _RefusedError(405, "only GET and POST are understood")
        self._check_path(scope)
        redirect = self._enter(scope, headers)
        if redirect is None and scope["method"] == "POST":
            _check_post(scope, headers, origin)
        return redirect

    def _check_path(self, scope: Scope) -> None:
        raw = scope.get("raw_path") or scope["path"].encode()
        path = scope["path"]
        if b"%2f" in raw.lower() or b"%5c" in raw.lower() or "\\" in path or ".." in path or "\0" in path:
            raise _RefusedError(404, "there is nothing at this address")

    def _enter(self, scope: Scope, headers: _Headers) -> dict[str, str] | None:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        is_known = self._access.knows_cookie(headers.one("cookie") or "")
        if scope["method"] == "GET" and scope["path"] == "/" and "token" in query:
            if self._access.takes_token(query["token"][0]):
                cookie = f"{self._access.cookie_name}={self._access.cookie}; Path=/; HttpOnly; SameSite=Strict"
                return {"Location": "./", "Set-Cookie": cookie}
            if is_known:  # the page was opened again from its first address
                return {"Location": "./"}
        if not is_known:
            raise _RefusedError(403, "this page needs the address that 'hypercaps serve' has printed, which works once")
        return None


class _Headers:
    def __init__(self, scope: Scope) -> None:
        self._all: list[tuple[bytes, bytes]] = scope["headers"]

    def one(self, name: str) -> str | None:
        """The value of a header; one that is given twice is refused."""
        values = [value.decode("latin-1") for key, value in self._all if key == name.encode()]
        if len(values) > 1:
            raise _RefusedError(400, f"the request has more than one {name}")
        return values[0] if values else None


def _check_post(scope: Scope, headers: _Headers, origin: str | None) -> None:
    if origin is None:
        raise _RefusedError(403, "a request that changes something must say its origin")
    kind = _BYTES if scope["path"] == UPLOAD else _JSON
    given = (headers.one("content-type") or "").partition(";")[0].strip().lower()
    if given != kind:
        raise _RefusedError(403, f"the content of this request must be {kind}")
    if headers.one("x-hypercaps") != "1":
        raise _RefusedError(403, "the request lacks the header X-Hypercaps")
    length = headers.one("content-length")
    if length is None or not length.isdecimal():
        raise _RefusedError(411, "the request does not say how long it is")
    if int(length) > _most(scope):
        raise _RefusedError(413, f"the request has {int(length):,} bytes: at most {_most(scope):,} are read")


def _most(scope: Scope) -> int:
    return MOST_FILE if scope["path"] == UPLOAD else MOST_JSON


def _limited(receive: Receive, most: int) -> Receive:
    """Read no more than ``most`` bytes, whatever the request said of its length."""
    read = 0

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > most:
            raise _RefusedError(413, f"the request is longer than {most:,} bytes")
        return message

    return limited


def _with_headers(send: Send) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, Any]) -> None:
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
