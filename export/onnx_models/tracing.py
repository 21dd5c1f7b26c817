"""The traced graph of a file's network: operators of PyTorch, each value with its name in the file.

Values that do not depend on pixels are computed outside of the trace: sizes, masks and tables of
indices become constants, so that the graph has only what depends on the image. Half precision is
computed as float32, in which a site can be compared with the original nodes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    get_innermost_proxy_mode,
    make_fx,
)

from .graph import Node
from .network import OnnxNetwork, compute

NAME = "onnx"
"""Key of a traced node's ``meta``: the name of its value in the file."""

CUT = "cut"
"""The same: False where the node is not a value of the file, so that no cut begins or ends
there."""

SIZED = "sized"
"""The same: True for a constant that was computed from the sides of the image."""

_WIDE = torch.float32
_STACK = "nn_module_stack"
_NO_PATH = "attention"


@dataclass(frozen=True)
class TracedFile:
    """A file's graph at one size.

    Attributes:
        graph: Graph of PyTorch's operators, with names in the ``meta`` of its nodes.
        values: The traced value of each of the file's values, by its name in the file.
        folded: Names of values that do not depend on pixels.
        others: Further names of a traced node's value, of other types, by the node's name.
    """

    graph: fx.GraphModule
    values: Mapping[str, Tensor]
    folded: frozenset[str]
    others: Mapping[str, Sequence[str]]


@dataclass
class _Recorder:
    """Runs the nodes of a file under a tracer and notes which traced node is which value.

    Attributes:
        network: The file.
        names: Traced node -> names of its values, in order.
        folded: Values that do not depend on pixels.
        sized: Those of them that depend on the sides of the image.
        values: All values.
    """

    network: OnnxNetwork
    names: dict[str, list[str]] = field(default_factory=dict)
    folded: dict[str, Tensor] = field(default_factory=dict)
    sized: set[str] = field(default_factory=set)
    values: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, *given: Tensor) -> Any:
        graph = self.network.graph
        self.folded.update(self.network.constants(_WIDE))
        self.values.update(self.folded)
        for name, value in zip(graph.inputs, given, strict=True):
            self._note(name, value)
        for node in graph.nodes:
            taken = [name for name in node.inputs if name]
            sized = bool(self.sized.intersection(taken))
            if node.operator in ("Shape", "Size"):
                sized |= taken[0] not in self.folded
                self._fold(node, sized)
            elif _folds(node) and all(name in self.folded for name in taken):
                self._fold(node, sized)
            else:
                with _module_stack(node):
                    for name, value in compute(node, self.values, wide=_WIDE).items():
                        self._note(name, value)
        outputs = tuple(self.values[name] for name in graph.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _fold(self, node: Node, sized: bool) -> None:
        with disable_proxy_modes_tracing():
            made = compute(node, self.values, wide=_WIDE)
        self.folded.update(made)
        self.values.update(made)
        if sized:
            self.sized.update(made)

    def _note(self, name: str, value: Tensor) -> None:
        self.values[name] = value
        mode = get_innermost_proxy_mode()
        slot = None if mode is None else mode.tracer.tensor_tracker.get(value)
        if slot is not None:
            self.names.setdefault(slot.proxy.node.name, []).append(name)


def trace(network: OnnxNetwork, inputs: Sequence[Tensor]) -> TracedFile:
    """Run a file's network once and return the traced graph.

    Raises:
        NodeError: A node cannot be computed.
    """
    recorder = _Recorder(network)
    run = make_fx(
        lambda *given: recorder(*given), tracing_mode="real", _error_on_data_dependent_ops=False
    )
    with torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        graph = run(*inputs)
    constants = {id(value): name for name, value in recorder.folded.items()}
    for node in graph.graph.nodes:
        name = next(iter(recorder.names.get(node.name, ())), None)
        if node.op == "get_attr":
            name = constants.get(id(getattr(graph, str(node.target))))
            node.meta[SIZED] = name in recorder.sized
        node.meta[CUT] = name is not None
        if name is not None:
            node.meta[NAME] = name
    others = {names[0]: names[1:] for names in recorder.names.values()}
    return TracedFile(graph, recorder.values, frozenset(recorder.folded), others)


def _folds(node: Node) -> bool:
    """Whether a node is deterministic and has no side effects."""
    return node.operator not in ("If", "Loop")


@contextmanager
def _module_stack(node: Node) -> Iterator[None]:
    """Return the module stack of a node's operators, as in a trace of a module."""
    meta = torch.fx.traceback.current_meta
    parts = module_path(node).split(".")
    paths = [".".join(parts[: place + 1]) for place in range(len(parts))]
    meta[_STACK] = OrderedDict(
        (path, (path, part.capitalize())) for path, part in zip(paths, parts, strict=True)
    )
    try:
        yield
    finally:
        meta.pop(_STACK, None)


def module_path(node: Node) -> str:
    """Return the path of the module that a node comes from, as far as known from its names.

    Exports by TorchScript name a node ``/layers.0/blocks.1/attn/MatMul``; those by
    ``torch.export`` list the modules.
    """
    if node.scopes:
        return next((scope for scope in reversed(node.scopes[:-1]) if scope), _NO_PATH)
    parts: list[str] = []
    for part in node.name.split("/")[1:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts) or _NO_PATH
