"""Print the speed of OpenVINO for the linear layers of SwinIR-M, and for similar layers.

On a quiet machine::

    python -m studies.performance.openvino_linear --threads 1

16,384 tokens; each layer with a bias is a network of one node, with the time that OpenVINO reports:
as a fully connected layer, and as the convolution of our backend. All run in turn within a round.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as opset

from nystra.runtime.backends.openvino.token_maps import convolve

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


def layer(channels: int, out: int, low: str, threads: int, convolution: bool) -> Any:
    """Return a request of one linear layer of tokens in a map, computed in a type."""
    rng = np.random.default_rng(0)
    pixels = opset.parameter([1, 128, 128, channels], np.float32)
    weight, bias = (
        opset.constant(rng.standard_normal(shape, np.float32))
        for shape in ((out, channels), (out,))
    )
    output = opset.add(opset.matmul(pixels, weight, False, True), bias)
    model = openvino.Model([opset.reshape(output, [-1, out], False)], [pixels])
    if convolution:
        assert convolve(model) == 1
    settings = {
        "INFERENCE_PRECISION_HINT": low,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "PERF_COUNT": True,
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    data = request.get_input_tensor().data
    data[:] = rng.standard_normal(data.shape, np.float32)
    return request


def took(request: Any) -> tuple[float, str]:
    """Return the seconds of the layer in one run, and its implementation in OpenVINO."""
    request.infer()
    kinds = ("FullyConnected", "Convolution")
    (node,) = [node for node in request.get_profiling_info() if node.node_type in kinds]
    return node.real_time.total_seconds(), node.exec_type


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    ways = [(*shape, convolution) for shape in LAYERS for convolution in (False, True)]
    for low in ("f32", "bf16"):
        requests = {way: layer(*way[:2], low, options.threads, way[2]) for way in ways}
        times: dict[tuple[int, int, bool], list[float]] = {way: [] for way in ways}
        kinds: dict[tuple[int, int, bool], str] = {}
        for _ in range(options.rounds + 2):
            for way, request in requests.items():
                seconds, kinds[way] = took(request)
                times[way].append(seconds)
        print(
            f"\n{low}, {options.threads} threads\n\n| layer | ms | GFLOP/s | by |\n{'| --- ' * 4}|"
        )
        for way, (_, _, *own) in times.items():
            seconds = statistics.median(own)
            speed = 2e-9 * TOKENS * way[0] * way[1] / seconds
            print(f"| {way[0]} to {way[1]} | {1e3 * seconds:.2f} | {speed:.0f} | {kinds[way]} |")


if __name__ == "__main__":
    main()
