"""An 8-bit linear layer in OpenVINO, fully connected and as a 1x1 convolution.

    python -m studies.precision.openvino_int8

Random layers, 180 channels, 16x16 tokens, weights of 127 steps either way, inputs rounded by a
FakeQuantize of 255 levels (-127 to 127) or of 256 (-128 to 127). Expected is the same network in
floats whose inputs are rounded by Clamp, Divide, Round and Multiply, which OpenVINO computes as
they stand. Needs openvino and numpy alone: it is what a report to OpenVINO takes.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import openvino
from openvino import opset13 as opset

CHANNELS, SIDE, STEPS, LIMIT = 180, 16, 127, 8.0
STEP = LIMIT / STEPS


def rounded(value: Any, levels: int, integers: bool) -> Any:
    """Return a map in steps of ``LIMIT / 127``, by one FakeQuantize or in floats."""
    low, high = -STEP * (levels - STEPS - 1), LIMIT
    if integers:
        ends = [opset.constant(np.float32(end)) for end in (low, high, low, high)]
        return opset.fake_quantize(value, *ends, levels)
    step = opset.constant(np.float32(STEP))
    steps = opset.divide(opset.clamp(value, low, high), step)
    return opset.multiply(opset.round(steps, "half_to_even"), step)


def layers(count: int, form: str, levels: int, integers: bool) -> openvino.Model:
    """Return a number of linear layers of tokens (1, SIDE, SIDE, CHANNELS).

    Args:
        count: Of layers.
        form: ``fully connected`` or ``convolution``.
        levels: Of their inputs.
        integers: As OpenVINO computes in 8 bits; else the same in floats.
    """
    random = np.random.default_rng(0)
    tokens = opset.parameter([1, SIDE, SIDE, CHANNELS], np.float32)
    convolved = form == "convolution"
    value = opset.transpose(tokens, opset.constant([0, 3, 1, 2])) if convolved else tokens
    for _ in range(count):
        weight = random.standard_normal((CHANNELS, CHANNELS), np.float32) / CHANNELS**0.5
        scale = np.abs(weight).max(1, keepdims=True) / STEPS
        whole = np.round(weight / scale).astype(np.int8)
        if convolved:
            whole, scale = whole[:, :, None, None], scale[:, :, None, None]
        if integers:
            converted = opset.convert(opset.constant(whole), np.float32)
            kernel = opset.multiply(converted, opset.constant(scale))
        else:
            kernel = opset.constant((whole * scale).astype(np.float32))
        value = rounded(value, levels, integers)
        if convolved:
            value = opset.convolution(value, kernel, [1, 1], [0, 0], [0, 0], [1, 1])
        else:
            value = opset.matmul(value, kernel, False, True)
    if convolved:
        value = opset.transpose(value, opset.constant([0, 2, 3, 1]))
    return openvino.Model([value], [tokens])


def output(model: openvino.Model, precision: str) -> np.ndarray:
    """Return the output of a network for noise, on one thread."""
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    shape = (1, SIDE, SIDE, CHANNELS)
    got: np.ndarray = compiled(np.random.default_rng(0).standard_normal(shape, np.float32))[0]
    return got


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--layers", type=int, default=1)
    options = parser.parse_args()
    print(f"OpenVINO {openvino.__version__}, {options.precision}, {options.layers} layers\n")
    print("| layer | levels | PSNR to floats, dB | largest difference, in steps of the input |")
    print("| --- | --- | --- | --- |")
    for form in ("fully connected", "convolution"):
        for levels in (2 * STEPS + 1, 2 * STEPS + 2):
            got, expected = (
                output(layers(options.layers, form, levels, integers), precision)
                for integers, precision in ((True, options.precision), (False, "f32"))
            )
            error = np.abs(got - expected)
            decibels = 10 * np.log10(np.ptp(expected) ** 2 / np.mean(error**2))
            print(f"| {form} | {levels} | {decibels:.1f} | {error.max() / STEP:.4f} |", flush=True)


if __name__ == "__main__":
    main()
