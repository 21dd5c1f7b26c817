"""The server process."""

from __future__ import annotations

import asyncio
import errno
import math
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ....core.errors import NystraError
from ..limits import Limits

_BACKLOG = 2048
_GRACE = 2.0
"""Seconds within which cancelled requests are answered."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that a port in use is detected before models are loaded.

    Args:
        host: A name or an address.
        port: 0 chooses a free one.

    Raises:
        NystraError: The port is in use, or the address is not one of this machine.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise NystraError(f"`host` {host!r} is no address: {error}") from error
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise NystraError(
                f"port {port} of {host} is in use: stop the other program, or choose another "
                "`port` (0 chooses a free one)"
            ) from error
        raise NystraError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the URL of a socket, ``http://127.0.0.1:8000``."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_app(app: FastAPI, listener: socket.socket, limits: Limits) -> float:
    """Serve until SIGINT or SIGTERM; then finish the requests in progress.

    Returns:
        The seconds since the signal; infinite after a second signal.
    """
    config = uvicorn.Config(
        app,
        http="h11",  # not another one where that is installed
        loop="asyncio",  # the same
        log_level="error",  # no log line for each damaged request
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(limits.patience + _GRACE),
    )
    server = _HttpServer(config, limits.patience)
    server.run(sockets=[listener])
    if server.force_exit:
        return math.inf
    return time.monotonic() - (server.stopped or time.monotonic())


class _HttpServer(uvicorn.Server):
    """uvicorn, which would otherwise raise the signal again when it is done.

    Attributes:
        stopped: When the first signal came, by `time.monotonic`.
    """

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self.stopped: float | None = None
        self._patience = patience

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for requests in progress; after the time limit they are cancelled with an error.

        uvicorn's own timeout would cancel them and close the loop before they could respond.
        """
        asyncio.get_running_loop().call_later(self._patience, self._cancel_requests)
        await super().shutdown(sockets)

    def _cancel_requests(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stopped = self.stopped or time.monotonic()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, self.handle_exit) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)
