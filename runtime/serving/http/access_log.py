"""The access log: one line on stderr for each request."""

from __future__ import annotations

import contextlib
import sys
import time

from starlette.types import Scope

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
        f"{when} {client} {_plain(scope['method'])} {_plain(scope['path'])} {status} "
        f"{size} bytes {1e3 * seconds:.0f} ms\n"
    )
    with contextlib.suppress(OSError, ValueError):  # nobody reads it: the service goes on
        sys.stderr.write(line)
        sys.stderr.flush()


def _plain(text: str) -> str:
    """Return a text in printable ASCII, without spaces."""
    escaped = text[:_LONGEST].encode("unicode_escape").decode("ascii").replace(" ", "%20")
    return escaped + ("..." if len(text) > _LONGEST else "")
