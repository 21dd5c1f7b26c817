"""``nystra serve``: from model files to a process that answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..session_spec import SessionSpec
from .application import open_application
from .limits import Limits
from .opening import Models


def serve(
    specs: Sequence[SessionSpec],
    limits: Limits | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    version: str = "0",
    hosts: Collection[str] = (),
    ready: Callable[[str, Models], None] = lambda address, models: None,
) -> None:
    """Serve models until SIGINT or SIGTERM.

    Args:
        specs: Of the models.
        limits: What requests may take.
        host: Address to listen on.
        port: 0 takes a free one.
        token: What requests have to carry as ``Authorization: Bearer``, or None.
        version: Of nystra.
        hosts: As `open_application` takes them, besides ``host``.
        ready: Called with the address and the models when requests are accepted.

    Raises:
        NystraError: The port is in use, or a model cannot be served.
        BackendUnavailableError: A backend, or a library that a model needs, is missing.
    """
    from .http.server import address_of, listen, run_app

    bounds = limits or Limits()
    with listen(host, port) as listener:
        names = (host, *hosts)
        application = open_application(specs, bounds, token=token, version=version, hosts=names)
        patience = bounds.patience
        try:
            ready(address_of(listener), application.models)
            patience -= run_app(application.app, listener, bounds)
        finally:
            application.close(max(patience, 0.0))
