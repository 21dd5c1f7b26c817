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
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.plugins.library import library_path

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


def session(path: Path, *, library: bool) -> ort.InferenceSession:
    """Return a session of one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if library:
        options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


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
                runs = [session(given, library=False)]
                for name in ("full", "nystra", "cluster"):
                    options = ExportOptions(Plan(mechanism(name)), speed=False)
                    made = export_model(given, Path(folder, f"{name}.onnx"), options)
                    runs.append(session(made.model, library=True))
                image = np.random.default_rng(1).random((1, WIDTH, side, side), np.float32)
                times: list[list[float]] = [[] for _ in runs]
                for _ in range(ROUNDS):
                    for run, own in zip(runs, times, strict=True):
                        start = time.process_time()
                        run.run(None, {"input": image})
                        own.append(1e3 * (time.process_time() - start))
            cells = " | ".join(f"{statistics.median(own):.1f} ms" for own in times)
            print(f"| {operator} | {side * side:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
