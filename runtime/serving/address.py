"""Where the service listens."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.option import Options, option
from ...core.option_kinds import Number, Switch, Text, Words


@dataclass(frozen=True)
class Address(Options):
    """Where a service listens: by default to this machine alone."""

    host: str = option(Text("127.0.0.1", "address", metavar="HOST"))
    port: int = option(Number(8000, "port; 0 chooses a free one", 0, 65535, metavar="PORT"))
    hosts: tuple[str, ...] = option(
        Words(
            (),
            "accepted host names if no token is set",
            metavar="NAME,NAME",
            usual="host, this machine's name, addresses, and names without a dot",
        )
    )
    access_log: bool = option(Switch("print no line per request on stderr", default=True))
