"""What every request passes before anything else sees it: the token, bytes and time."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import BusyError, ServiceError, TooLargeError, UnauthorizedError, UploadStoppedError
from ..limits import Limits
from .answers import refused

Count = Callable[[str, str, int], None]

_OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no token."""


class Guard:
    """An ASGI layer around the application."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        memory: int,
        count: Count,
        token: str | None = None,
    ) -> None:
        """Begin with nobody inside.

        Args:
            app: What is guarded.
            limits: Of a body and of the time for it.
            memory: Bytes of all bodies that are on their way in, together.
            count: Told path, model (empty where none was found) and status of each request.
            token: What has to stand behind ``Authorization: Bearer``; None asks for nothing.
        """
        self._app, self._limits, self._memory = app, limits, memory
        self._count, self._token = count, token
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["state"] = {"model": ""}
        send = self._counting(scope, send)
        try:
            self._check(scope)
        except ServiceError as refusal:
            response = refused(refusal)
            response.headers["Connection"] = "close"  # the body stays unread
            await response(scope, receive, send)
            return
        body = _Body(self, receive)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._held -= body.size

    def take(self, size: int, got: int) -> None:
        """Count bytes of a body.

        Args:
            size: How many came.
            got: How many of the same body came in all.

        Raises:
            TooLargeError: It is larger than it may be.
            BusyError: All bodies together are.
        """
        if got > self._limits.max_bytes:
            raise _too_large(got, self._limits.max_bytes)
        self._held += size
        if self._held > self._memory:
            raise BusyError("too many uploads at once: try again later", retry_after=5)

    @property
    def upload_timeout(self) -> float:
        """Seconds for a body."""
        return self._limits.upload_timeout

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._token is not None and scope["path"] not in _OPEN:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                raise UnauthorizedError(
                    "the token is missing or wrong: send Authorization: Bearer ..."
                )
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._limits.max_bytes:
            raise _too_large(int(announced), self._limits.max_bytes)

    def _counting(self, scope: Scope, send: Send) -> Send:
        """Return what sends within the time, and counts."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope["path"], scope["state"]["model"], message["status"])
            await asyncio.wait_for(send(message), self._limits.upload_timeout)

        return sent


class _Body:
    """One body on its way in."""

    def __init__(self, guard: Guard, receive: Receive) -> None:
        self.size = 0
        self._guard, self._receive = guard, receive
        self._end = asyncio.get_running_loop().time() + guard.upload_timeout
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        left = self._end - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0.001))
        except asyncio.TimeoutError:
            raise UploadStoppedError(
                f"the upload took more than {self._guard.upload_timeout:g} s and had "
                f"{self.size} bytes by then: send it again, or raise `upload_timeout`"
            ) from None
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self._guard.take(size, self.size + size)
            self.size += size
            self._complete = not message.get("more_body", False)
        return message


def _too_large(size: int, most: int) -> TooLargeError:
    return TooLargeError(
        f"the request has {size} bytes or more, and this service takes {most}: send a smaller "
        "file, or start the service with a larger `max_bytes`"
    )
