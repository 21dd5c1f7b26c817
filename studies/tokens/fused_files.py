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
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.runtime.timing.turns import time_in_turns
from studies.performance.onnx_files import session_of

WIDTH, HEADS = 64, 2
ROUNDS = 5
ROTATED = "Attention behind RMSNormalization and RotaryEmbedding"
OPERATORS = ("Attention", "MultiHeadAttention", ROTATED)


def write(path: Path, operator: str, side: int) -> None:
    """Write an attention between all pixels of an image of 64 channels, by one operator.

    `ROTATED` has queries and keys that were normalized and turned by operators of their own too.
    """
    domain = "com.microsoft" if operator == "MultiHeadAttention" else ""
    random = np.random.default_rng(0)
    held: dict[str, npt.NDArray[Any]]
    held = {name: random.standard_normal((WIDTH, WIDTH), np.float32) / 8 for name in "qkv"}
    held |= {"lines": np.array((1, WIDTH, side * side)), "map": np.array((1, WIDTH, side, side))}
    node = helper.make_node
    nodes = [
        node("Reshape", ["input", "lines"], ["l"]),
        node("Transpose", ["l"], ["x"], perm=[0, 2, 1]),
        *(node("MatMul", ["x", name], [f"{name}_"]) for name in "qkv"),
    ]
    if operator == ROTATED:
        nodes += _rotated(side, held)
    else:
        heads = {"num_heads": HEADS} if domain else {"q_num_heads": HEADS, "kv_num_heads": HEADS}
        nodes.append(node(operator, ["q_", "k_", "v_"], ["y"], domain=domain, **heads))
    nodes += [
        node("Transpose", ["y"], ["z"], perm=[0, 2, 1]),
        node("Reshape", ["z", "map"], ["output"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, WIDTH, side, side))
        for name in ("input", "output")
    ]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "attention", infos[:1], infos[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def _rotated(side: int, held: dict[str, npt.NDArray[Any]]) -> list[onnx.NodeProto]:
    """Return q_, k_, v_ -> y with qk-norm and rotary places in two axes, and add its constants."""
    each = WIDTH // HEADS
    places = np.indices((side, side)).reshape(2, -1, 1) * 100.0 ** -(
        np.arange(each // 4) * 4 / each
    )
    angles = np.concatenate(places, -1)[None]  # (1, tokens, channels / 2)
    held |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    held |= {"heads": np.array((0, 0, HEADS, each)), "joined": np.array((0, 0, WIDTH))}
    held["weight"] = np.linspace(0.5, 1.5, each, dtype=np.float32)
    node, nodes = helper.make_node, []
    for name in "qkv":
        nodes.append(node("Reshape", [f"{name}_", "heads"], [f"{name}h"]))
        nodes.append(node("Transpose", [f"{name}h"], [f"{name}t"], perm=[0, 2, 1, 3]))
    for name in "qk":
        nodes.append(node("RMSNormalization", [f"{name}t", "weight"], [f"{name}n"], epsilon=1e-6))
        nodes.append(node("RotaryEmbedding", [f"{name}n", "cos", "sin"], [f"{name}r"]))
    nodes.append(node("Attention", ["qr", "kr", "vt"], ["yh"]))
    nodes.append(node("Transpose", ["yh"], ["yt"], perm=[0, 2, 1, 3]))
    nodes.append(node("Reshape", ["yt", "joined"], ["y"]))
    return nodes


def _next_round(times: Mapping[str, Sequence[float]]) -> Sequence[str]:
    """Return whose turn it is: all, `ROUNDS` times."""
    return [name for name, own in times.items() if len(own) < ROUNDS]


def main() -> None:
    """Measure, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", nargs="*", default=OPERATORS, choices=OPERATORS)
    chosen = parser.parse_args()
    print("| operator | tokens | given | full | nystra | cluster |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for operator in chosen.operators:
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
                times = time_in_turns(runs, _next_round, time.process_time)
            cells = " | ".join(f"{1e3 * statistics.median(own):.1f} ms" for own in times.values())
            print(f"| {operator} | {side * side:,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
