"""Time exact attention between tokens: the kernel, onnxruntime's operators and PyTorch's SDPA.

    python -m studies.performance.tokens --tokens 1024 4096 --threads 2

Prints milliseconds (processor time, and time on the clock), the medians of rounds in which all run
in turn, and how much memory one run of each adds to a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper

from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.plugins.operators.schema import VERSION, node_attributes

KINDS = ("NystraAttention", "MatMul and Softmax", "Attention", "SDPA")


def attention(
    kind: str, heads: int, channels: int, tokens: int, threads: int
) -> Callable[[], object]:
    """Return a call of one of `KINDS` on random lists (1, heads, tokens, channels)."""
    random, scale = np.random.default_rng(0), channels**-0.5
    shape = (1, heads, tokens, channels)
    lists = {name: random.standard_normal(shape, dtype=np.float32) for name in "qkv"}
    if kind == "SDPA":
        torch.set_num_threads(threads)
        tensors = [torch.from_numpy(array) for array in lists.values()]
        return lambda: torch.nn.functional.scaled_dot_product_attention(*tensors)
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


def _peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024  # of this process since it began


def _added(case: tuple[str, int, int, int, int]) -> int:
    """Return by how many MB one run raises this process's memory, lists and result included."""
    attention(*case[:3], 8, case[4])()  # what the libraries take
    call, before = attention(*case), _peak()
    call()
    return _peak() - before


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[256, 1024, 4096])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    chosen = parser.parse_args()
    print(f"| heads, channels | tokens | {' | '.join(chosen.kinds)} |")
    print("| --- | ---: |" + " ---: |" * len(chosen.kinds))
    for heads, channels in ((2, 32), (6, 64)):
        for tokens in chosen.tokens:
            cases = [(kind, heads, channels, tokens, chosen.threads) for kind in chosen.kinds]
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
            print(f"| {heads}, {channels} | {tokens:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
