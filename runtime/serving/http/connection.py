"""Connections: time limits of idle ones, and which are closed when too many are open."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CROWDED = "crowded"
"""In the state of a request: more connections are open than allowed."""


class IdleConnections:
    """The connections of a service that wait for the header of a request, the oldest first.

    Each has a time limit for it, however slowly it arrives. If more connections are open than
    allowed, the oldest of these are closed for new ones, so that clients that open connections and
    send nothing block nobody. An eighth more connections than allowed are accepted, so that probes
    are answered while all others are busy.
    """

    def __init__(self, connections: int, seconds: float) -> None:
        """Begin with none.

        Args:
            connections: How many may be open.
            seconds: From the opening, or from the first byte of a later request, to the end of the
                header.
        """
        self.connections = connections
        self._seconds, self._spare = seconds, max(connections // 8, 1)
        self._waiting: dict[Connection, asyncio.TimerHandle] = {}

    def begin(self, connection: Connection) -> None:
        """Start the timer of a connection, if it is not running."""
        if connection in self._waiting:
            return
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(self._seconds, self._close, connection)
        if len(connection.connections) > self.connections and len(self._waiting) > self._spare:
            self._close(next(iter(self._waiting)))

    def end(self, connection: Connection) -> None:
        """Stop the timer: the header has arrived, or the connection is closed."""
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _close(self, connection: Connection) -> None:
        self.end(connection)
        connection.transport.abort()


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 with a time limit for idle connections."""

    def __init__(self, idle: IdleConnections, **how: Any) -> None:
        """Initialize with the arguments of uvicorn, ``how``."""
        super().__init__(**how)
        self._idle = idle

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._idle.begin(self)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; uvicorn handles the requests whose headers are complete."""
        self.app_state[CROWDED] = len(self.connections) > self._idle.connections
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._idle.begin(self)
        else:
            self._idle.end(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Stop tracking the connection."""
        self._idle.end(self)
        super().connection_lost(error)
