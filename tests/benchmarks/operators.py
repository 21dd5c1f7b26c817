# ruff: noqa: T201
"""Time the CPU operators in SwinIR-M geometry: 16,384 tokens, 180 channels in 6 heads.

Not a test: run it by hand, on a quiet machine, with the library built::

    python tests/benchmarks/operators.py --threads 2 --rounds 20

Configurations take turns within each round, since machines drift; what counts are the ratios.
``body`` is the operator's own ONNX function in plain onnxruntime, without the library.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from nystra.plugins.library import isa, library_path
from nystra.plugins.operators import OPERATORS
from nystra.plugins.operators.schema import DOMAIN, VERSION, node_attributes

HEADS, HEAD_DIM, SIDE = 6, 30, 128

RATIOS = [
    ("Nystrom w 32: body / kernel", "nystrom-32-body", "nystrom-32", 8.0),
    ("Nystrom w 32 masked: body / kernel", "nystrom-32-mask-body", "nystrom-32-mask", 8.0),
    ("w 32: softmax / Nystrom", "softmax-32", "nystrom-32", 10.0),
    ("w 64: softmax / Nystrom", "softmax-64", "nystrom-64", 35.0),
    ("w 32 masked: softmax / Nystrom", "softmax-32-mask", "nystrom-32-mask", 10.0),
    ("w 64 masked: softmax / Nystrom", "softmax-64-mask", "nystrom-64-mask", 35.0),
    ("softmax w 8, bias and mask: body / kernel", "softmax-8-bias-mask-body",
     "softmax-8-bias-mask", 2.0),
    ("Nystrom: w 16 / w 64", "nystrom-16", "nystrom-64", 1 / 1.6),
]  # fmt: skip
"""What is compared: slow, fast, and the ratio that is expected at least."""


def node(name: str) -> tuple[str, dict[str, Any]]:
    """Return operator and attributes of a configuration such as ``softmax-8-bias-mask``."""
    kind, window, *flags = name.split("-")
    side = int(window)
    shift = side // 2 if "mask" in flags else 0
    attributes: dict[str, Any] = {
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "value_dim": HEAD_DIM,
        "window_h": side,
        "window_w": side,
        "shift_h": shift,
        "shift_w": shift,
        "mask": int("mask" in flags),
        "scale": HEAD_DIM**-0.5,
    }
    if kind == "softmax":
        return "NystraWindowSoftmax", {**attributes, "bias": int("bias" in flags)}
    operator = "NystraWindowNystrom" if kind == "nystrom" else "NystraWindowNystromformer"
    return operator, attributes


def runner(name: str, threads: int) -> Callable[[], None]:
    """Return a function that runs a configuration once, on inputs and outputs bound beforehand."""
    operator, attributes = node(name)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((1, SIDE, SIDE, 3 * HEADS * HEAD_DIM), dtype=np.float32)]
    if operator == "NystraWindowSoftmax":
        rows = (2 * attributes["window_h"] - 1) ** 2
        shape = (rows, HEADS) if attributes["bias"] else (1,)
        inputs.append(rng.standard_normal(shape, dtype=np.float32))
    names = [f"x{i}" for i in range(len(inputs))]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, list(a.shape))
        for n, a in zip(names, inputs, strict=True)
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    given = node_attributes(operator, **attributes)
    made = helper.make_node(operator, names, ["y"], domain=DOMAIN, **given)
    body = name.endswith("-body")
    functions = []
    if body:
        module = f"nystra.plugins.operators.{OPERATORS[operator]}.body"
        functions.append(importlib.import_module(module).body(20))
    model = helper.make_model(
        helper.make_graph([made], name, values, [out]),
        functions=functions,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, VERSION)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if not body:
        options.register_custom_ops_library(str(library_path()))
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for n, array in zip(names, inputs, strict=True):
        binding.bind_ortvalue_input(n, ort.OrtValue.ortvalue_from_numpy(array))
    result = np.zeros((1, SIDE, SIDE, HEADS * HEAD_DIM), np.float32)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(result))
    return lambda: session.run_with_iobinding(binding)


def measure(names: list[str], threads: int, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each configuration in each round.

    A pause lets the threads of the session before stop spinning; a run before the timed one wakes
    those of this session.
    """
    runs = {name: runner(name, threads) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.02)
            run()
            start = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - start))
    return times


def main() -> None:
    """Print times, ratios against their bars, and the scaling from one thread to more."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    print(f"instruction set {isa()}, {arguments.threads} threads, {arguments.rounds} rounds")
    names = list(dict.fromkeys(name for _, slow, fast, _ in RATIOS for name in (slow, fast)))
    times = measure([*names, "nystromformer-32"], arguments.threads, arguments.rounds)
    for name, each in times.items():
        print(f"{name:28} median {statistics.median(each):9.2f} ms  best {min(each):9.2f} ms")
    for title, slow, fast, bar in RATIOS:
        ratio = statistics.median(a / b for a, b in zip(times[slow], times[fast], strict=True))
        print(f"{title:44} {ratio:7.2f}  (bar {bar:.2f})")
    one = measure(["nystrom-32"], 1, arguments.rounds)["nystrom-32"]
    more = measure(["nystrom-32"], arguments.threads, arguments.rounds)["nystrom-32"]
    scaling = statistics.median(one) / statistics.median(more)
    print(f"{f'Nystrom w 32: 1 to {arguments.threads} threads':44} {scaling:7.2f}")


if __name__ == "__main__":
    main()
