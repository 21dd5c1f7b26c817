"""Overwrites the memory behind a value of onnxruntime as soon as the value is gone."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import nystra.core

PACKAGE = Path(nystra.core.__file__).parents[1]
BYTE = 0xA5
"""What freed memory is filled with."""


class FreedMemory:
    """Fills the memory of values made from arrays when they are gone, and notes who reads values.

    The memory itself is kept, so that a read of it gives that filling and does no harm.

    Attributes:
        filled: Number of values whose memory was filled.
        readers: Files that called ``OrtValue.numpy``, relative to the package.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filled = 0
        self.readers: set[str] = set()
        self._kept: list[np.ndarray] = []
        value_type = onnxruntime.OrtValue
        make, read = value_type.ortvalue_from_numpy, value_type.numpy

        def making(array: np.ndarray, *device: Any) -> Any:
            own = np.array(array, order="C")
            value = make(own, *device)
            self._kept.append(own)
            weakref.finalize(value, self._fill, own)
            return value

        def reading(value: Any) -> Any:
            path = sys._getframe(1).f_code.co_filename
            self.readers.add(path.removeprefix(f"{PACKAGE}/"))
            return read(value)

        monkeypatch.setattr(value_type, "ortvalue_from_numpy", making)
        monkeypatch.setattr(value_type, "numpy", reading)

    def _fill(self, memory: np.ndarray) -> None:
        self.filled += 1
        memory.reshape(-1).view(np.uint8)[:] = BYTE
