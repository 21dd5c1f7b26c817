"""The limits of the service."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.option import Options, option
from ...core.option_kinds import Bytes, Number, Switch, Text, Words
from ..options import BATCH, MAX_MEMORY, TILE, WORKERS


@dataclass(frozen=True)
class Limits(Options):
    """Limits of each request and of all together; requests beyond them are refused."""

    tile: int = option(
        TILE,
        default=256,
        minimum=1,
        doc="maximum side of a tile",
        default_text="256, less with little memory",
    )
    batch: int = option(BATCH)
    workers: int = option(
        WORKERS, default=4, doc="requests handled at the same time", default_text=""
    )
    queue: int = option(
        Number(64, "requests that may wait; further ones get 429", 0, hard_maximum=1_000_000)
    )
    max_bytes: int = option(Bytes(64 << 20, "maximum size of a request body, such as 64M", 1))
    max_pixels: int = option(
        Number(40_000_000, "maximum pixels of an image, checked before decoding", 1)
    )
    max_memory: int | None = option(
        MAX_MEMORY,
        doc="memory limit of images and results in progress, such as 4G",
        default_text="half of the free memory once the models are loaded",
    )
    timeout: float = option(
        Number(300.0, "seconds from the end of the upload to the response", 0, above=True)
    )
    upload_timeout: float = option(
        Number(60.0, "seconds for an upload, or for receiving a response", 0, above=True)
    )
    patience: float = option(
        Number(30.0, "seconds that requests in progress get when the service stops", 0)
    )


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
            default_text="host, this machine's name, addresses, and names without a dot",
        )
    )
    access_log: bool = option(Switch("print no line per request on stderr", default=True))
