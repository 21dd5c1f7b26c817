"""The body of a request on its way in."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from ..errors import BusyError, ServiceError, TooLargeError, UploadStoppedError

_SILENCE = 5.0
"""Seconds without a byte after which the rest of a refused body is no longer read."""


class Uploads:
    """All bodies that are on their way in, or held by a request."""

    def __init__(self, most: int, memory: int) -> None:
        """Begin with none.

        Args:
            most: Bytes that one may have.
            memory: Bytes that all together may have.
        """
        self._most, self._memory = most, memory
        self._held = 0

    def check(self, size: int) -> None:
        """Raise `TooLargeError` where a body is larger than one may be."""
        if size > self._most:
            raise TooLargeError(
                f"the request has {size} bytes or more, and this service accepts {self._most}: "
                "send a smaller file, or start the service with a larger `max_bytes`"
            )

    def take(self, size: int) -> None:
        """Hold bytes, or raise `BusyError` where they are too many."""
        if self._held + size > self._memory:
            raise BusyError("too many uploads at once: try again later", retry_after=5)
        self._held += size

    def release(self, size: int) -> None:
        """Hold them no more."""
        self._held -= size


class Upload:
    """One body."""

    def __init__(self, scope: Scope, receive: Receive, uploads: Uploads, seconds: float) -> None:
        """Begin to count the seconds.

        Args:
            scope: Of the request.
            receive: What the bytes come from.
            uploads: It is one of these.
            seconds: For the whole of it.
        """
        headers = Headers(scope=scope)
        self._receive, self._uploads, self._seconds = receive, uploads, seconds
        self._held = 0
        self._end = _now() + seconds
        self._announced = (
            "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        )
        # A client that asks whether to go on has sent nothing until it is told so.
        self._asks = "expect" in headers
        self._complete = False

    @property
    def unread(self) -> bool:
        """Whether bytes of it are still to come."""
        return self._announced and not self._complete

    async def receive(self) -> Message:
        """Return the next message, as an application takes it.

        Raises:
            UploadStoppedError: The seconds are over.
            TooLargeError: It is larger than it may be.
            BusyError: All bodies together are.
        """
        if self._complete:
            return await self._receive()
        self._asks = False
        try:
            message = await asyncio.wait_for(self._receive(), max(self._end - _now(), 0.001))
        except asyncio.TimeoutError:
            raise UploadStoppedError(
                f"the upload took more than {self._seconds:g} s ({self._held} bytes were "
                "received): send it again, or raise `upload_timeout`"
            ) from None
        if message["type"] == "http.request":
            self._complete = not message.get("more_body", False)  # also where it is refused here
            size = len(message.get("body", b""))
            try:
                self._uploads.check(self._held + size)
                self._uploads.take(size)
            except ServiceError:
                self.release()  # at once, so that others have the room
                raise
            self._held += size
        return message

    async def discard(self) -> None:
        """Read what is left and keep nothing of it.

        A connection that is closed with bytes unread is reset, and the client, which may still be
        sending, never reads why it was refused.
        """
        while self.unread and not self._asks:
            seconds = min(self._end - _now(), _SILENCE)
            try:
                message = await asyncio.wait_for(self._receive(), max(seconds, 0.001))
            except asyncio.TimeoutError:
                break
            self._complete = not message.get("more_body", False)
        self.forget()

    def release(self) -> None:
        """Hold nothing of it any more."""
        self._uploads.release(self._held)
        self._held = 0

    def forget(self) -> None:
        """Wait for no more of it."""
        self._announced = False


def _now() -> float:
    return asyncio.get_running_loop().time()
