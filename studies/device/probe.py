"""Whether TensorRT builds and runs anything on this device: an engine of two layers.

python -m studies.device.probe OUT.json [--parser]

``--parser`` ends when a builder, a network and a parser are made, which needs no GPU where
TRT_INTERNAL_OPTIONS=--cpu_only=1 is set.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any


def probe(file: Path, parser_alone: bool) -> int:
    """Build the engine; write the result after each part."""
    facts: dict[str, Any] = {}

    def note(**more: Any) -> None:
        facts.update(more)
        file.write_text(json.dumps(facts))

    import numpy as np
    import tensorrt as trt  # type: ignore[import-not-found]

    note(tensorrt=trt.__version__)

    class Log(trt.ILogger):  # type: ignore[misc]
        """Stores the first error, since calls that fail return nothing."""

        def log(self, severity: Any, text: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR) and "error" not in facts:
                note(error=text)
            if severity not in (trt.ILogger.INFO, trt.ILogger.VERBOSE):
                print(text, flush=True)

    logger = Log()
    try:
        builder = trt.Builder(logger)
    except TypeError:  # what the bindings make of a builder that is none
        print(f"no builder: {facts.get('error', 'TensorRT says nothing')}")
        return 1
    note(builder="made")
    flags = trt.NetworkDefinitionCreationFlag
    strongly = 1 << int(flags.STRONGLY_TYPED) if hasattr(flags, "STRONGLY_TYPED") else 0
    network = builder.create_network(strongly)
    parser = trt.OnnxParser(network, logger)
    note(network="made", parser=f"made, {parser.num_errors} errors")
    if parser_alone:
        return 0
    values = network.add_input("x", trt.float32, (1, 8, 64, 64))
    weights = np.ones((8, 8, 3, 3), np.float32)
    layer = network.add_convolution_nd(values, 8, (3, 3), weights, np.zeros(8, np.float32))
    layer = network.add_activation(layer.get_output(0), trt.ActivationType.RELU)
    network.mark_output(layer.get_output(0))
    start = time.monotonic()
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    note(seconds=round(time.monotonic() - start, 2), built=plan is not None)
    if plan is None:
        return 1
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    note(loaded=engine is not None, bytes=plan.nbytes)
    return 0 if engine is not None else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--parser", action="store_true")
    args = parser.parse_args()
    raise SystemExit(probe(args.file, args.parser))
