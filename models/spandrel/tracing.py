"""Functions of third-party networks that a tracer cannot follow, and their replacements.

Networks with windows usually have a function that joins windows to a map. It divides floating-point
numbers to get the batch size, which a tracer treats as a constant. torchvision checks the values of
the deviations that it divides by. While such a network is traced, an equivalent function of this
module replaces the original one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def merge_windows(windows: Tensor, sides: int | Sequence[int], *size: Any) -> Tensor:
    """Join windows (B * count, rows, columns, C) to maps (B, H, W, C).

    Args:
        windows: The windows; rows and columns may be one axis.
        sides: Side of a window, or its rows and columns.
        *size: H and W, or one pair of both.
    """
    rows, columns = (sides, sides) if isinstance(sides, int) else sides
    height, width = size if len(size) == 2 else size[0]
    grid = (-1, height // rows, width // columns, rows, columns, windows.shape[-1])
    maps = windows.reshape(grid).permute(0, 1, 3, 2, 4, 5)
    return maps.reshape(-1, height, width, windows.shape[-1])


def merge_stripes(stripes: Tensor, rows: int, columns: int, height: int, width: int) -> Tensor:
    """Join stripes (B * count, rows * columns, C) to maps (B, H, W, C)."""
    return merge_windows(stripes, (rows, columns), height, width)


def inverse_order(index: Tensor) -> Tensor:
    """Return the order (B, N) that undoes an order (B, N), for any B."""
    place = torch.arange(index.shape[-1], device=index.device).expand_as(index)
    return torch.zeros_like(index).scatter(-1, index, place)


def normalize(image: Tensor, mean: Sequence[float], deviation: Sequence[float]) -> Tensor:
    """Return an image (B, C, H, W) normalized by one mean and one deviation per channel."""
    shape = (-1, 1, 1)
    return (image - image.new_tensor(mean).view(shape)) / image.new_tensor(deviation).view(shape)


_STANDINS: dict[str, Callable[..., Tensor]] = {
    "window_reverse": merge_windows,
    "windows2img": merge_stripes,
    "index_reverse": inverse_order,
    "tv_normalize": normalize,
}
"""Name of a function in the module of a third-party network -> an equivalent function."""


@contextmanager
def traceable(network: nn.Module, call: Callable[..., Tensor]) -> Iterator[None]:
    """Replace functions in the code of a network while it is traced.

    Args:
        network: The network.
        call: The function that calls the network; functions in its module are replaced too.
    """
    replaced: list[tuple[Any, str, Any]] = []
    if torch.compiler.is_exporting():
        written_in = {call.__module__, *(type(part).__module__ for part in network.modules())}
        for name in sorted(written_in):
            module = sys.modules.get(name)
            if module is None or not name.startswith("spandrel"):
                continue
            for function, standin in _STANDINS.items():
                if hasattr(module, function):
                    replaced.append((module, function, getattr(module, function)))
                    setattr(module, function, standin)
    try:
        yield
    finally:
        for module, function, own in replaced:
            setattr(module, function, own)
