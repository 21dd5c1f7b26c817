"""Checks of the headers Host and Origin, against requests that web pages make browsers send.

A service without a token answers everybody who can reach it, and every page in a browser can reach
this machine: with a form or a script that posts to 127.0.0.1, or with its own host name, which is
changed to resolve to 127.0.0.1 after the page is loaded (DNS rebinding), so that the browser sees
the same origin.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ..errors import ForeignOriginError, UnknownHostError


def check_origin(headers: Headers, hosts: Collection[str]) -> None:
    """Raise unless a request is addressed to this service, and comes from no other web page.

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
