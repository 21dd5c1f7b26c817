# ruff: noqa: T201
"""Print at what speed OpenVINO computes the linear layers of SwinIR-M, and layers near them.

Not a test: run it by hand, on a quiet machine::

    python tests/benchmarks/openvino_linear.py --threads 1

16,384 tokens; each layer with a bias is a network of one node, whose own time OpenVINO counts.
All take turns within a round.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as opset

TOKENS = 128 * 128

LAYERS = [
    (180, 180),
    (192, 192),
    (180, 540),
    (192, 576),
    (180, 360),
    (180, 384),
    (192, 384),
    (360, 180),
    (384, 180),
    (384, 192),
]
"""Channels in and out."""


def layer(channels: int, out: int, low: str, threads: int) -> Any:
    """Return a request of one linear layer of tokens in a map, whose type it computes in."""
    rng = np.random.default_rng(0)
    kind = getattr(openvino.Type, low)
    given = opset.parameter([1, 128, 128, channels], kind)
    weight, bias = (
        opset.convert(opset.constant(rng.standard_normal(shape, np.float32)), low)
        for shape in ((out, channels), (out,))
    )
    product = opset.matmul(given, weight, False, True)
    model = openvino.Model([opset.add(product, bias)], [given])
    settings = {
        "INFERENCE_PRECISION_HINT": low,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "PERF_COUNT": True,
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    size = int(np.prod(request.get_input_tensor().shape))
    values = rng.standard_normal(size, np.float32)
    data = request.get_input_tensor().data
    if low == "f32":
        data[:] = values.reshape(data.shape)
    else:
        data.view(np.uint16)[:] = (values.view(np.uint32) >> 16).reshape(data.shape)
    return request


def took(request: Any) -> tuple[float, str]:
    """Return the seconds of the layer in one run, and what OpenVINO computed it with."""
    request.infer()
    nodes = [node for node in request.get_profiling_info() if node.node_type == "FullyConnected"]
    return nodes[0].real_time.total_seconds(), nodes[0].exec_type


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    for low in ("f32", "bf16"):
        requests = {shape: layer(*shape, low, given.threads) for shape in LAYERS}
        times: dict[tuple[int, int], list[float]] = {shape: [] for shape in LAYERS}
        kinds: dict[tuple[int, int], str] = {}
        for _ in range(given.rounds + 2):
            for shape, request in requests.items():
                seconds, kinds[shape] = took(request)
                times[shape].append(seconds)
        print(f"\n{low}, {given.threads} threads\n\n| layer | ms | GFLOP/s | by |\n{'| --- ' * 4}|")
        for (channels, out), (_, _, *own) in times.items():
            seconds = statistics.median(own)
            speed = 2e-9 * TOKENS * channels * out / seconds
            kind = kinds[channels, out]
            print(f"| {channels} to {out} | {1e3 * seconds:.2f} | {speed:.0f} | {kind} |")


if __name__ == "__main__":
    main()
