"""Run, measure and check exported models: numpy and one backend, never PyTorch.

Names are imported on first use, so that
``import nystra.runtime`` loads neither onnxruntime nor an image library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
