"""The categories of ATD in a fixed order: tokens are sorted by category and cut into groups.

The order within a category is that of PyTorch's sort, which depends on the processor. So do the
groups and the image. Here equal tokens keep the order of the map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class StableSorts(TorchFunctionMode):
    """Makes ``torch.sort`` stable while it is active: equal values keep their order."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        more = {"stable": True} if func is torch.sort else {}
        return func(*args, **dict(kwargs or {}) | more)


class Categories(nn.Module):
    """Attention by categories, as the original module computes it."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own

    def forward(self, *inputs: Any) -> Tensor:
        """Return the output of the module for its inputs."""
        with StableSorts():
            attended: Tensor = self.own(*inputs)
        return attended


def adapt(own: nn.Module, _: nn.Module) -> Categories:
    """Return the module with its sort made stable."""
    return Categories(own)
