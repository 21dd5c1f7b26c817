"""Run, measure and check exported models: numpy and one backend, never PyTorch.

The face is lazy: a name is looked up in its module when it is first used, so that
``import nystra.runtime`` loads neither onnxruntime nor an image library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .benchmark import interleaved
    from .facts import ModelFacts, TensorInfo
    from .images import read_picture, write_picture
    from .manifest import Manifest
    from .metrics import psnr, ssim
    from .picture import Picture
    from .quality import validate_quality
    from .references import read_references, write_references
    from .run import run_pictures
    from .session import Session
    from .tiling import run_tiled
    from .validation import validate_against_references

__all__ = [
    "Manifest",
    "ModelFacts",
    "Picture",
    "Session",
    "TensorInfo",
    "interleaved",
    "psnr",
    "read_picture",
    "read_references",
    "run_pictures",
    "run_tiled",
    "ssim",
    "validate_against_references",
    "validate_quality",
    "write_picture",
    "write_references",
]

_HOME = {
    "Manifest": "manifest",
    "ModelFacts": "facts",
    "Picture": "picture",
    "Session": "session",
    "TensorInfo": "facts",
    "interleaved": "benchmark",
    "psnr": "metrics",
    "read_picture": "images",
    "read_references": "references",
    "run_pictures": "run",
    "run_tiled": "tiling",
    "ssim": "metrics",
    "validate_against_references": "validation",
    "validate_quality": "quality",
    "write_picture": "images",
    "write_references": "references",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
