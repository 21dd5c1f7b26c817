"""Sites in place of the attention that is found in the graph of a PyTorch network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import Tensor, nn

from ...core.errors import TraceError, UnsupportedModelError
from ...models.facts import Facts
from ...models.loading import LoadedModel
from ...models.sizes.given import copy_sharing_weights
from ...models.torch_internals import TorchDispatchMode
from ..attention.site import common_window, find_sites
from ..differences import largest, nudge, relative_difference
from ..progress import Progress
from ..rewrite.attention_search import SearchResult, describe_unreplaced
from ..rewrite.graph_network import GraphNetwork, is_continuous
from ..rewrite.sources import ModuleSource
from ..tracing.examples import images_of, unit_of
from ..tracing.programs import without_fast_paths
from ..tracing.trace_fault import trace_fault
from .module_graph import trace_network
from .searching import LARGE_UNIT, network_of, search_attention

_ALLOWED = 1e-4
"""Largest difference between a graph and its network, relative to the largest value."""
_SOFT = 0.1
"""Contrast of the noise on which a network is compared that changes by the rounding of noise."""
_COMPARED = ((2, 3), 0), ((3, 2), 3)
"""Rows and columns, in units, and by how many pixels the sides are smaller."""
_COMPARED_LARGE = ((1, 2), 0), ((2, 1), 3)
"""The same for large units."""
_COUNTED = ((2, 3), (4, 6)), ((4, 6), (8, 12))
"""Rows and columns, in units, of two images, the second of which has more of them."""
_MORE_OPERATORS = 1.1
"""By how many times more operators a larger image is computed by a network with loops."""
_OPSET = 20
_MAX_UNITS = 60
"""Most square units of the images of a search; a larger fixed image is searched at free sides."""


def with_found_sites(
    loaded: LoadedModel,
    progress: Progress = lambda _: None,
    free: Facts | None = None,
    opset: int | None = None,
) -> LoadedModel:
    """Return a loaded network with sites in place of the attention that is found in it.

    The network becomes a graph with sites at their paths. A network that has sites already, has no
    softmax or cannot be traced is returned unchanged. The warnings name the attention that stays as
    trained, with the reason.

    Args:
        loaded: The network.
        progress: Called with a message before the search, which takes as long as a trace.
        free: Facts of the network before an input shape was fixed. If there is a graph for any
            size, the search uses small images.
        opset: Version of the default domain of the graph; None: 20.

    Raises:
        UnsupportedModelError: No file can hold what its code does.
    """
    opset = opset or _OPSET
    facts, network = loaded.facts, loaded.network
    if find_sites(network) or not _has_softmax(network, facts):
        return loaded
    progress("find attention")
    try:
        result = None
        if free is not None and _is_larger(facts, free):
            result = _search_small(loaded, free, opset)
        sited, attention = result or find_sited_graph(loaded, facts, opset, progress)
    except Exception as error:
        larger = None if isinstance(error, TraceError) else _of_two_multiples(loaded, opset)
        if larger is not None:
            return larger
        if isinstance(error, UnsupportedModelError):  # every trace of it would raise it
            raise
        return _with_unserved(loaded, [_describe_unsearched(facts, error)])
    return _with_sites(loaded, sited, attention)


def _describe_unsearched(facts: Facts, error: Exception) -> str:
    """Return why a network was not searched, one sentence."""
    if isinstance(error, TraceError):  # of the limit, which names the way out
        return f"its attention stays as trained: {error}"
    size = "" if facts.sides else " for any size (`static` may do)"
    return f"its attention stays as trained: there is no graph of it{size}: {trace_fault(error)}"


def _with_sites(loaded: LoadedModel, sited: GraphNetwork, result: SearchResult) -> LoadedModel:
    """Return a loaded network with its graph in its place; the export needs no other trace."""
    named = _with_unserved(loaded, describe_unreplaced(result.attentions))
    window = common_window(sited) if result.replacements else named.facts.window
    facts = replace(named.facts, window=window)
    return replace(named, network=sited, facts=facts)


def _of_two_multiples(loaded: LoadedModel, opset: int) -> LoadedModel | None:
    """Return a network with its sites for more than one multiple per side, or None.

    A trace treats one patch as a special case.
    """
    facts = loaded.facts
    if facts.sides is not None or not 1 < facts.size_multiple >= facts.size_minimum:
        return None
    facts = replace(facts, size_minimum=facts.size_multiple + 1)
    try:
        sited, attention = find_sited_graph(loaded, facts, opset)
    except Exception:  # noqa: BLE001 - the error of all sizes is reported
        return None
    text = f"its file takes sides of at least {facts.size_minimum} pixels"
    stated = replace(loaded, facts=facts, warnings=(*loaded.warnings, text))
    return _with_sites(stated, sited, attention)


def not_searched(loaded: LoadedModel) -> LoadedModel:
    """Return a loaded network unchanged, with a warning if a search may find attention in it."""
    if find_sites(loaded.network) or not _has_softmax(loaded.network, loaded.facts):
        return loaded
    text = (
        "its attention was not searched for: `mechanism` full finds it, and replaces it where "
        "that is faster"
    )
    return replace(loaded, warnings=(*loaded.warnings, text))


def _with_unserved(loaded: LoadedModel, sentences: Sequence[str]) -> LoadedModel:
    return replace(
        loaded,
        warnings=(*loaded.warnings, *sentences),
        unserved=(*loaded.unserved, *sentences),
    )


def _is_larger(fixed: Facts, free: Facts) -> bool:
    if fixed.sides is None or free.sides is not None:
        return False
    unit = max(free.size_multiple, 8)
    return math.prod(fixed.sides.values()) > _MAX_UNITS * unit**2


def _search_small(
    loaded: LoadedModel, facts: Facts, opset: int
) -> tuple[GraphNetwork, SearchResult] | None:
    if _has_loops(loaded.network, facts):
        return None
    try:
        sited, result = find_sited_graph(loaded, facts, opset)
    except Exception:  # noqa: BLE001 - the fixed size is searched then
        return None
    return None if result.changing else (sited, result)


def find_sited_graph(
    loaded: LoadedModel,
    facts: Facts,
    opset: int = _OPSET,
    progress: Progress = lambda _: None,
) -> tuple[GraphNetwork, SearchResult]:
    """Return the graph of a network with its sites, after a comparison with the network.

    Args:
        loaded: The network.
        facts: Its facts, maybe of a fixed shape.
        opset: Version of the default domain of the graph.
        progress: Called with the reason if modules of the same structure cannot share one trace.

    Raises:
        ValueError: The outputs of the graph differ from those of the network, or onnxruntime cannot
            compute it.
        TraceError: A step took more processor time than is allowed.
        UnsupportedModelError: No file can hold what its code does.
        Exception: Any error of PyTorch's tracer.
    """
    try:
        return _search(loaded, facts, trace_network(loaded.network, facts, opset))
    except (TraceError, UnsupportedModelError):  # another graph would have the same fault
        raise
    except Exception as error:  # noqa: BLE001 - equal modules may differ: without them
        fault = trace_fault(error)  # the error itself would keep the first graph's memory
    progress(f"find attention without reuse of equal modules: {fault}")
    graph = trace_network(loaded.network, facts, opset, once=False)
    return _search(loaded, facts, graph)


def _search(
    loaded: LoadedModel, facts: Facts, model: ir.Model
) -> tuple[GraphNetwork, SearchResult]:
    try:
        result = search_attention(model, facts)
    except UnsupportedModelError as error:  # of onnxruntime
        raise ValueError(str(error)) from None
    copied = copy_sharing_weights(loaded.network)
    source = ModuleSource(loaded.checkpoint.path, copied, model)
    network = network_of(source, result.replacements)
    compared = _COMPARED_LARGE if unit_of(facts) >= LARGE_UNIT else _COMPARED
    for units, less in compared if facts.sides is None else compared[:1]:
        images = images_of(facts, units, less)
        difference = _differ(network, source, images)
        if not difference <= _ALLOWED:
            raise ValueError(f"its graph differs by {difference:.0e} from the network")
    network.release()
    return network, result


def _differ(network: GraphNetwork, source: ModuleSource, images: Sequence[Tensor]) -> float:
    """Return by how much a graph differs from its network, 0 where that is their rounding.

    The rounding of noise may change all outputs: of a network that selects, and of one whose
    attention takes products of hundreds for its scores. The latter is compared on noise of little
    contrast, which changes its outputs as much less.
    """
    with torch.no_grad():
        expected = source.compute(images)
        difference = relative_difference(network.with_sites(images), expected)
        if difference <= _ALLOWED:
            return difference
        by_rounding = _change_by_rounding(source, images, expected)
        if not is_continuous(network):
            return 0.0 if difference <= by_rounding else difference
        if not by_rounding > _ALLOWED:
            return difference
        faint = [_SOFT * image + 0.5 if image.is_floating_point() else image for image in images]
        results, expected = network.with_sites(faint), source.compute(faint)
    return relative_difference(results, expected) / _SOFT


def _change_by_rounding(
    source: ModuleSource, images: Sequence[Tensor], expected: Sequence[Tensor]
) -> float:
    """Return how much a network changes where its inputs change by rounding."""
    arrays = [image.numpy() for image in images]
    changes = []
    for nudged in nudge(arrays):
        results = source.compute(list(map(torch.from_numpy, nudged)))
        changes.append(relative_difference(results, expected))
    return largest(changes)


class _SoftmaxSeen(Exception):  # noqa: N818 - no error: it ends the run
    """Raised at the first softmax of a network."""


class _Operators(TorchDispatchMode):
    """Counts the operators of a run, or ends it at the first softmax."""

    def __init__(self, *, ends_at_softmax: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self._ends_at_softmax = ends_at_softmax

    def __torch_dispatch__(
        self,
        func: object,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: object = None,
    ) -> object:
        name = str(func)
        self.count += 1
        if self._ends_at_softmax and ("softmax" in name or "scaled_dot_product" in name):
            raise _SoftmaxSeen
        return func(*args, **(kwargs or {}))  # type: ignore[operator, arg-type]


def _has_softmax(network: nn.Module, facts: Facts) -> bool:
    try:
        images = images_of(facts, (2, 3))
        _run_observed(network, images, ends_at_softmax=True)
    except _SoftmaxSeen:
        return True
    except Exception:  # noqa: BLE001 - the check of the graph reports the error
        return False
    return False


def _run_observed(
    network: nn.Module, images: Sequence[Tensor], *, ends_at_softmax: bool = False
) -> int:
    """Return the number of operators of a run in PyTorch."""
    seen = _Operators(ends_at_softmax=ends_at_softmax)
    with torch.no_grad(), without_fast_paths(), seen:
        copy_sharing_weights(network)(*images)
    return seen.count


def _has_loops(network: nn.Module, facts: Facts) -> bool:
    """Return whether a network computes larger images by more operators, not by larger ones.

    It loops over rows, columns or windows then, and no graph serves every size.
    """
    for smaller_units, larger_units in _COUNTED:
        small = images_of(facts, smaller_units)
        large = images_of(facts, larger_units)
        if small[0].shape != large[0].shape:
            break
    try:
        fewer, more = _run_observed(network, small), _run_observed(network, large)
    except Exception:  # noqa: BLE001 - the trace reports the error
        return False
    return more > _MORE_OPERATORS * fewer
