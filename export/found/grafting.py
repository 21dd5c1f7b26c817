"""Restores modules of a graph: puts sites and layers at their paths in the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from .map_form import CONSTANT

aten = torch.ops.aten
TENTATIVE = "found_site_"
"""Prefix of the names of sites while a graph is rewritten."""


def put_sites(graph: fx.GraphModule, paths: Mapping[str, str]) -> None:
    """Move the sites of a graph to their paths, in place.

    Args:
        graph: Graph with its sites as submodules.
        paths: Name of a site's submodule -> its path.
    """
    for name, path in paths.items():
        site = graph.get_submodule(name)
        delattr(graph, name)
        put_module(graph, path, site)
        for node in graph.graph.nodes:
            if node.op == "call_module" and node.target == name:
                node.target = path


def finish(graph: fx.GraphModule) -> None:
    """Remove unused nodes and tensors and turn layers into modules, in place."""
    graph.graph.eliminate_dead_code()
    layers_as_modules(graph)
    used = {node.target for node in graph.graph.nodes}
    for name in [name for name, _ in graph.named_buffers(recurse=False)]:
        if name.startswith(CONSTANT) and name not in used:
            delattr(graph, name)
    for name in [name for name, _ in graph.named_children()]:
        if name.startswith(TENTATIVE):
            delattr(graph, name)
    graph.recompile()


def put_module(graph: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module at a path. It gets the submodules and tensors of the module that was there."""
    parent: nn.Module = graph
    *names, last = path.split(".")
    for name in names:
        if not isinstance(getattr(parent, name, None), nn.Module):
            parent.add_module(name, nn.Module())
        parent = getattr(parent, name)
    before = parent._modules.get(last)
    if before is not None:
        for held in ("_modules", "_parameters", "_buffers"):
            for name, value in getattr(before, held).items():
                if getattr(module, name, None) is None:
                    getattr(module, held)[name] = value
        for name, value in _tensors(before).items():
            module.register_buffer(name, value)
    parent._modules[last] = module


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are plain attributes of a module: constants of a traced graph."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}


def _holds_more(module: nn.Module) -> bool:
    """Return whether a module holds more than weight and bias."""
    others = set(module._parameters) - {"weight", "bias"}
    return bool(others or module._modules or module._buffers or _tensors(module))


def layers_as_modules(graph: fx.GraphModule) -> None:
    """Turn linear layers and convolutions into modules at the paths of their weights, in place."""
    made: dict[tuple[Any, ...], str] = {}
    for node in list(graph.graph.nodes):
        built = _LAYERS.get(node.target) if node.op == "call_function" else None
        if built is None:
            continue
        weight, bias, *settings = _arguments(node)
        path = _owner(weight, bias)
        if path is None:
            continue
        key = (path, repr(settings))
        if path in {other for other, _ in made} and key not in made:
            continue  # another layer has the same weights and other settings
        if key not in made:
            layer = built(_tensor(graph, weight), *settings, bias=bias is not None)
            layer.weight = _tensor(graph, weight)
            if bias is not None:
                layer.bias = _tensor(graph, bias)
            old = graph.get_submodule(path)
            if _holds_more(old):
                continue
            parent, _, last = path.rpartition(".")
            graph.get_submodule(parent)._modules[last] = layer.eval()
            made[key] = path
        node.op, node.target = "call_module", path
        node.args, node.kwargs = (node.args[0],), {}


def _arguments(node: fx.Node) -> list[Any]:
    """Return the weight, bias and settings of a layer's node, with defaults where none is given."""
    settings = _SETTINGS[node.target]
    given = [*node.args[1:], *([None] * 9)][: 2 + len(settings)]
    return given[:2] + [
        default if value is None else value
        for value, default in zip(given[2:], settings, strict=True)
    ]


def _owner(weight: Any, bias: Any) -> str | None:
    """Return the path of the module that holds weight and bias, or None."""
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return None
    path, _, name = str(weight.target).rpartition(".")
    if name != "weight" or not path:
        return None
    if bias is None:
        return path
    held = isinstance(bias, fx.Node) and bias.op == "get_attr"
    return path if held and bias.target == f"{path}.bias" else None


def _tensor(graph: fx.GraphModule, node: fx.Node) -> Any:
    path, _, name = str(node.target).rpartition(".")
    return getattr(graph.get_submodule(path), name)


def _linear(weight: Tensor, *, bias: bool) -> nn.Module:
    return nn.Linear(weight.shape[1], weight.shape[0], bias, device="meta")


def _convolution(
    weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, *, bias: bool
) -> nn.Module:
    return nn.Conv2d(
        weight.shape[1] * groups,
        weight.shape[0],
        _pair(weight.shape[2:]),
        _pair(stride),
        padding if isinstance(padding, str) else _pair(padding),
        _pair(dilation),
        groups,
        bias,
        device="meta",
    )


def _transposed(
    weight: Tensor, stride: Any, padding: Any, more: Any, groups: int, dilation: Any, *, bias: bool
) -> nn.Module:
    return nn.ConvTranspose2d(
        weight.shape[0],
        weight.shape[1] * groups,
        _pair(weight.shape[2:]),
        _pair(stride),
        _pair(padding),
        _pair(more),
        groups,
        bias,
        _pair(dilation),
        device="meta",
    )


def _pair(values: Sequence[int]) -> tuple[int, int]:
    """Return two numbers; a list of one number is repeated."""
    return int(values[0]), int(values[-1])


_LAYERS: dict[Any, Any] = {
    aten.linear.default: _linear,
    aten.conv2d.default: _convolution,
    aten.conv2d.padding: _convolution,
    aten.conv_transpose2d.input: _transposed,
}
_ONE, _ZERO = [1, 1], [0, 0]
_SETTINGS: dict[Any, tuple[Any, ...]] = {
    aten.linear.default: (),
    aten.conv2d.default: (_ONE, _ZERO, _ONE, 1),
    aten.conv2d.padding: (_ONE, "valid", _ONE, 1),
    aten.conv_transpose2d.input: (_ONE, _ZERO, _ZERO, 1, _ONE),
}
"""Arguments of a layer other than weight and bias, with their defaults."""
