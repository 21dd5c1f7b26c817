"""An engine's work as a CUDA graph: recorded once, launched as long as nothing changes.

A graph holds the addresses of the buffers and the state of TensorRT's execution context: a context
that gets another shape makes the graphs recorded from it undefined. So there is one graph, of the
shapes that ran last, and a run at other shapes forgets it.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable

from ...core.errors import NystraError
from ..machine.cuda import Driver

VARIABLE = "NYSTRA_CUDA_GRAPH"
"""The environment variable that switches CUDA graphs off (0) or on (1, as by default)."""


class CudaGraph:
    """One graph on one stream.

    Attributes:
        wanted: Runs are recorded; False after a recording failed.
    """

    def __init__(self, driver: Driver, stream: int, wanted: bool) -> None:
        """Begin without a graph.

        Args:
            driver: Driver of the stream.
            stream: The stream that is recorded and launches graphs.
            wanted: Record runs.
        """
        self._driver, self._stream, self._executable = driver, stream, 0
        self.wanted = wanted

    @property
    def ready(self) -> bool:
        """Whether there is a graph to launch."""
        return self._executable != 0

    def record(self, work: Callable[[], None]) -> bool:
        """Record the operations that ``work`` enqueues; return whether that succeeded.

        Nothing is executed yet. If the work cannot be recorded, it warns once, and nothing is
        recorded from then on.
        """
        try:
            self._executable = self._record(work)
        except NystraError as error:
            self.wanted = False
            warnings.warn(
                f"the run cannot be captured as a CUDA graph, so it runs without one: {error}. "
                f"{VARIABLE}=0 disables the attempt",
                RuntimeWarning,
                stacklevel=2,
            )
        return self.ready

    def launch(self) -> None:
        """Launch the graph on the stream."""
        self._driver.launch(self._executable, self._stream)

    def forget(self) -> None:
        """Destroy the graph, if there is one."""
        executable, self._executable = self._executable, 0
        if executable:
            self._driver.free_executable(executable)

    def _record(self, work: Callable[[], None]) -> int:
        driver, stream = self._driver, self._stream
        driver.begin_capture(stream)
        try:
            work()
        except BaseException:
            with contextlib.suppress(NystraError):  # a failed recording ends with an error
                driver.free_graph(driver.end_capture(stream))
            raise
        graph = driver.end_capture(stream)
        try:
            return driver.instantiate(graph)
        finally:
            driver.free_graph(graph)


def graphs_wanted() -> bool:
    """Return whether the environment variable `VARIABLE` allows graphs.

    Raises:
        NystraError: It is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise NystraError(f"{VARIABLE} is {value!r}, expected 0 or 1")
    return value == "1"
