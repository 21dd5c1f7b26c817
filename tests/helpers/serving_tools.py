"""Requests to a service without a socket, and images for them."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nystra.runtime.serving.limits import Limits
from nystra.runtime.serving.request_queue import RequestQueue
from nystra.runtime.serving.served_model import Models, open_models
from nystra.runtime.session_spec import SessionSpec

BOUNDARY = "edge"


@dataclass
class Reply:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]

    @property
    def message(self) -> str:
        return self.json["error"]["message"]

    @property
    def image(self) -> Image.Image:
        return Image.open(io.BytesIO(self.body))


def png(
    height: int = 9, width: int = 12, seed: int = 0, format: str = "PNG", *, flat: bool = False
) -> bytes:
    most = 1 if flat else 256
    values = np.random.default_rng(seed).integers(0, most, (height, width, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, format)
    return stream.getvalue()


def enlarged(image: bytes, scale: int = 2) -> np.ndarray:
    values = np.asarray(Image.open(io.BytesIO(image)))
    return values.repeat(scale, 0).repeat(scale, 1)


def form(parts: Iterable[tuple[str, bytes]]) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a form with files."""
    body = b""
    for name, content in parts:
        head = f'Content-Disposition: form-data; name="{name}"; filename="{name}.png"'
        body += f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    body += f"--{BOUNDARY}--\r\n".encode()
    return body, {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


class Service:
    """An application with its queue, called like a web server calls it."""

    def __init__(self, *paths: Path, limits: Limits | None = None, **how: Any) -> None:
        from nystra.runtime.serving.http.app import create_app
        from nystra.runtime.serving.http.metrics import Metrics

        self.limits = limits or Limits(workers=2, max_memory=1 << 28)
        metrics = Metrics([path.stem for path in paths])
        specs = [SessionSpec(path, threads=1, library=None) for path in paths]
        self.models: Models = open_models(specs, self.limits, metrics.ran)
        self.queue = RequestQueue(
            self.limits.workers, self.limits.queue, self.limits.max_memory or 1 << 28
        )
        metrics.watch(self.queue)
        self.app = create_app(self.models, self.queue, self.limits, metrics, **how)

    def close(self) -> None:
        self.queue.close(5)
        self.models.close()

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        parts: Iterable[tuple[str, bytes]] = (),
        **how: Any,
    ) -> Reply:
        """Return the response to a request; with a body it is a POST."""
        sent_headers = dict(headers or {})
        if parts:
            body, more = form(parts)
            sent_headers |= more
        return asyncio.run(self.request(path, body, sent_headers, **how))

    async def request(
        self,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        piece: int = 1 << 16,
        leave_after: float | None = None,
        stall: bool = False,
    ) -> Reply:
        """Send a request in an event loop.

        Args:
            path: Path, with parameters after a question mark.
            body: Body of a POST; None: a GET.
            headers: Headers of the request.
            piece: Bytes of the body per message.
            leave_after: Seconds from the upload to a disconnect of the client.
            stall: The client sends half of the body and then nothing.
        """
        place, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET" if body is None else "POST",
            "scheme": "http",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        coming = _uploaded(body or b"", piece, leave_after, stall)
        reply = Reply(0, {}, b"")

        async def receive() -> dict[str, Any]:
            return await anext(coming)

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                reply.body += message.get("body", b"")

        await self.app(scope, receive, send)
        return reply


async def _uploaded(
    body: bytes, piece: int, leave_after: float | None, stall: bool
) -> AsyncIterator[dict[str, Any]]:
    pieces = [body[i : i + piece] for i in range(0, len(body), piece)] or [b""]
    for place, part in enumerate(pieces):
        if stall and place >= len(pieces) / 2:
            await asyncio.sleep(3600)
        last = place == len(pieces) - 1
        yield {"type": "http.request", "body": part, "more_body": not last}
    await asyncio.sleep(3600 if leave_after is None else leave_after)
    while True:
        yield {"type": "http.disconnect"}
