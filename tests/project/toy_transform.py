"""A transform as described in CONTRIBUTING: weights in steps of 1/64 or finer, in float32."""

from toy_tree import Toy

PARAMETERS = '''"""The parameters of the toy transform."""

from dataclasses import dataclass

from ....core.option import Options, option
from ....core.option_kinds import Number


@dataclass(frozen=True)
class Steps(Options):
    """How fine weights are."""

    steps: int = option(Number(64, "weights in steps of one part of so many", 2, 1024))
'''

APPLY = '''"""Weights in steps: what becomes of a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

if TYPE_CHECKING:
    from ...transforms import TransformInputs


@dataclass(frozen=True)
class Stepped:
    """How many weights were changed, and the model: float32, its own rounded copy."""

    rounded_copy: onnx.ModelProto
    weights: int
    exact: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"weights": self.weights}

    def notes(self) -> list[str]:
        """Return one sentence."""
        return [f"{self.weights} weights in steps"]

    def warnings(self) -> list[str]:
        """Return none."""
        return []


def stepped(
    model: onnx.ModelProto,
    inputs: TransformInputs,
    *,
    rounds: Callable[[Any], Any] = np.round,
) -> Stepped:
    """Round every weight of a model, in place."""
    count, steps = 0, inputs.parameters.steps
    for tensor in model.graph.initializer:
        weight = numpy_helper.to_array(tensor)
        if weight.dtype == np.float32 and weight.ndim > 1:
            count += weight.size
            weight = (rounds(weight * steps) / steps).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    return Stepped(onnx.ModelProto.FromString(model.SerializeToString()), count)
'''

FAKE_QUANTIZED = '''

def stepped_network(
    network: nn.Module, architecture: str, exact: Collection[str], parameters: Any
) -> nn.Module:
    """Return a copy of a network with its weights in steps."""
    copied = copy.deepcopy(network)
    for weight in copied.parameters():
        if weight.dim() > 1:
            weight.data = torch.floor(weight.data * parameters.steps + 0.5) / parameters.steps
    return copied
'''

LAST = "            table.data = round_digits(table.data, digits)\n    return copied\n"

_IMPORT = "from ..core.ports.port import Port\n"
_ROW = """\
Transform(
        "toy",
        _part("graph.toy.stepping", "stepped"),
        _part("validate.fake_quantized", "stepped_network"),
        parameters=Steps(),
    ), """
_FP16 = "Tolerance(coarsest=40.0),  # 2.5 steps of 8 bits\n"
_FP16_LOGITS = "Tolerance(coarsest=0.02),\n"

TOY = Toy(
    "transform",
    "toy",
    {"export/graph/<name>/stepping.py": APPLY, "export/graph/<name>/parameters.py": PARAMETERS},
    {
        "export/validate/fake_quantized.py": ((LAST, LAST + FAKE_QUANTIZED),),
        "export/transforms.py": (
            (_IMPORT, _IMPORT + "from .graph.toy.parameters import Steps\n"),
            ("_ROWS = (", f"_ROWS = ({_ROW}"),
        ),
        "runtime/metrics/measures.py": tuple(
            (row, f'{row}        "toy": Tolerance(coarsest={coarsest}),\n')
            for row, coarsest in ((_FP16, 20.0), (_FP16_LOGITS, None))
        ),
        "runtime/backends/ort_cpu.py": (('"int8"})', '"int8", "toy"})'),),
    },
)
