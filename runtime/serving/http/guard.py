"""Checks of every request before it is handled: origin, size and time."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
import sys
import time
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import (
    BadRequestError,
    ForeignOriginError,
    ServiceError,
    StoppingError,
    UnauthorizedError,
    UnknownHostError,
)
from ..limits import Limits
from .responses import error_response
from .upload import Upload, Uploads

Count = Callable[[str, str, int], None]

_FINE = 200
_GONE = 499
"""The status in the log if the client left before it got one."""

_PROBES = ("/healthz", "/readyz")
_OPEN = ("/", "/openapi.json", *_PROBES)
"""Paths that need no token."""


class Guard:
    """An ASGI middleware around the application."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        memory: int,
        count: Count,
        token: str | None = None,
        hosts: Collection[str] = (),
        log: bool = False,
    ) -> None:
        """Begin without requests.

        Args:
            app: The application.
            limits: Limits of a body and of its upload time.
            memory: Limit of the bytes of all bodies that are being uploaded.
            count: Called with path, model (empty if unknown) and status of each request.
            token: The required bearer token; None: no token is required.
            hosts: As in `check_origin`, if there is no token.
            log: Print a line for each request.
        """
        self._app, self._limits, self._uploads = app, limits, Uploads(limits.max_bytes, memory)
        self._count, self._token, self._hosts = count, token, hosts
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        status, size = _GONE, 0

        async def send_counted(message: Message) -> None:
            nonlocal status, size
            await send(message)
            status = message.get("status", status)
            size += len(message.get("body", b""))

        try:
            await self._handle(scope, receive, send_counted)
        finally:
            if self._log and (scope["path"] not in _PROBES or status != _FINE):
                log_request(scope, status, size, time.perf_counter() - begin)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"model": ""}
        upload = Upload(scope, receive, self._uploads, self._limits.upload_timeout)
        answer = _Answer(scope, send, upload, self._count, self._limits.upload_timeout)
        try:
            self._check(scope)
        except ServiceError as refusal:
            await error_response(refusal)(scope, receive, answer.send)
            return
        try:
            await self._app(scope, upload.receive, answer.send)
        except asyncio.CancelledError:  # after the time that the server waits for requests
            if answer.begun:
                raise
            upload.forget()
            stopping = StoppingError("the service stopped before this request was done")
            await error_response(stopping)(scope, receive, answer.send)
        finally:
            upload.release()

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        if "content-length" in headers and "transfer-encoding" in headers:
            raise BadRequestError(
                "the request has both Content-Length and Transfer-Encoding: send one of them"
            )
        if path in _PROBES:
            return
        if self._token is None:
            check_origin(headers, self._hosts)
        elif path not in _OPEN:
            authorization = headers.get("authorization", "")
            if not hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode()):
                raise UnauthorizedError(
                    "the token is missing or wrong: send Authorization: Bearer ..."
                )
        announced = headers.get("content-length", "0")
        if announced.isdecimal():
            self._uploads.check(int(announced))


class _Answer:
    """A response: sent within its time limit, counted, and after the body was received.

    Attributes:
        begun: Whether a part of it was sent.
    """

    def __init__(
        self, scope: Scope, send: Send, upload: Upload, count: Count, timeout: float
    ) -> None:
        self.begun = False
        self._scope, self._send, self._upload = scope, send, upload
        self._count, self._timeout = count, timeout

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            self._count(self._scope["path"], self._scope["state"]["model"], message["status"])
            if self._upload.unread:
                MutableHeaders(scope=message)["Connection"] = "close"
        elif not message.get("more_body", False) and self._upload.unread:
            await self._write({**message, "more_body": True})
            await self._upload.discard()
            message = {"type": "http.response.body", "body": b""}
        await self._write(message)

    async def _write(self, message: Message) -> None:
        await asyncio.wait_for(self._send(message), self._timeout)


_LONGEST = 200


def log_request(scope: Scope, status: int, size: int, seconds: float) -> None:
    """Print time, client, method, path, status, bytes and milliseconds of a request.

    The query and the headers, which may hold secrets, are left out; control characters of the path
    are escaped.

    Args:
        scope: ASGI scope of the request.
        status: Status of the response, or 499 if the client left before it began.
        size: Bytes of the body that were sent.
        seconds: From the header of the request to the end of the response.
    """
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    client = (scope.get("client") or ("-",))[0]
    line = (
        f"{when} {client} {_escape(scope['method'])} {_escape(scope['path'])} {status} "
        f"{size} bytes {1e3 * seconds:.0f} ms\n"
    )
    with contextlib.suppress(OSError, ValueError):  # nobody reads it: the service goes on
        sys.stderr.write(line)
        sys.stderr.flush()


def _escape(text: str) -> str:
    escaped = text[:_LONGEST].encode("unicode_escape").decode("ascii").replace(" ", "%20")
    return escaped + ("..." if len(text) > _LONGEST else "")


def check_origin(headers: Headers, hosts: Collection[str]) -> None:
    """Raise unless a request is addressed to this service, and comes from no other web page.

    A service without a token answers everybody who can reach it, and every page in a browser can
    reach this machine: with a form or a script that posts to 127.0.0.1, or with its own host name,
    which is changed to resolve to 127.0.0.1 after the page is loaded (DNS rebinding), so that the
    browser sees the same origin.

    IP addresses and names without a dot, which nobody else can register, are always accepted.

    Args:
        headers: Headers of the request.
        hosts: Further accepted host names.

    Raises:
        UnknownHostError: ``Host`` is not an accepted name.
        ForeignOriginError: ``Origin`` differs from ``Host``.
    """
    place = headers.get("host", "")
    host = _split("//" + place)[0]
    if "." in host and not _is_address(host) and host not in _own_names(hosts):
        raise UnknownHostError(
            f"this service does not accept the host name {host}: use its IP address, or start the "
            "service with that name in `hosts`, or with a token; see docs/serving.md"
        )
    origin = headers.get("origin")
    if origin is not None and _split(origin) != _split("//" + place):
        raise ForeignOriginError(
            f"a web page of {origin} sent this request to {place}: open the service's own page, or "
            "start the service "
            "with a token"
        )


def _split(place: str) -> tuple[str, int | None]:
    """Return host and port of a URL; default ports are omitted, as by browsers."""
    try:
        parts = urlsplit(place)
        name, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return place, None
    return name, None if port in (80, 443) else port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _own_names(hosts: Collection[str]) -> set[str]:
    return {name.lower().rstrip(".") for name in (*hosts, socket.gethostname())}
