"""Writes modules that a network runs many times as calls: one node instead of their layers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import onnx
import torch
from onnxscript.values import Op, Opset
from torch import Tensor, nn
from torch.export import Dim

from ...models.repeated import Repeated

DOMAIN = "nystra.repeats"
"""Domain of calls while a graph is traced; the operator of each one is its name."""

Shape: TypeAlias = tuple[int | str, ...]

_NO_SETTINGS = {*vars(nn.Module()), "forward"}
_LARGE = 64  # a free size from here on is not multiplied for an example
_LARGEST = 1 << 20  # largest free size


@torch.library.custom_op(
    "nystra_repeats::call",
    mutates_args=(),
    schema="(Tensor[] inputs, int[] like, str name) -> Tensor[]",
)
def _call(inputs: Sequence[Tensor], like: Sequence[int], name: str) -> list[Tensor]:
    raise NotImplementedError(f"{name} is a placeholder in a traced graph and cannot be computed")


@_call.register_fake
def _(inputs: Sequence[Tensor], like: Sequence[int], name: str) -> list[Tensor]:
    return [inputs[place].new_empty(inputs[place].shape) for place in like]


@dataclass(frozen=True)
class Call:
    """A call of a repeated module with inputs of some shapes.

    Attributes:
        path: Path of the module in the network.
        module: The module.
        shapes: Shapes of the inputs; a free size is a name, the same name for equal sizes.
        types: Types of the inputs.
        sizes: Name of a free size -> the size to trace with.
    """

    path: str
    module: Repeated
    shapes: tuple[Shape, ...]
    types: tuple[torch.dtype, ...]
    sizes: dict[str, int]

    def examples(self) -> tuple[Tensor, ...]:
        """Return uninitialized inputs of the call's shapes to trace with; no values are read."""
        return tuple(
            torch.empty(
                [self.sizes[size] if isinstance(size, str) else size for size in shape], dtype=dtype
            )
            for shape, dtype in zip(self.shapes, self.types, strict=True)
        )

    def free_axes(self) -> tuple[dict[int, Any], ...] | None:
        """Return the free axes of each input as ``torch.export`` takes them; None without any."""
        axes = {name: Dim(name, min=1, max=_LARGEST) for name in self.sizes}
        free = tuple(
            {place: axes[size] for place, size in enumerate(shape) if isinstance(size, str)}
            for shape in self.shapes
        )
        return free if axes else None

    def has_graph_of(self, other: Call) -> bool:
        """Return whether the graphs of two calls differ in weights only."""
        same = (self.shapes, self.types) == (other.shapes, other.types)
        return same and _build(self.module) == _build(other.module)


@contextlib.contextmanager
def repeats_as_calls(network: nn.Module) -> Iterator[dict[str, Call]]:
    """Trace every repeated module of a network as one node while the context is active.

    Yields a dict, name of a call -> the call, which the trace of the network fills.
    """
    calls: dict[str, Call] = {}
    marked = [
        (path, module) for path, module in network.named_modules() if isinstance(module, Repeated)
    ]
    count = Counter(type(module) for _, module in marked)
    repeated = [(path, module) for path, module in marked if _pays(module, count)]
    for path, module in repeated:
        vars(module)["forward"] = partial(_recorded, calls, path, module)
    try:
        yield calls
    finally:
        for _, module in repeated:
            del vars(module)["forward"]


def _pays(module: Repeated, count: Mapping[type, int]) -> bool:
    return count[type(module)] >= module.copied_from


def call_translation() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return what ``torch.onnx.export`` needs to write calls."""
    return {torch.ops.nystra_repeats.call.default: _translate}


def _recorded(
    calls: dict[str, Call], path: str, module: Repeated, *inputs: Tensor
) -> Tensor | tuple[Tensor, ...]:
    """Record a call and return its outputs."""
    call = Call(path, module, *_shapes(inputs))
    name = next((name for name, other in calls.items() if other == call), f"call_{len(calls)}")
    calls[name] = call
    outputs = torch.ops.nystra_repeats.call(list(inputs), list(module.shaped_like), name)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _shapes(
    inputs: Sequence[Tensor],
) -> tuple[tuple[Shape, ...], tuple[torch.dtype, ...], dict[str, int]]:
    """Return shapes whose free sizes are names, the types, and examples of the free sizes."""
    names: dict[str, str] = {}
    sizes: dict[str, int] = {}
    shapes = []
    for tensor in inputs:
        shape: list[int | str] = []
        for size in tensor.shape:
            if isinstance(size, int):
                shape.append(size)
                continue
            name = names.setdefault(str(size), f"size_{len(names)}")
            hint = size.node.hint
            # Larger than a window and no multiple of one, but small enough for the memory of a map.
            sizes[name] = (4 * hint if hint < _LARGE else hint) + 3
            shape.append(name)
        shapes.append(tuple(shape))
    return tuple(shapes), tuple(tensor.dtype for tensor in inputs), sizes


def _build(module: nn.Module) -> list[Any]:
    """Return what a module's graph depends on: types, settings and tensor shapes of its parts."""
    parts = []
    for path, part in module.named_modules():
        settings = {key: value for key, value in vars(part).items() if key not in _NO_SETTINGS}
        tensors = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        shapes = [(name, tensor.shape, tensor.dtype) for name, tensor in tensors]
        parts.append((path, type(part), settings, shapes))
    return parts


def _translate(inputs: Sequence[Any], like: Sequence[int], name: str) -> Any:
    formal = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[formal(f"input_{place}", "tensor(float)") for place in range(len(inputs))],
        outputs=[formal(f"output_{place}", "tensor(float)") for place in range(len(like))],
    )
    outputs = Op(Opset(DOMAIN, 1), name, schema)(*inputs)
    return [outputs] if len(like) == 1 else outputs
