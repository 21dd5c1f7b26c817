"""OpenVINO by its own API, on an ONNX file or on an int8 model by NNCF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from studies.engines.workers.protocol import Request, Run, serve


def convert(request: Request) -> None:
    """Quantize an ONNX file with NNCF as documented for transformers."""
    import nncf
    import openvino

    images = [np.load(path) for path in sorted(Path(request["images"]).glob("*.npy"))]
    quantized: Any = nncf.quantize(
        openvino.Core().read_model(request["source"]),
        nncf.Dataset(images),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(images),
    )
    openvino.save_model(quantized, request["target"], compress_to_fp16=False)


def open_engine(request: Request) -> Run:
    """Compile the file for the latency of one image."""
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": request["precision"],
        "INFERENCE_NUM_THREADS": request["threads"],
        "PERFORMANCE_HINT": "LATENCY",
    }
    infer = openvino.Core().compile_model(request["path"], "CPU", settings).create_infer_request()

    def run(image: np.ndarray) -> np.ndarray:
        output: np.ndarray = infer.infer({0: image})[0]
        return output

    return run


if __name__ == "__main__":
    serve("openvino", open_engine, convert)
