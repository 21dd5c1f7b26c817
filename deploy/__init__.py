"""A model file on machines that serve: Triton's model repository, Ray Serve, containers.

The names below are imported on first use; none of them needs torch or onnx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .ray_application import ray_serve
    from .triton.options import TritonOptions
    from .triton.repository import write_repository

__all__ = ["TritonOptions", "ray_serve", "write_repository"]

_HOME = {
    "TritonOptions": "triton.options",
    "ray_serve": "ray_application",
    "write_repository": "triton.repository",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
