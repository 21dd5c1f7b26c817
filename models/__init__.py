"""Networks and checkpoints: state-dict compatible with the published ones, plain PyTorch.

``load(path)`` reads a checkpoint safely, finds its architecture and returns a ``LoadedModel``.
The names below are imported on first use, so that importing this package does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
