"""What every pool does: it calls methods of workers, and yields a result for each call.

run FOLDER          Threads     one worker, called by threads of this process
run FOLDER --jobs   Processes   a worker per child process
run --ray           Cluster     a worker per actor of a Ray cluster
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Call: TypeAlias = tuple[str, tuple[Any, ...]]
"""A method of a worker and its arguments."""


@dataclass(frozen=True)
class Failed:
    """The result of a call that a worker could not do."""

    error: str


@dataclass(frozen=True)
class CallResult:
    """The result of a call.

    Attributes:
        place: Index of the call, from 0.
        value: What the worker returned, or `Failed`.
        where: Name of the worker, on a cluster.
        tries: Number of workers that tried it.
    """

    place: int
    value: Any
    where: str = ""
    tries: int = 1


class Pool(Protocol):
    """Workers that share calls."""

    def run(
        self, calls: Iterable[Call], *, ordered: bool = False
    ) -> Generator[CallResult, None, None]:
        """Yield the result of each call, as it completes or in order.

        Raises:
            NystraError: No worker can start.
        """
        ...

    def close(self) -> None:
        """Drop the calls that have not begun, and end the workers."""
        ...
