"""``nystra serve``: serves model files over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..session_spec import SessionSpec
from .application import open_application
from .limits import Limits
from .loading import Models


def serve(
    specs: Sequence[SessionSpec],
    limits: Limits | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    version: str = "0",
    hosts: Collection[str] = (),
    log: bool = False,
    ready: Callable[[str, Models], None] = lambda address, models: None,
) -> None:
    """Serve models until SIGINT or SIGTERM.

    Args:
        specs: The models.
        limits: Limits of requests.
        host: Address to listen on.
        port: 0 chooses a free one.
        token: The bearer token that requests need, or None.
        version: Version of nystra.
        hosts: As in `open_application`, in addition to ``host``.
        log: The same.
        ready: Called with the address and the models when requests are accepted.

    Raises:
        NystraError: The port is in use, or a model cannot be served.
        BackendUnavailableError: A backend, or a library that a model needs, is missing.
    """
    from .http.server import address_of, listen, run_app

    bounds = limits or Limits()
    with listen(host, port) as listener:
        names = (host, *hosts)
        application = open_application(
            specs, bounds, token=token, version=version, hosts=names, log=log
        )
        patience = bounds.patience
        try:
            ready(address_of(listener), application.models)
            patience -= run_app(application.app, listener, bounds)
        finally:
            application.close(max(patience, 0.0))
