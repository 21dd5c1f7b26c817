"""A model file on machines that serve: Triton's model repository, Ray Serve, containers.

The names below are imported on first use; none of them needs torch or onnx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
