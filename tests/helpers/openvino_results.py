"""The outputs of a network in OpenVINO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino", reason="nystra[openvino] is not installed")


def results(model: Any) -> Any:
    """Return the outputs of a network for random values."""
    image = np.random.default_rng(0).random(tuple(model.inputs[0].shape), np.float32)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    return openvino.Core().compile_model(model, "CPU", settings)(image)[0]
