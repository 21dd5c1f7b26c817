"""Time exact attention between tokens: the kernel, onnxruntime's operators and PyTorch's SDPA.

    python -m studies.performance.tokens --tokens 1024 4096 --threads 2
    python -m studies.performance.tokens --tokens 16384 --threads 2 --type bfloat16

Prints milliseconds (processor time, and time on the clock), the medians of rounds in which all run
in turn, how much memory one run of each adds to a process of its own, and the median over the
rounds of the first kind's time divided by the last's. In bfloat16 the kernel and SDPA run alone,
the kernel by its C interface: onnxruntime does not compute in bfloat16 on a CPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper

from nystra.plugins import native
from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.plugins.operators.schema import VERSION, node_attributes
from studies.performance.peak import peak_above

KINDS = ("NystraAttention", "MatMul and Softmax", "Attention", "SDPA")
BOTH = (KINDS[0], KINDS[-1])
Case = tuple[str, int, int, int, int, str]


def attention(
    kind: str, heads: int, channels: int, tokens: int, threads: int, dtype: str
) -> Callable[[], object]:
    """Return a call of one of `KINDS` on random lists (1, heads, tokens, channels)."""
    random, scale = np.random.default_rng(0), channels**-0.5
    shape = (1, heads, tokens, channels)
    lists = {name: random.standard_normal(shape, dtype=np.float32) for name in "qkv"}
    tensors = [torch.from_numpy(array).to(getattr(torch, dtype)) for array in lists.values()]
    if kind == "SDPA":
        torch.set_num_threads(threads)
        return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors)
    if dtype == "bfloat16":
        arrays = [tensor.view(torch.int16).numpy() for tensor in tensors]
        arrays.append(np.zeros((1, 1, 1, 1), np.int16))
        settings = {"bias": 0, "scale": scale}
        types = [dtype] * len(arrays)
        return lambda: native.run(kind, arrays, settings, threads, kinds=types)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if kind == "NystraAttention":
        options.register_custom_ops_library(str(library_path()))
    session = ort.InferenceSession(
        _model(kind, scale).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, lists)


def _model(kind: str, scale: float) -> onnx.ModelProto:
    node, constants = helper.make_node, {"scale": np.float32(scale)}
    if kind == "NystraAttention":
        attributes = node_attributes(kind, bias=0, scale=scale)
        constants = {"none": np.zeros((1, 1, 1, 1), np.float32)}
        nodes = [node(kind, ["q", "k", "v", "none"], ["y"], domain=DOMAIN, **attributes)]
    elif kind == "Attention":
        constants, nodes = {}, [node(kind, ["q", "k", "v"], ["y"], scale=scale)]
    else:
        nodes = [
            node("Mul", ["q", "scale"], ["scaled"]),
            node("Transpose", ["k"], ["turned"], perm=[0, 1, 3, 2]),
            node("MatMul", ["scaled", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["weights"]),
            node("MatMul", ["weights", "v"], ["y"]),
        ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 4) for n in "qkvy"]
    held = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "tokens", values[:3], values[3:], held)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def _added(case: Case) -> int:
    """Return by how many MB one run raises this process's memory, result included."""
    attention(*case[:3], 8, *case[4:])()  # what the libraries take
    return peak_above(attention(*case)) // 1_000_000


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[256, 1024, 4096])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--type", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--kinds", nargs="*", choices=KINDS)
    chosen = parser.parse_args()
    kinds = chosen.kinds or (KINDS if chosen.type == "float32" else BOTH)
    if chosen.type == "bfloat16" and not set(kinds) <= set(BOTH):
        parser.error(f"in bfloat16 there are the kinds {' and '.join(BOTH)}")
    print(f"| heads, channels | tokens | {' | '.join(kinds)} | first / last |")
    print("| --- | ---: |" + " ---: |" * (len(kinds) + 1))
    for heads, channels in ((2, 32), (6, 64)):
        for tokens in chosen.tokens:
            sizes = heads, channels, tokens, chosen.threads, chosen.type
            cases: list[Case] = [(kind, *sizes) for kind in kinds]
            calls = [attention(*case) for case in cases]
            times: list[list[tuple[float, float]]] = [[] for _ in calls]
            for _ in range(chosen.rounds):
                for call, rounds in zip(calls, times, strict=True):
                    start = time.process_time(), time.perf_counter()
                    call()
                    rounds.append((time.process_time() - start[0], time.perf_counter() - start[1]))
            cells = []
            for case, rounds in zip(cases, times, strict=True):
                cpu, clock = (1e3 * statistics.median(part) for part in zip(*rounds, strict=True))
                with multiprocessing.get_context("spawn").Pool(1) as apart:
                    cells.append(f"{cpu:.1f} / {clock:.1f} ms, {apart.map(_added, [case])[0]} MB")
            ratios = [a[0] / b[0] for a, b in zip(times[0], times[-1], strict=True)]
            middle = statistics.median(ratios)
            cells.append(f"{middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
            print(f"| {heads}, {channels} | {tokens:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
