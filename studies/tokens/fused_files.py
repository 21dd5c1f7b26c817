"""Time of files with attention as one operator, as given and with nystra's node in its place.

    OMP_NUM_THREADS=1 python -m studies.tokens.fused_files

Plain onnxruntime runs the given file; nystra's library is loaded for the other. One thread,
processor time, medians of rounds in which both run in turn.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.runtime.timing.turns import timed_in_turns
from studies.performance.onnx_files import session_of

WIDTH, HEADS = 64, 2
ROUNDS = 5


def write(path: Path, operator: str, side: int) -> None:
    """Write an attention between all pixels of an image of 64 channels, by one operator."""
    domain = "com.microsoft" if operator == "MultiHeadAttention" else ""
    heads = {"num_heads": HEADS} if domain else {"q_num_heads": HEADS, "kv_num_heads": HEADS}
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((WIDTH, WIDTH), np.float32) / 8 for name in "qkv"}
    held = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    shapes = {"lines": (1, WIDTH, side * side), "map": (1, WIDTH, side, side)}
    held += [onnx.numpy_helper.from_array(np.array(s), name) for name, s in shapes.items()]
    nodes = [
        helper.make_node("Reshape", ["input", "lines"], ["l"]),
        helper.make_node("Transpose", ["l"], ["x"], perm=[0, 2, 1]),
        *(helper.make_node("MatMul", ["x", name], [f"{name}_"]) for name in "qkv"),
        helper.make_node(operator, ["q_", "k_", "v_"], ["y"], domain=domain, **heads),
        helper.make_node("Transpose", ["y"], ["z"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["z", "map"], ["output"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, WIDTH, side, side))
        for name in ("input", "output")
    ]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "attention", infos[:1], infos[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def _next_round(times: Mapping[str, Sequence[float]]) -> Sequence[str]:
    """Return whose turn it is: all, `ROUNDS` times."""
    return [name for name, own in times.items() if len(own) < ROUNDS]


def main() -> None:
    """Measure, and print a table in Markdown."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("| operator | tokens | given | full | nystra | cluster |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for operator in ("Attention", "MultiHeadAttention"):
        for side in (32, 64):
            with tempfile.TemporaryDirectory() as folder:
                given = Path(folder, "given.onnx")
                write(given, operator, side)
                sessions = {"given": session_of(given, library=False)}
                for name in ("full", "nystra", "cluster"):
                    options = ExportOptions(Plan(mechanism(name)), speed=False)
                    made = export_model(given, Path(folder, f"{name}.onnx"), options)
                    sessions[name] = session_of(made.model, library=True)
                image = np.random.default_rng(1).random((1, WIDTH, side, side), np.float32)
                runs = {n: partial(one.run, None, {"input": image}) for n, one in sessions.items()}
                times = timed_in_turns(runs, _next_round, time.process_time)
            cells = " | ".join(f"{1e3 * statistics.median(own):.1f} ms" for own in times.values())
            print(f"| {operator} | {side * side:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
