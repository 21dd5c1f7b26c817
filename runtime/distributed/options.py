"""Which cluster, and how much of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...core.errors import NystraError

LOCAL = "local"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})")


@dataclass(frozen=True)
class ClusterOptions:
    """The flags of ``nystra run`` that go with ``--ray``.

    Attributes:
        address: ``HOST:PORT`` of a cluster that this machine is part of, or ``local`` for one that
            is started here and ends with the run.
        workers: Processes that each hold the model; None is as many as the CPUs (or GPUs) allow.
        threads: Of a worker, and the CPUs that it is given.
        library: The operator library on the machines of the workers, as `Session` takes it.
    """

    address: str
    workers: int | None = None
    threads: int = 1
    library: str = "auto"

    def __post_init__(self) -> None:
        """Refuse what is no address, and numbers below 1."""
        if self.address != LOCAL and _ADDRESS.fullmatch(self.address) is None:
            raise NystraError(
                f"--ray is {self.address!r}, expected local or HOST:PORT, as `ray start --head` "
                "prints it (port 6379, not the client's ray://)"
            )
        for flag, number in (("--workers", self.workers), ("--threads", self.threads)):
            if number is not None and number < 1:
                raise NystraError(f"{flag} is {number}, expected 1 or more")

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the address."""
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)
