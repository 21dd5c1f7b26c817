"""The first GPU: its name, and how much of its memory a model uses, from the driver."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ...core.errors import NystraError
from .cuda import Driver


@dataclass(frozen=True)
class Device:
    """A CUDA device.

    Attributes:
        name: As the driver calls it.
        capability: Its compute capability, ``sm90``.
        cuda: Major version of the driver's CUDA.
    """

    name: str
    capability: str
    cuda: int


def find_device() -> Device | str:
    """Return the first CUDA device of this machine, or the reason why there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed (libcuda.so.1)"
    number, major, minor, version = (ctypes.c_int() for _ in range(4))
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number)) or number.value == 0:
        return "the NVIDIA driver finds no GPU"
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, 256, 0)
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)  # ..._COMPUTE_CAPABILITY_MAJOR
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)  # ..._COMPUTE_CAPABILITY_MINOR
    driver.cuDriverGetVersion(ctypes.byref(version))
    capability = f"sm{major.value}{minor.value}"
    return Device(name.value.decode(errors="replace"), capability, version.value // 1000)


class DeviceMemory:
    """The growth of the first GPU's used memory from now on.

    Everything counts: weights, activations, what a runtime keeps for later, and other processes,
    so none of these may work meanwhile. Runtimes keep the memory that they allocated, so that after
    a run this is the peak so far. The context of this process exists before and does not count.
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
        """Return an object that counts from now on; None if there is no GPU."""
        try:
            return cls()
        except NystraError:
            return None

    @property
    def above(self) -> int:
        """Bytes in use above those of the beginning, at least 0."""
        self._driver.activate()
        return max(self._driver.memory_in_use() - self._before, 0)
