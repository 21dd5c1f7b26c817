"""The first GPU: its name, and how much of its memory a model uses, from the driver."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libcuda.so.1"


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
    driver = _driver()
    if isinstance(driver, str):
        return driver
    major, minor, version = (ctypes.c_int() for _ in range(3))
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

    def __init__(self, driver: Any) -> None:
        """Take note of the memory in use.

        Args:
            driver: The driver's library, which found a GPU.

        Raises:
            OSError: The driver fails.
        """
        self._driver, self._context = driver, ctypes.c_void_p()
        _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), ctypes.c_int(0)))
        self._before = self._in_use()

    @classmethod
    def start(cls) -> DeviceMemory | None:
        """Return an object that counts from now on; None if there is no GPU."""
        driver = _driver()
        try:
            return None if isinstance(driver, str) else cls(driver)
        except OSError:
            return None

    @property
    def above(self) -> int:
        """Bytes in use above those of the beginning, at least 0."""
        return max(self._in_use() - self._before, 0)

    def _in_use(self) -> int:
        """Return the bytes that all processes together have taken."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _check(self._driver.cuCtxSetCurrent(self._context))
        _check(self._driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return total.value - free.value


def _driver() -> Any:
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return f"no NVIDIA driver is installed ({_LIBRARY})"
    number = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number)) or number.value == 0:
        return "the NVIDIA driver finds no GPU"
    return driver


def _check(status: int) -> None:
    if status:
        raise OSError(f"the NVIDIA driver failed with error {status}")
