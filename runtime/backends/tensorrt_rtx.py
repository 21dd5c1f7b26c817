"""The backend ``tensorrt-rtx``: engines of `nystra build`, built ahead of time or here."""

from __future__ import annotations

from typing import ClassVar

from ..engines.builder import RTX, Builder
from .tensorrt import TensorrtBackend


class TensorrtRtxBackend(TensorrtBackend):
    """TensorRT-RTX on the first GPU."""

    engine: ClassVar[Builder] = RTX
