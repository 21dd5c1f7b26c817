"""Networks and checkpoints: state-dict compatible with the published ones, plain PyTorch.

``load(path)`` reads a checkpoint safely, finds its architecture and returns a ``LoadedModel``.
The names below are imported on first use, so that importing this package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .facts import Facts
    from .loading import LoadedModel, load
    from .pretrained import pretrained_path

__all__ = ["Facts", "LoadedModel", "load", "pretrained_path"]

_HOME = {
    "Facts": "facts",
    "LoadedModel": "loading",
    "load": "loading",
    "pretrained_path": "pretrained",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
