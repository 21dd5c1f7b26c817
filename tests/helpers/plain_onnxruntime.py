"""Model files in plain onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime


def in_onnxruntime(path: Path, image: np.ndarray) -> np.ndarray:
    """Return the first output of a file of one input, on the CPU and without nystra."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {session.get_inputs()[0].name: image})[0]
    return result
