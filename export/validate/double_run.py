"""The float64 run of a network, at the sizes at which a tolerance may depend on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ...core.arrays import Array
from ...runtime.metrics.sanity import max_abs
from ..pytorch.network_session import NetworkSession

_NO_ROUNDING = 0.05
"""Share of the difference that is always allowed, below which float64 changes no tolerance."""


class DoubleRun:
    """A network in float64, whose runs take most of the time of the references.

    Rounding errors of a continuous network depend little on the size of the image: where a size
    shows that they are far below what is always allowed, the float32 outputs stand for those of
    float64 at the next ones.
    """

    def __init__(self, network: nn.Module, *, always: bool) -> None:
        self._network: NetworkSession | None = NetworkSession(network, torch.float64)
        self._always = always

    def all(
        self, arrays: Sequence[Array], expected: list[Array], allowed: Sequence[float]
    ) -> list[Array]:
        """Return the outputs in float64, or the expected ones where these tell no more.

        Args:
            arrays: The inputs.
            expected: The outputs in float32.
            allowed: The difference of each output that is always allowed.
        """
        if self._network is None:
            return expected
        exact = self._network.all(arrays)
        outputs = zip(expected, exact, strict=True)
        errors = [max_abs(own, right) for own, right in outputs]
        pairs = zip(errors, allowed, strict=True)
        small = (error < _NO_ROUNDING * limit for error, limit in pairs)
        if not self._always and all(small):
            self._network = None
        return exact
