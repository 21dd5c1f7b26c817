"""The upload of a request's body."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from ..errors import BusyError, ServiceError, TooLargeError, UploadStoppedError

_SILENCE = 5.0
"""Seconds without a byte after which the rest of a refused body is no longer read."""


class Uploads:
    """All bodies that are being uploaded or held by a request."""

    def __init__(self, max_bytes: int, memory: int) -> None:
        """Begin with none.

        Args:
            max_bytes: Limit of the bytes of one body.
            memory: Limit of the bytes of all together.
        """
        self._max_bytes, self._memory = max_bytes, memory
        self._bytes_held = 0

    def check(self, size: int) -> None:
        """Raise `TooLargeError` if a body is above the limit."""
        if size > self._max_bytes:
            raise TooLargeError(
                f"the request has {size} bytes or more, and this service accepts "
                f"{self._max_bytes}: send a smaller file, or start the service with a larger "
                "`max_bytes`; see docs/serving.md"
            )

    def take(self, size: int) -> None:
        """Reserve bytes, or raise `BusyError` if they exceed the limit."""
        if self._bytes_held + size > self._memory:
            raise BusyError("too many uploads at once: try again later", retry_after=5)
        self._bytes_held += size

    def release(self, size: int) -> None:
        """Release bytes."""
        self._bytes_held -= size


class Upload:
    """One body."""

    def __init__(self, scope: Scope, receive: Receive, uploads: Uploads, seconds: float) -> None:
        """Start the timer.

        Args:
            scope: ASGI scope of the request.
            receive: Returns the messages of the body.
            uploads: All uploads, including this one.
            seconds: Time limit of the upload.
        """
        headers = Headers(scope=scope)
        self._receive, self._uploads, self._seconds = receive, uploads, seconds
        self._bytes_held = 0
        self._end = _now() + seconds
        self._announced = (
            "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        )
        # A client that sent Expect: 100-continue sends nothing before the response to that.
        self._asks = "expect" in headers
        self._complete = False

    @property
    def unread(self) -> bool:
        """Whether bytes are still missing."""
        return self._announced and not self._complete

    async def receive(self) -> Message:
        """Return the next ASGI message.

        Raises:
            UploadStoppedError: The time limit was reached. TooLargeError: The body is too large.
                BusyError: All bodies together are too large.
        """
        if self._complete:
            return await self._receive()
        self._asks = False
        try:
            message = await asyncio.wait_for(self._receive(), max(self._end - _now(), 0.001))
        except asyncio.TimeoutError:
            raise UploadStoppedError(
                f"the upload took more than {self._seconds:g} s ({self._bytes_held} bytes were "
                "received): send it again, or raise `upload_timeout`"
            ) from None
        if message["type"] == "http.request":
            self._complete = not message.get("more_body", False)  # also where it is refused here
            size = len(message.get("body", b""))
            try:
                self._uploads.check(self._bytes_held + size)
                self._uploads.take(size)
            except ServiceError:
                self.release()  # at once, to make room for others
                raise
            self._bytes_held += size
        return message

    async def discard(self) -> None:
        """Read the rest and discard it.

        A connection that is closed with unread bytes is reset, and a client that is still sending
        never receives the reason.
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
        """Release its bytes."""
        self._uploads.release(self._bytes_held)
        self._bytes_held = 0

    def forget(self) -> None:
        """Stop waiting for the rest."""
        self._announced = False


def _now() -> float:
    return asyncio.get_running_loop().time()
