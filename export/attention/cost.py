"""What a network costs: its operations, and the memory of exact attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import onnx_ir as ir
import torch
from torch import Tensor, nn

# Documented by PyTorch for tensors without values, without a public name.
from torch.utils.flop_counter import FlopCounterMode

from ...core.ports.examples import example_arrays
from ...core.ports.port import Shape, Size
from ...models.facts import Facts
from ...models.sites import MapSite, PatchSite
from ...models.torch_internals import FakeTensorMode
from .full.parameters import Full
from .mechanism import Mechanism
from .site import find_sites, neutral, swap

_Result = TypeVar("_Result")

Shapes = Mapping[str, Shape]

_PRODUCTS = ("MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "Gemm", "FusedGemm")
_CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv", "FusedConv", "DeformConv")

BYTES_PER_SCORE = 20
"""Peak bytes per score of query and key in onnxruntime: measured 19 on CSNLN."""

_PER_PAIR = 256.0
"""Operations that attention takes at least for a pair of pixels: its softmax waits for memory."""

_SMALL_SIDE = 8

BYTES_PER_FUSED_SCORE = 15
"""The same with fused scores along diagonals: from the inpainting network's peaks at 512 and 768
pixels per side."""


@runtime_checkable
class _Graph(Protocol):
    """A network that PyTorch does not compute, and which counts its operations itself."""

    def operations(self, images: Sequence[Tensor]) -> int:
        """Return the operations for inputs of these sizes, exact attention included."""

    def count_weights(self) -> int:
        """Return the number of weights of the graph."""


class _Meter:
    def __init__(self, exact: Callable[..., Tensor], counter: FlopCounterMode) -> None:
        self.exact = exact
        self.counter = counter
        self.flops = 0

    def __call__(self, *arguments: Any) -> Tensor:
        before = self.counter.get_total_flops()
        result = self.exact(*arguments)
        self.flops += self.counter.get_total_flops() - before
        return result


def count_operations(network: nn.Module, facts: Facts) -> tuple[int, dict[str, int]]:
    """Return the operations of one image with attention as trained, in all and at each site.

    The image is 4 windows (or 16 size multiples) a side. Convolutions and matrix products are
    counted, 2 for each multiply-add: by PyTorch on tensors without values, or from the shapes of a
    graph.
    """
    return without_values(lambda: _count_by_site(network, facts))


def count_all_operations(network: nn.Module, facts: Facts) -> int:
    """Return the first number of `count_operations`; a network that is a graph is not run."""
    images = _images(facts, facts.test_size())
    return _count_in_graphs(network, images) or count_operations(network, facts)[0]


def count_quadratic(network: nn.Module, facts: Facts) -> float:
    """Return b: attention between all pixels of an image of n pixels takes about b n^2 operations.

    Counted of two small images, whether nystra replaces the attention or not; 0 without such.
    """
    if facts.sides is not None:
        return 0.0
    side = facts.round_up(max(_SMALL_SIDE, facts.size_minimum))
    counts = []
    for length in (side, 2 * side):
        # With values: code may keep what it computes, and would keep tensors without any.
        size = facts.size(length, length)
        counts.append(_count_at(network, facts, size))
    more = counts[1] - 4 * counts[0]
    return max(_PER_PAIR, more / (12.0 * side**4)) if more > 0 else 0.0


def without_values(run: Callable[[], _Result]) -> _Result:
    """Return what a run of a network gives that is asked for its shapes only.

    It is done on tensors without values; a network that branches on values is run really.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return run()
    except (RuntimeError, NotImplementedError):
        return run()


def _count_by_site(network: nn.Module, facts: Facts) -> tuple[int, dict[str, int]]:
    copied = swap(network, neutral(network))
    images = _images(facts, facts.test_size())
    counter = FlopCounterMode(display=False)
    meters: dict[str, _Meter] = {}
    for site in find_sites(copied):
        mechanism: Any = site.module.implementation
        meter: Any = _Meter(mechanism, counter)
        site.module.implementation = meters[site.path] = meter
    with counter, torch.no_grad():
        copied(*images)
    by_site = {path: meter.flops for path, meter in meters.items()}
    return _count_in_graphs(copied, images) or counter.get_total_flops(), by_site


def _count_at(network: nn.Module, facts: Facts, size: Size) -> int:
    """Return the operations of one run at a size."""
    images = _images(facts, size)
    operations = _count_in_graphs(network, images)
    if operations:
        return operations
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(*images)
    total: int = counter.get_total_flops()
    return total


def _images(facts: Facts, size: Size) -> list[Tensor]:
    arrays = example_arrays(facts.inputs, size)
    return [torch.from_numpy(array) for array in arrays.values()]


def count_weights(network: nn.Module) -> int:
    """Return the number of the weights of a network, or of the graph that it is."""
    graphs = _find_graphs(network)
    if graphs:
        return sum(graph.count_weights() for graph in graphs)
    return sum(tensor.numel() for tensor in network.parameters())


def _count_in_graphs(network: nn.Module, images: Sequence[Tensor]) -> int:
    return sum(graph.operations(images) for graph in _find_graphs(network))


def _find_graphs(network: nn.Module) -> list[_Graph]:
    return [module for module in network.modules() if isinstance(module, _Graph)]


def count_graph_operations(nodes: Iterable[ir.Node], shapes: Shapes) -> int:
    """Return the operations of the matrix products and convolutions among nodes.

    2 for each multiply-add, as PyTorch counts them. Those of subgraphs and local functions, and of
    nodes without a known shape, are not counted.

    Args:
        nodes: Nodes of a graph.
        shapes: Shapes of its tensors, by name.
    """
    return 2 * sum(_products(node, shapes) for node in nodes)


def _shape_of(
    value: ir.Value | None,
    shapes: Shapes,
    unknown: Shape,
) -> Shape:
    if value is None:
        return unknown
    return shapes.get(str(value.name), unknown)


def _products(node: ir.Node, shapes: Shapes) -> int:
    shapes_read = [_shape_of(value, shapes, ()) for value in node.inputs]
    shape = _shape_of(node.outputs[0], shapes, (0,))
    elements = math.prod(shape)
    kind = node.op_type
    if kind in _PRODUCTS and shapes_read[0]:
        across = node.attributes.get("transA")
        is_transposed = across is not None and across.as_int()
        return elements * shapes_read[0][-2 if is_transposed else -1]
    if kind in _CONVOLUTIONS or kind == "ConvTranspose":
        weight = shapes_read[3] if kind == "QLinearConv" else shapes_read[1]
        if len(weight) < 3:
            return 0
        pixels = elements
        if kind == "ConvTranspose":
            pixels = math.prod(shapes_read[0])
        return pixels * math.prod(weight[1:])
    if kind == "Einsum" and len(shapes_read) > 1:
        return elements * _count_contracted(node.attributes["equation"].as_string(), shapes_read)
    if (
        kind in ("Attention", "MultiHeadAttention")
        and len(shapes_read) > 2
        and len(shapes_read[1]) > 2
    ):
        return 2 * math.prod(shapes_read[0]) * shapes_read[1][-2]
    return 0


def _count_contracted(equation: str, shapes: Sequence[Shape]) -> int:
    inputs, _, right = equation.replace(" ", "").partition("->")
    sides: dict[str, int] = {}
    for labels, shape in zip(inputs.split(","), shapes, strict=True):
        before, _, after = labels.partition("...")
        sides |= zip(before, shape, strict=False)
        sides |= zip(reversed(after), reversed(shape), strict=False)
    return math.prod(side for label, side in sides.items() if label not in right)


def quadratic_bytes(network: nn.Module, facts: Facts, resolved: Mapping[str, Mechanism]) -> float:
    """Return b: the largest attention of an image of n pixels takes about b n^2 bytes.

    Only sites without a window that stay ``full`` count; 0 if there are none.
    """
    sites = find_sites(network)
    full = [site.module for site in sites if isinstance(resolved[site.path], Full)]
    if not any(isinstance(module, (PatchSite, MapSite)) for module in full):
        return 0.0
    copied = swap(network, neutral(network))
    size = facts.test_size()
    counts = [0.0]
    for site in find_sites(copied):
        module = site.module
        if not isinstance(module, (PatchSite, MapSite)):
            continue
        if isinstance(resolved[site.path], Full):
            inner: Any = module.implementation
            counted: Any = _count_scores(inner, module, counts)
            module.implementation = counted
    arrays = example_arrays(facts.inputs, size).values()
    with torch.no_grad():
        without_values(lambda: copied(*map(torch.from_numpy, arrays)))
    return max(counts) / math.prod(size.values()) ** 2


def _count_scores(
    inner: Callable[..., Tensor], module: PatchSite | MapSite, counts: list[float]
) -> Callable[..., Tensor]:
    shrink = 1
    each = BYTES_PER_SCORE
    if isinstance(module, PatchSite):
        shrink = module.geometry.shrink
        each = BYTES_PER_SCORE
        if module.geometry.fuse:
            each = BYTES_PER_FUSED_SCORE

    def call(query: Tensor, key: Tensor, *others: Any) -> Tensor:
        queries = query.shape[2] * query.shape[3] / shrink**2
        keys = key.shape[2] * key.shape[3] / shrink**2
        counts.append(each * queries * keys)
        return inner(query, key, *others)

    return call
