"""The number of operations of a network, and the share of exact attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

# Documented by PyTorch for tensors without values, without a public name.
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from ...core.ports.examples import example_arrays
from ...models.facts import Facts
from .site import find_sites, neutral, swap

_Result = TypeVar("_Result")


@runtime_checkable
class _Graph(Protocol):
    """A network that PyTorch does not compute, and which counts its operations itself."""

    def operations(self, images: Sequence[Tensor]) -> int:
        """Return the operations for inputs of these sizes, exact attention included."""


class _Meter:
    def __init__(self, exact: Callable[..., Tensor], counter: FlopCounterMode) -> None:
        self.exact, self.counter, self.flops = exact, counter, 0

    def __call__(self, *arguments: Any) -> Tensor:
        before = self.counter.get_total_flops()
        result = self.exact(*arguments)
        self.flops += self.counter.get_total_flops() - before
        return result


def network_flops(network: nn.Module, facts: Facts) -> tuple[int, dict[str, int]]:
    """Return the operations of one image with attention as trained, in all and at each site.

    The image is 4 windows (or 16 size multiples) a side. Convolutions and matrix products are
    counted, 2 for each multiply-add: by PyTorch on tensors without values, or from the shapes of a
    graph.
    """
    return without_values(lambda: _counted(network, facts))


def total_flops(network: nn.Module, facts: Facts) -> int:
    """Return the first number of `network_flops`; a network that is a graph is not run."""
    return _of_graphs(network, _images(facts)) or network_flops(network, facts)[0]


def without_values(run: Callable[[], _Result]) -> _Result:
    """Return what a run of a network gives that is asked for its shapes only.

    It is done on tensors without values; a network that branches on values is run really.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return run()
    except (RuntimeError, NotImplementedError):
        return run()


def _counted(network: nn.Module, facts: Facts) -> tuple[int, dict[str, int]]:
    copied = swap(network, neutral(network))
    images = _images(facts)
    counter = FlopCounterMode(display=False)
    meters: dict[str, _Meter] = {}
    for site in find_sites(copied):
        mechanism: Any = site.module.implementation
        meter: Any = _Meter(mechanism, counter)
        site.module.implementation = meters[site.path] = meter
    with counter, torch.no_grad():
        copied(*images)
    spent = {path: meter.flops for path, meter in meters.items()}
    return _of_graphs(copied, images) or counter.get_total_flops(), spent


def _images(facts: Facts) -> list[Tensor]:
    arrays = example_arrays(facts.inputs, facts.test_size())
    return [torch.from_numpy(array) for array in arrays.values()]


def _of_graphs(network: nn.Module, images: Sequence[Tensor]) -> int:
    graphs = [module for module in network.modules() if isinstance(module, _Graph)]
    return sum(graph.operations(images) for graph in graphs)
