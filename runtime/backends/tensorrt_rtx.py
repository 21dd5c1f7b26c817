"""The backend ``tensorrt-rtx``: engines that `nystra build` made, ahead of time or here."""

from __future__ import annotations

from typing import ClassVar

from ..engines import toolkit
from .tensorrt import TensorrtBackend


class TensorrtRtxBackend(TensorrtBackend):
    """TensorRT-RTX on the first GPU."""

    engine: ClassVar[str] = toolkit.RTX
