"""PyTorch's symbols of sizes, without a public name: their only home, as they load sympy.

Other parts of PyTorch without a public name are in `models/torch_internals.py`.
"""

from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    # All of PyTorch's decisions by sizes pass through its `evaluate_expr`.
    ShapeEnv,
    StatelessSymbolicContext,
    statically_known_true,
)

__all__ = ["DimDynamic", "ShapeEnv", "StatelessSymbolicContext", "statically_known_true"]
