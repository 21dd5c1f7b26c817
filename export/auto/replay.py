"""Runs a network on one image repeatedly, each time only from the changed site on.

The computation before a site does not depend on that site. So the outputs of the modules (blocks,
groups of blocks, layers between them) are stored once, and a run with one site replaced reuses
those that were complete before the site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites, swap
from ..load.images import Feeds

_Place = tuple[str, int]
"""A module, and which of its calls in a run."""


@dataclass(frozen=True)
class _Kept:
    end: int
    output: Tensor
    calls: Counter[str]


class Replay:
    """An image and a network with a plan.

    Attributes:
        output: Output of the network with that plan.
    """

    def __init__(self, network: nn.Module, base: Mapping[str, Mechanism], feeds: Feeds) -> None:
        """Run once and keep the intermediate values.

        Args:
            network: The loaded network, which is not modified.
            base: Mechanism of every site.
            feeds: Inputs of the network, in the order of its arguments.
        """
        self._network = swap(network, base, "operator")
        self._inputs = [torch.from_numpy(array) for array in feeds.values()]
        self._sites = {site.path: site.module for site in find_sites(self._network)}
        self._kept: dict[_Place, _Kept] = {}
        self._begun: dict[str, int] = {}
        self._calls: Counter[str] = Counter()
        self._time, self._from = 0, -1
        self._recording = True
        for name in _cacheable_modules(self._network, list(self._sites)):
            module: Any = self._network.get_submodule(name)
            module.forward = self._around(name, module.forward)
        own: dict[str, Any] = {path: site.implementation for path, site in self._sites.items()}
        for path, mechanism in own.items():
            self._set(path, self._recorded(path, mechanism))
        self.output = self._run()
        for path, mechanism in own.items():
            self._set(path, mechanism)
        self._recording = False

    def replaced(self, path: str, mechanism: Mechanism) -> Tensor:
        """Return the output with another mechanism at one site."""
        site = self._sites[path]
        own = site.implementation
        self._from = self._begun[path]
        self._set(path, implement(mechanism, site, "operator"))
        try:
            return self._run()
        finally:
            self._set(path, own)

    def _run(self) -> Tensor:
        self._calls.clear()
        with torch.inference_mode():
            outputs = self._network(*self._inputs)
        output: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        return output

    def _set(self, path: str, mechanism: Any) -> None:
        self._sites[path].implementation = mechanism

    def _recorded(self, path: str, mechanism: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*arguments: Any) -> Tensor:
            self._begun.setdefault(path, self._time)
            return mechanism(*arguments)

        return call

    def _around(self, name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            place = (name, self._calls[name])
            kept = self._kept.get(place)
            if not self._recording and kept is not None and kept.end <= self._from:
                self._calls = kept.calls.copy()
                return kept.output.clone()  # a copy: a network may write into its inputs
            self._calls[name] += 1
            output = forward(*arguments, **named)
            if self._recording and isinstance(output, Tensor):
                self._time += 1
                self._kept[place] = _Kept(self._time, output.clone(), self._calls.copy())
            return output

        return call


def _cacheable_modules(network: nn.Module, sites: list[str]) -> list[str]:
    """Return the modules that are not sites: parts of the network and of modules with sites."""
    held: Counter[str] = Counter()
    for path in sites:
        parts = path.split(".")
        held.update(".".join(parts[:depth]) for depth in range(1, len(parts)))
    holders = ["", *(name for name, count in held.items() if count > 1)]
    return [
        f"{holder}.{name}".lstrip(".")
        for holder in holders
        for name, module in network.get_submodule(holder).named_children()
        if f"{holder}.{name}".lstrip(".") not in sites
    ]
