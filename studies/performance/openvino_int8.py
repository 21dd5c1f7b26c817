"""8-bit linear layers in OpenVINO: fully connected, or as 1x1 convolutions.

    python -m studies.performance.openvino_int8 MODEL --size 128 --rounds 15

MODEL is a file of ``--precision int8``. Prints the processor time of both on one thread, in turn,
and their difference from the file in onnxruntime.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as opset

from nystra.runtime import Session
from nystra.runtime.backends.openvino.operators import extensions
from nystra.runtime.backends.openvino.token_maps import (
    compute_rows,
    convolve,
    float_kernel,
    is_linear,
)

FORMS = ("fully connected", "convolutions")


def constant(node: Any) -> Any:
    """Return the constant at the start of a chain of first inputs."""
    while node.get_type_name() != "Constant":
        node = node.input_value(0).get_node()
    return node


def kernel(node: Any) -> Any:
    """Return the kernel of a linear layer of floats or 8-bit integers, or None."""
    held = node.input_value(1).get_node() if is_linear(node) else node
    if node is held or held.get_type_name() != "Multiply" or node.get_attributes()["transpose_b"]:
        return float_kernel(node)
    whole = constant(held.input_value(0).get_node())
    if whole.get_output_element_type(0).get_type_name() != "i8":
        return None
    scale = constant(held.input_value(1).get_node()).data.reshape(-1, 1, 1, 1)
    integers = opset.constant(np.ascontiguousarray(whole.data.T[:, :, None, None]))
    return opset.multiply(opset.convert(integers, np.float32), opset.constant(scale)).output(0)


def compiled(path: Path, form: str, size: int, precision: str) -> Any:
    """Return the network for one size, on one thread."""
    core = openvino.Core()
    for extension in extensions(1, "bf16" if precision == "bf16" else None):
        core.add_extension(extension)
    model = core.read_model(path)
    model.reshape({model.inputs[0].any_name: [1, 3, size, size]})
    if form == "convolutions":
        print(f"{convolve(model, kernel)} layers as convolutions")
        compute_rows(model)
    else:
        compute_rows(model)
        convolve(model)
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1}
    begun = time.perf_counter()
    network = core.compile_model(model, "CPU", settings | {"ENABLE_CPU_PINNING": False})
    print(f"{form}: compiled in {time.perf_counter() - begun:.2f} s")
    return network


def main() -> None:
    """Print both times, their ratio and their difference from onnxruntime."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    args = parser.parse_args()
    networks = [compiled(args.model, form, args.size, args.precision) for form in FORMS]
    image = np.random.default_rng(0).random((1, 3, args.size, args.size), np.float32)
    reference = Session(args.model, "ort-cpu", 1)(image)
    for form, network in zip(FORMS, networks, strict=True):
        error = np.mean((network(image)[0].astype(np.float64) - reference) ** 2)
        print(f"{form}: {10 * np.log10(np.ptp(reference) ** 2 / error):.1f} dB to onnxruntime")
    seconds = np.zeros((args.rounds, len(FORMS)))
    for turn in seconds:
        for index, network in enumerate(networks):
            begun = time.process_time()
            network(image)
            turn[index] = time.process_time() - begun
    fully, convolved = 1e3 * np.median(seconds, axis=0)
    ratio = np.median(seconds[:, 1] / seconds[:, 0])
    print(f"{fully:.1f} ms fully connected, {convolved:.1f} as convolutions, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
