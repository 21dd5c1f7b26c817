"""How much of a GPU's memory a model takes, as the driver sees it."""

from __future__ import annotations

from ...core.errors import NystraError
from .cuda import Driver


class DeviceMemory:
    """What the first GPU's memory in use grows by from now on.

    Everything counts: weights, activations, what a runtime keeps for later, and other processes,
    so none of these may work meanwhile. Runtimes keep what they took, so that after a run this is
    the peak so far. The context of this process itself is there before and does not count.
    """

    def __init__(self) -> None:
        """Take note of the memory in use.

        Raises:
            BackendUnavailableError: There is no driver or no GPU.
            NystraError: The driver fails.
        """
        self._driver = Driver()
        self._driver.activate()
        self._before = self._driver.memory_in_use()

    @classmethod
    def start(cls) -> DeviceMemory | None:
        """Return an object that counts from now on; None where there is no GPU to ask."""
        try:
            return cls()
        except NystraError:
            return None

    @property
    def above(self) -> int:
        """Bytes in use above those of the beginning, at least 0."""
        self._driver.activate()
        return max(self._driver.memory_in_use() - self._before, 0)
