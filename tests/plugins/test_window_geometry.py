"""Windows of maps with two and three sides: partition, merge, shift, pooling."""

import itertools

import pytest
import torch
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.plugins.operators.window_geometry import WindowGeometry
from nystra.plugins.operators.windows_torch import (
    check_map,
    merge,
    partition,
    token_regions,
    window_landmarks,
)

CASES = [
    ((4, 6), (2, 3), (1, 2)),
    ((4, 4, 6), (2, 4, 3), (1, 2, 1)),
    ((3, 2, 2), (3, 1, 2), (0,) * 3),
]


def tokens_by_loop(grid: Tensor, geometry: WindowGeometry) -> Tensor:
    """Return (windows, N, C) of a map (*sides, C), window after window and token after token."""
    sides = grid.shape[:-1]
    corners = itertools.product(
        *(range(0, size, step) for size, step in zip(sides, geometry.window, strict=True))
    )
    rows = []
    for corner in corners:
        for inside in itertools.product(*map(range, geometry.window)):
            place = tuple(
                (a + b + s) % size
                for a, b, s, size in zip(corner, inside, geometry.shift, sides, strict=True)
            )
            rows.append(grid[place])
    return torch.stack(rows).view(-1, geometry.tokens, grid.shape[-1])


@pytest.mark.parametrize(("sides", "window", "shift"), CASES)
def test_partition_and_merge(
    sides: tuple[int, ...], window: tuple[int, ...], shift: tuple[int, ...]
) -> None:
    geometry = WindowGeometry(2, 3, 4, window, shift)
    qkv = torch.randn(2, *sides, geometry.channels)
    check_map("test", qkv, geometry)
    q, k, v = partition(qkv, geometry)
    for packed, part, first in ((6, q, 0), (6, k, 6), (8, v, 12)):
        want = tokens_by_loop(qkv[1, ..., first : first + packed], geometry)
        torch.testing.assert_close(part[1].transpose(1, 2).flatten(2), want, rtol=0, atol=0)
    torch.testing.assert_close(merge(v, sides, geometry), qkv[..., 12:], rtol=0, atol=0)


@pytest.mark.parametrize(("sides", "window", "shift"), CASES)
def test_regions_are_what_the_shift_brought_together(
    sides: tuple[int, ...], window: tuple[int, ...], shift: tuple[int, ...]
) -> None:
    geometry = WindowGeometry(1, 1, 1, window, shift)
    regions = token_regions(sides, geometry, torch.device("cpu"))
    places = torch.cartesian_prod(*map(torch.arange, sides)).view(*sides, len(sides))
    tokens = tokens_by_loop(places, geometry)
    wrapped = tokens < torch.tensor(shift)  # came around the border
    pairs = regions.unsqueeze(1) != regions.unsqueeze(2)
    want = torch.zeros_like(pairs)
    for axis, (size, side) in enumerate(zip(sides, window, strict=True)):
        around = wrapped[..., axis] & (tokens[..., axis].amax(1) >= size - side)[:, None]
        want |= around.unsqueeze(1) != around.unsqueeze(2)
    torch.testing.assert_close(pairs, want)


def test_landmarks_of_three_sides_are_means_of_boxes() -> None:
    geometry = WindowGeometry(1, 2, 2, (2, 4, 6), (0, 0, 0))
    tokens = torch.randn(3, geometry.tokens, 2)
    got = window_landmarks(tokens, geometry, 1, 2, 3)
    want = tokens.view(3, 1, 2, 2, 2, 3, 2, 2).mean((2, 4, 6)).view(3, 6, 2)
    torch.testing.assert_close(got, want)


def test_what_does_not_fit() -> None:
    geometry = WindowGeometry(1, 1, 1, (2, 4, 4), (0, 0, 0))
    with pytest.raises(NystraError, match=r"a window of 3 sides, \(2, 4, 4\)"):
        geometry.attributes()
    with pytest.raises(NystraError, match=r"expected \(B, L, H, W, h\(2d\+e\)\)"):
        check_map("test", torch.zeros(1, 4, 4, 3), geometry)
    with pytest.raises(NystraError, match="the length of the map is 3"):
        check_map("test", torch.zeros(1, 3, 4, 4, 3), geometry)
