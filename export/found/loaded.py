"""Replaces the attention that is found in a loaded network by sites."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ...core.ports.examples import trace_size
from ...core.ports.port import image_size
from ...models.facts import Facts
from ...models.loading import LoadedModel
from ..attention.site import common_window, find_sites
from ..rewrite.story import left_as_trained
from ..tracing.shortcuts import without_simplified_roundings, without_stack_traces
from ..tracing.trace import by_argument, dynamic_shapes, examples_of, sizes_of_one
from ..tracing.trace_fault import trace_fault
from .checks import outputs_differ
from .found_network import FoundNetwork
from .graph import Traced, exported_graph, recorded_graph, shared_copy
from .repeats import idle_parts
from .sites import FoundGraph, find_in_graph

_ALLOWED = 1e-4
"""Largest difference between a graph and its network, relative to the largest value."""
_UNITS = (2, 3), (5, 2)
"""Rows and columns of the two maps, in units. The first batch may have two images, the second has
one: no product of rows, columns and images is the same at both sizes."""
_LARGEST_UNIT = 64
"""Largest unit, in pixels, of a second search if window sizes differ between the two maps."""
_SMALLEST = 1, 1
"""Rows and columns, in units, of the map that is used to find modules that return their input."""
_LEAST_UNIT = 8
_ODD = 3
"""Pixels by which sides without a required multiple are smaller."""


def with_found_sites(
    loaded: LoadedModel,
    progress: Callable[[str], None] = lambda _: None,
    free: Facts | None = None,
) -> LoadedModel:
    """Return a loaded network with sites in place of the attention that is found in it.

    The network becomes a graph whose sites and layers are modules at their paths. A network that
    has sites already, has no softmax or cannot be traced is returned unchanged. The warnings name
    the attention that stays as trained, with the reason.

    Args:
        loaded: The network.
        progress: Called with a message before the search, which takes as long as a trace.
        free: Facts of the network before an input shape was fixed. If there is a graph for any
            size, the search uses small images.
    """
    facts, network = loaded.facts, loaded.network
    if find_sites(network) or not _has_softmax(network, facts):
        return loaded
    progress("find attention")
    try:
        small = None
        if free is not None and _is_larger(facts, free):
            small = _found_small(network, free)
        found = small or found_graph(network, facts, progress)
        sited = FoundNetwork(found.rewritten, found.network)
    except Exception as error:  # a tracer may raise any error: the network stays unchanged
        size = "" if facts.sides else " for any size (`static` may do)"
        text = (
            f"its attention stays as trained: there is no graph of it{size}: {trace_fault(error)}"
        )
        return _with_unserved(loaded, [text])
    named = _with_unserved(loaded, left_as_trained(found.attentions))
    if not found.served:
        return named
    sited.requires_grad_(requires_grad=False).eval()
    facts = replace(facts, window=common_window(sited))
    return replace(named, network=sited, facts=facts)


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
        loaded, warnings=(*loaded.warnings, *sentences), unserved=(*loaded.unserved, *sentences)
    )


def _is_larger(fixed: Facts, free: Facts) -> bool:
    """Return whether an image of a fixed shape has more pixels than those of the search."""
    if fixed.sides is None or free.sides is not None:
        return False
    unit = _unit(free, _UNITS[0])
    return math.prod(fixed.sides.values()) > math.prod(_UNITS[1]) * unit**2


def _found_small(network: nn.Module, facts: Facts) -> FoundGraph | None:
    """Return the graph of a network for any size, or None if a search at one size may find more."""
    try:
        found = found_graph(network, facts)
    except Exception:  # a search at the fixed size reports the reason if it fails too
        return None
    return None if found.changing else found


def found_graph(
    network: nn.Module, facts: Facts, progress: Callable[[str], None] = lambda _: None
) -> FoundGraph:
    """Return the graph of a network with sites, after a comparison with the network.

    Args:
        network: The network.
        facts: Facts of the network.
        progress: Called with the reason if modules of the same structure cannot share one trace.

    Raises:
        ValueError: The outputs of the graph differ from those of the network.
        Exception: Any error of PyTorch's tracer.
    """
    try:
        return _found_graph(network, facts, once=True)
    except Exception as error:  # the graph of a module depends on more than its structure
        progress(f"find attention without reuse of equal modules: {trace_fault(error)}")
        return _found_graph(network, facts, once=False)


def _found_graph(network: nn.Module, facts: Facts, *, once: bool) -> FoundGraph:
    """Return the graph of a network; with ``once``, modules of the same structure share a trace."""
    fixed = facts.sides is not None
    runnable = shared_copy(network)
    graph = _graph(network, facts, runnable if once else None)
    unit = _unit(facts, _UNITS[0])
    found, first = _searched(graph, facts, unit)
    if found.changing and not fixed:
        larger = max(2, math.ceil(min(found.longest, _LARGEST_UNIT) / unit))
        found, first = _searched(graph, facts, larger * unit)
    _compare(found, runnable, first)
    if not fixed:
        _compare(found, runnable, _inputs(facts, _UNITS[0][::-1], unit, less=_ODD, alone=True))
    return found


def _searched(
    graph: torch.fx.GraphModule, facts: Facts, unit: int
) -> tuple[FoundGraph, tuple[Tensor, ...]]:
    """Return the attention found at two sizes, for a unit in pixels, and the first inputs."""
    first = _inputs(facts, _UNITS[0], unit)
    second = None if facts.sides is not None else _inputs(facts, _UNITS[1], unit, alone=True)
    traced = Traced(graph, first, second)
    return find_in_graph(traced), first


def _compare(found: FoundGraph, network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Raise ValueError if a graph with sites differs from its network at some size."""
    with torch.no_grad():
        expected = network(*(tensor.clone() for tensor in inputs))
        difference = outputs_differ(found.network(*inputs), expected)
    if not difference <= _ALLOWED:
        raise ValueError(f"its graph differs by {difference:.0e} from the network")


def _graph(network: nn.Module, facts: Facts, runnable: nn.Module | None) -> torch.fx.GraphModule:
    """Return the graph; with ``runnable``, a copy to run, equal modules share a trace."""
    free = dynamic_shapes(facts.inputs, facts.size_minimum)
    with (
        sizes_of_one(),
        _silent(),
        without_stack_traces(),
        without_simplified_roundings(),
    ):
        if free is None:
            return _fixed_graph(network, _inputs(facts, _SMALLEST, _unit(facts, _SMALLEST)))
        examples = examples_of(facts)
        idle = (
            None
            if runnable is None
            else idle_parts(runnable, _inputs(facts, _SMALLEST, _unit(facts, _SMALLEST)))
        )
        return exported_graph(network, examples, by_argument(network, free), idle)


def _fixed_graph(network: nn.Module, examples: tuple[Tensor, ...]) -> torch.fx.GraphModule:
    """Return the graph of a network of fixed size, recorded from a run if it cannot be exported."""
    try:
        return exported_graph(network, examples, None)
    except Exception:  # its code may branch on values
        return recorded_graph(network, examples)


def _unit(facts: Facts, units: tuple[int, int]) -> int:
    """Return the unit in pixels: the network takes maps whose sides are so many units."""
    unit = facts.size_multiple if facts.size_multiple > 1 else _LEAST_UNIT
    while unit * min(units) < facts.size_minimum:
        unit *= 2
    return unit


def _inputs(
    facts: Facts, units: tuple[int, int], unit: int, less: int = 0, *, alone: bool = False
) -> tuple[Tensor, ...]:
    """Return noise images of the given units per side, several if the network takes a batch.

    Args:
        facts: Facts of the network.
        units: Rows and columns in units.
        unit: Pixels of a unit.
        less: Pixels by which each side is smaller, if sides are free.
        alone: Whether a batch has one image.
    """
    sides = facts.sides or image_size(unit * units[0] - less, unit * units[1] - less)
    size = trace_size(facts.inputs, sides)
    if alone and "batch" in size:
        size["batch"] = 1
    random = torch.Generator().manual_seed(0)
    return tuple(
        torch.rand(port.shape(size), generator=random).to(getattr(torch, port.dtype))
        for port in facts.inputs
    )


class _SoftmaxSeen(Exception):  # noqa: N818 - no error: it ends the run
    """Raised at the first softmax of a network."""


class _Softmaxes(TorchDispatchMode):
    """Ends a run at its first softmax."""

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        """Run an operator."""
        name = str(func)
        if "softmax" in name or "scaled_dot_product" in name:
            raise _SoftmaxSeen
        return func(*args, **(kwargs or {}))  # type: ignore[operator, arg-type]


def _has_softmax(network: nn.Module, facts: Facts) -> bool:
    """Return whether a network computes a softmax; False for a network that fails in this run."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), _Softmaxes():  # type: ignore[no-untyped-call]
            shared_copy(network)(*_inputs(facts, _UNITS[0], _unit(facts, _UNITS[0])))
    except _SoftmaxSeen:
        return True
    except Exception:  # the check of the graph reports the error
        return False
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return False


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Silence PyTorch's loggers while it traces."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
