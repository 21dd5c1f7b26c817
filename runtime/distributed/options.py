"""The options of a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from ...core.option import Option, Options, option
from ..options import LIBRARY, THREADS, WORKERS

LOCAL = "local"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True)
class Address(Option):
    """``HOST:PORT`` of a cluster, or ``local``."""

    _expected: ClassVar[str] = (
        "local or HOST:PORT, as `ray start --head` prints it (port 6379, not the client's ray://)"
    )

    def _accepted(self, name: str, value: Any) -> str:
        if value != LOCAL and not (isinstance(value, str) and _ADDRESS.fullmatch(value)):
            raise self.refused(name, value)
        return str(value)


@dataclass(frozen=True)
class ClusterOptions(Options):
    """Which cluster, and how much of it."""

    address: str = option(
        Address(
            LOCAL,
            "distribute the images of a folder or the frames of a video over a Ray cluster that "
            "this machine belongs to, or over local processes; `threads` is then per worker, "
            "default 1",
            flag="--ray",
            metavar="HOST:PORT|local",
            usual="not used",
        )
    )
    workers: int | None = option(WORKERS)
    threads: int = option(
        THREADS, default=1, doc="threads of a worker, and the CPUs that Ray reserves for it"
    )
    library: str = option(LIBRARY)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the address."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)
