"""How much of everything the service takes."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.option import Options, option
from ...core.option_kinds import Bytes, Number
from ..options import BATCH, MAX_MEMORY, TILE, WORKERS


@dataclass(frozen=True)
class Limits(Options):
    """What requests, and all of them together, may take; more is refused with the reason."""

    tile: int = option(
        TILE,
        default=256,
        minimum=1,
        doc="largest side of a tile",
        usual="256, less with little memory",
    )
    batch: int = option(BATCH)
    workers: int = option(WORKERS, default=4, doc="requests under way at once", usual="")
    queue: int = option(Number(64, "requests that wait besides; more get 429", 0))
    max_bytes: int = option(Bytes(64 << 20, "of a request's body, such as 64M", 1))
    max_pixels: int = option(
        Number(40_000_000, "of a picture, read off its header before anything is decoded", 1)
    )
    max_memory: int | None = option(
        MAX_MEMORY,
        doc="of pictures and results under way, such as 4G",
        usual="half of what is free when the models are loaded",
    )
    timeout: float = option(
        Number(300.0, "seconds from the end of the upload to the answer", 0, above=True)
    )
    upload_timeout: float = option(
        Number(60.0, "seconds for an upload, or for taking an answer", 0, above=True)
    )
    header_timeout: float = option(
        Number(10.0, "seconds for the head of a request, before its body", 0, above=True)
    )
    connections: int = option(Number(512, "open at once; more get 503, probes excepted", 1))
    patience: float = option(Number(30.0, "seconds that a stop waits for requests under way", 0))
