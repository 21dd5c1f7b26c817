"""What a graph makes of its parameters alone is computed once."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from nystra.export.execute.parts import PartRunner, cut_into_parts
from nystra.export.load.module_graph import simplify
from nystra.export.rewrite import constants
from nystra.export.rewrite.constants import write_constant
from nystra.export.tracing.programs import export_program
from nystra.export.tracing.trace import convert_program
from nystra.runtime.ort_values import copy_from_ort, copy_to_ort


class Biased(nn.Module):
    """Adds numbers that another module makes of its parameters to (B, 9, 4)."""

    def __init__(self, numbers: nn.Module) -> None:
        super().__init__()
        self.numbers, self.linear = numbers, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x) + self.numbers()
        return y


class ByNetwork(nn.Module):
    """A table of position biases by a small network, with a norm, which returns three tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(18.0).view(9, 2))
        self.small = nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self) -> Tensor:
        numbers: Tensor = self.small(self.offsets)
        return numbers


class Repeated(ByNetwork):
    """The exponentials of that table, 64 times, (64, 9, 4)."""

    def forward(self) -> Tensor:
        return super().forward()[torch.arange(576) % 9].exp().view(64, 9, 4)


class Weights(nn.Module):
    """Numbers by a function of a parameter (9, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(9, 4))


class Moved(Weights):
    def forward(self) -> Tensor:
        return self.weight.flip(0)


class Widened(Weights):
    """9 x 4 numbers become 4 x 9 x 4."""

    def forward(self) -> Tensor:
        return self.weight * self.weight[:4, :1, None]


def graph_of(numbers: nn.Module) -> tuple[nn.Module, ir.Model]:
    torch.manual_seed(0)
    network = Biased(numbers).eval()
    batch = 64 if isinstance(numbers, Repeated) else 4
    program, copied = export_program(network, (torch.rand(batch, 9, 4),), None)
    model = convert_program(program, ["x"], ["y"], 20, copied, network)
    simplify(model)
    return network, model


def folded(model: ir.Model) -> list[tuple[int, ...]]:
    held = model.graph.initializers
    return [tuple(held[n].shape.numpy()) for n in held if n.endswith("_folded")]  # type: ignore[union-attr]


@pytest.mark.full
@pytest.mark.parametrize(("numbers", "batch"), [(ByNetwork, 4), (Repeated, 64)])
def test_a_small_network_of_constants_is_computed_once(
    numbers: type[nn.Module], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its result is repeated: what is much larger than its parameters stays."""
    monkeypatch.setattr(constants, "_SMALL", 0)
    network, model = graph_of(numbers())
    assert folded(model) == [(9, 4)]
    operators = {node.op_type for node in model.graph}
    assert "Relu" not in operators
    assert ("Exp" in operators) == (numbers is Repeated)
    x = torch.rand(batch, 9, 4)
    values = {"x": copy_to_ort(x.numpy())}
    for part in cut_into_parts(list(model.graph), ["y"]):
        values |= PartRunner(model).run(part, values)
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(copy_from_ort(values["y"])), network(x))


@pytest.mark.full
@pytest.mark.parametrize("numbers", [Moved, Widened])
def test_movements_and_much_larger_values_stay(
    numbers: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "_SMALL", 0)
    _, model = graph_of(numbers())
    assert folded(model) == []


def test_a_scalar_stays_a_scalar() -> None:
    value = ir.Value(name="scale")
    node = ir.Node("", "Neg", [value])
    write_constant(ir.Graph([value], node.outputs, nodes=[node]), value, np.array(2.0), "folded")
    (held,) = node.inputs
    assert held is not None
    assert (held.name, held.shape, held.const_value.shape) == ("scale_folded", [], [])


def test_a_part_that_onnxruntime_makes_invalid_is_not_optimized() -> None:
    """Its optimizer loses a value that is padded for a convolution and, by Identity, a result."""
    nodes = [
        onnx.helper.make_node("Add", ["x", "x"], ["twice"]),
        onnx.helper.make_node("Identity", ["twice"], ["result"]),
        onnx.helper.make_node("Pad", ["twice", "pads"], ["padded"]),
        onnx.helper.make_node("Conv", ["padded", "weight"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "padded",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 1, 4, 4])],
        [onnx.helper.make_tensor_value_info(name, 1, None) for name in ("result", "y")],
        [
            onnx.numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 0, 1, 1]), "pads"),
            onnx.numpy_helper.from_array(np.ones((1, 1, 2, 2), np.float32), "weight"),
        ],
    )
    model = ir.from_proto(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    )
    (part,) = cut_into_parts(list(model.graph), ["result", "y"])
    given = {"x": copy_to_ort(np.ones((1, 1, 4, 4), np.float32))}
    made = PartRunner(model).run(part, given, optimized=True)
    assert copy_from_ort(made["result"]).tolist() == [[[[2.0] * 4] * 4]]
    assert copy_from_ort(made["y"])[0, 0, 0].tolist() == [8.0, 8.0, 8.0, 4.0]
