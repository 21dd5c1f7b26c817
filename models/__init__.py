"""Networks and checkpoints: state-dict compatible with the published ones, plain PyTorch.

``load(path)`` reads a checkpoint safely, finds its architecture and returns a ``LoadedModel``.
The names below are imported on first use, so that importing this package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_names import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, _HOME)
