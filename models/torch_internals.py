"""Parts of PyTorch without a public name: their only home, each with what it is needed for.

PyTorch 2.15 has no public counterpart of any of them. `import torch` loads them all; symbols of
sizes, which it does not load, are in `export/tracing/torch_sizes.py`, and what an export changes in
PyTorch while it traces is in `export/tracing/shortcuts.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

# What operators are made of. The public tables are those of an export, and have fewer.
from torch._decomp import decomposition_table

# Lets operators that are made of others keep free sizes in a run for shapes, as torch.export does.
from torch._dispatch.python import enable_python_dispatcher

# Classes of operators: of `torch.ops.aten.add.Tensor`, and of those that call a function.
from torch._ops import HigherOrderOperator, OpOverload

# Runs a network for its shapes alone. The documentation of torch.compile uses it.
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

# Records one run. torch.export would follow the Python code and refuse what it branches on.
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

# Shows each operator of a run. The documentation of PyTorch uses it.
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
)

# Takes nested arguments apart in the order of torch.export.
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

# The sizes of a tensor as a tensor: what exporters of others call in the code of networks.
shape_as_tensor = torch._shape_as_tensor

__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "TorchDispatchMode",
    "TreeSpec",
    "decomposition_table",
    "enable_python_dispatcher",
    "get_proxy_mode",
    "is_observed",
    "is_transformed",
    "make_fx",
    "shape_as_tensor",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
    "without_observers",
]

without_observers = _disable_current_modes
"""Returns a context in which no `TorchDispatchMode` sees what runs."""


def is_observed() -> bool:
    """Return whether a `TorchDispatchMode` sees the operators that run."""
    return _get_current_dispatch_mode() is not None


def is_transformed(tensor: Tensor) -> bool:
    """Return whether a tensor belongs to a transform of `torch.func`, as vmap or grad."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))
