"""A process of ``openvino_bars``: a model file in OpenVINO alone, through its own API."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from nystra.runtime.timing.worker import Opened, serve

SIDE = 128


def alone(request: Mapping[str, Any]) -> Opened:
    """Compile the file and return a function that runs it on an image of noise."""
    import openvino  # after nystra, which turns its telemetry off

    settings = {
        "INFERENCE_PRECISION_HINT": request["precision"],
        "INFERENCE_NUM_THREADS": request["threads"],
        "PERFORMANCE_HINT": "LATENCY",
    }
    infer = openvino.Core().compile_model(request["model"], "CPU", settings).create_infer_request()
    image = np.random.default_rng(0).random((1, 3, SIDE, SIDE), np.float32)
    return Opened(lambda _: infer.infer({0: image}))


if __name__ == "__main__":
    sys.exit(serve(alone))
