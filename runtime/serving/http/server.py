"""The process that listens."""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from ....core.errors import NystraError
from ..limits import Limits

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that a port in use is found before models are loaded.

    Args:
        host: A name or an address.
        port: 0 takes a free one.

    Raises:
        NystraError: The port is in use, or the address is not one of this machine.
    """
    if not 0 <= port <= 65_535:
        raise NystraError(f"`port` is {port}, expected 0 to 65535")
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
                f"port {port} of {host} is in use: stop what listens there, or choose another "
                "`port` (0 takes a free one)"
            ) from error
        raise NystraError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return where a socket is found, ``http://127.0.0.1:8000``."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_app(app: FastAPI, listener: socket.socket, limits: Limits) -> None:
    """Serve until SIGINT or SIGTERM; then answer what is under way and return."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=max(int(limits.patience), 1),
    )
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn, which would send itself the signal once more when it is done."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, self.handle_exit) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)
