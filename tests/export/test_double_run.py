"""References run in float64 at the sizes at which a tolerance may depend on it, and only there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from torch import Tensor, nn

from nystra.export.rewrite.graph_network import GraphNetwork, is_continuous
from nystra.export.validate.double_run import DoubleRun

SIZES = [(1, 3, 4, 4), (1, 3, 8, 8), (1, 3, 16, 16)]


class Counted(nn.Module):
    """Multiplies, with a rounding error of a given size in float32, and logs its runs."""

    runs: list[tuple[int, ...]]

    def __init__(self, error: float) -> None:
        super().__init__()
        self.error = error

    def forward(self, image: Tensor) -> Tensor:
        """Return the image, less the error in float64."""
        Counted.runs.append(tuple(image.shape))
        return image - self.error


@pytest.mark.parametrize(
    ("error", "always", "expected"),
    [(1e-7, False, SIZES[:1]), (1e-7, True, SIZES), (2e-5, False, SIZES)],
    ids=["small", "may jump", "large"],
)
def test_float64_runs_until_rounding_is_small(
    error: float, always: bool, expected: list[tuple[int, ...]]
) -> None:
    Counted.runs = []
    run = DoubleRun(Counted(error), always=always)
    for size in SIZES:
        image = np.random.default_rng(0).random(size, np.float32)
        (exact,) = run.all([image], [image], [1e-4])
        changed = float(np.abs(exact - image).max())
        assert changed == (pytest.approx(error, rel=1e-2) if size in expected else 0.0)
    assert Counted.runs == expected


def graph_of(*nodes: ir.Node) -> Any:
    """Return a network whose graph has some nodes in a row, from an image to an output."""
    value = image = ir.Value(name="image", type=ir.TensorType(ir.DataType.FLOAT))
    for at, node in enumerate(nodes):
        node.replace_input_with(0, value)
        value = node.outputs[0]
        value.name = f"value_{at}"
    graph = ir.Graph([image], [value], nodes=nodes, opset_imports={"": 20})
    source: Any = SimpleNamespace(graph_model=SimpleNamespace(graph=graph))
    return GraphNetwork(source)


def node(name: str, **attributes: Any) -> ir.Node:
    """Return a node of one input and one output."""
    return ir.node(name, [None], attributes)


def test_what_jumps_is_seen() -> None:
    half, whole = int(ir.DataType.FLOAT16), int(ir.DataType.INT64)
    assert is_continuous(graph_of(node("Relu"), node("Softmax"), node("Cast", to=half)))
    assert is_continuous(graph_of(node("Softmax"), node("IsNaN")))
    assert not is_continuous(graph_of(node("Relu"), node("ArgMax")))
    assert not is_continuous(graph_of(node("Round"), node("Relu")))
    assert not is_continuous(graph_of(node("Cast", to=whole)))
    assert not is_continuous(nn.Identity()), "it has no graph"


def test_what_jumps_by_the_size_alone_is_no_matter() -> None:
    image = ir.Value(name="image", type=ir.TensorType(ir.DataType.FLOAT))
    sides = ir.node("Shape", [image])
    floored = ir.node("Floor", [ir.node("Cast", sides.outputs, {"to": 1}).outputs[0]])
    cast = floored.inputs[0].producer()
    added = ir.node("Add", [image, floored.outputs[0]])
    for at, one in enumerate((sides, cast, floored, added)):
        one.outputs[0].name = f"value_{at}"
    graph = ir.Graph(
        [image], added.outputs, nodes=[sides, cast, floored, added], opset_imports={"": 20}
    )
    source: Any = SimpleNamespace(graph_model=SimpleNamespace(graph=graph))
    assert is_continuous(GraphNetwork(source))
