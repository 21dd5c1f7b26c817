"""One node of a graph with its values at the size of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from torch import Tensor

from ..execute.sized import Sized
from .values import Value


@dataclass(frozen=True)
class Step:
    """One node with its values at the size of the search.

    Attributes:
        node: The node.
        inputs: Values of its inputs; None for one that is omitted.
        outs: Shapes of its results.
        sized: The graph at that size.
        varying: Names of the constants whose elements depend on the size.
    """

    node: ir.Node
    inputs: Sequence[Value | None]
    outs: Sequence[tuple[int, ...]]
    sized: Sized
    varying: frozenset[str] = frozenset()

    def data(self) -> list[int]:
        """Return the numbers of the inputs that depend on pixels."""
        return [at for at, v in enumerate(self.inputs) if v is not None and v.place is not None]

    def constant(self, at: int) -> Tensor:
        """Return an input that depends on no pixel, by its number."""
        held = self.node.inputs[at]
        if held is None:
            raise ValueError(f"{self.node.op_type} without its input {at}")
        return self.sized.constant(held)

    def varying_inputs(self) -> list[ir.Value]:
        """Return the inputs without pixels whose elements depend on the size."""
        return [v for v in self.node.inputs if v is not None and str(v.name) in self.varying]

    def varies(self, at: int) -> bool:
        """Return whether elements of an input without pixels depend on the size."""
        held = self.node.inputs[at]
        return held is not None and str(held.name) in self.varying
