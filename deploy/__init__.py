"""A model file on machines that serve: Triton, Ray Serve, VapourSynth, ComfyUI, browsers.

The names below are imported on first use; none of them needs torch or onnx.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
