"""Where a request says that it comes from and goes to: what web pages must not make a browser send.

A service without a token answers whoever reaches it, and every page that a browser shows reaches
this machine: by a form or a script that posts to 127.0.0.1, or by a name of its own that is made to
mean 127.0.0.1 once the page is there (DNS rebinding), which the browser takes for the same place.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ..errors import ForeignOriginError, UnknownHostError


def check_origin(headers: Headers, hosts: Collection[str]) -> None:
    """Raise unless a request goes to a name of this service, and comes from no other web page.

    Addresses and names without a dot, which nobody else can register, are always its own.

    Args:
        headers: Of the request.
        hosts: Other names that it is reached by.

    Raises:
        UnknownHostError: ``Host`` is another name.
        ForeignOriginError: ``Origin`` is another place than ``Host``.
    """
    place = headers.get("host", "")
    host = _split("//" + place)[0]
    if "." in host and not _is_address(host) and host not in _own_names(hosts):
        raise UnknownHostError(
            f"this service does not accept the host name {host}: use its address, or start it "
            "with that name in `hosts`, or with a token"
        )
    origin = headers.get("origin")
    if origin is not None and _split(origin) != _split("//" + place):
        raise ForeignOriginError(
            f"a page of {origin} sent this to {place}: open the service's own page, or start it "
            "with a token"
        )


def _split(place: str) -> tuple[str, int | None]:
    """Return name and port of a URL, without the ports that browsers leave out."""
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
