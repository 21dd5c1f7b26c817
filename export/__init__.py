"""From a checkpoint to an ONNX file that is checked against PyTorch.

The names below are imported on first use, so that the commands start without torch and onnx.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
