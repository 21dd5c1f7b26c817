"""How much of everything the service takes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...core.errors import NystraError


@dataclass(frozen=True)
class Limits:
    """What requests, and all of them together, may take; more is refused with the reason.

    Attributes:
        tile: Largest side of a tile in input pixels, less where the memory does not suffice.
        batch: Images that one run of a model takes at most, of whatever requests.
        max_bytes: Of a request's body.
        max_pixels: Of each picture, read off its header before anything is decoded.
        workers: Requests under way at once.
        queue: Requests that wait besides.
        memory: Bytes of pictures and results under way; None is half of what is free when the
            models are loaded.
        timeout: Seconds from the end of the upload to the answer.
        upload_timeout: Seconds for the upload, and for the client to take the answer.
        connections: Open at once; more are told to try again.
        patience: Seconds that a stop waits for requests under way.
    """

    tile: int = 256
    batch: int = 8
    max_bytes: int = 64 << 20
    max_pixels: int = 40_000_000
    workers: int = 4
    queue: int = 64
    memory: int | None = None
    timeout: float = 300.0
    upload_timeout: float = 60.0
    connections: int = 512
    patience: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what lets nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            least = 0 if each.name in ("queue", "patience") else 1
            fits = value is None or (value > 0 if "timeout" in each.name else value >= least)
            if not fits:
                expected = "more than 0" if "timeout" in each.name else f"{least} or more"
                flag = each.name.replace("_", "-")
                raise NystraError(f"--{flag} is {value:g}, expected {expected}")
