"""Places: the position of each element of a tensor, as one integer.

A place is (batch, time, row, column); rows and columns may be negative, since padding continues the
map beyond its border. Operators that only move elements act on places as on data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

NONE = -1
"""Place of an element that does not depend on the input, or is outside an uneven map."""
MIXED = -2
"""Place of an element that combines several places."""
MOVED = -3
"""Place of an element that is selected by data."""

# below 2^53: exact as float64 too
_COLUMN = 1
_ROW = 1 << 17
_TIME = 1 << 34
_BATCH = 1 << 43
_ORIGIN = 1 << 16
_BEYOND_ALL = 1 << 60
_LARGE = 1 << 14
"""Places of tensors with fewer elements than this are not compacted."""


def encode(
    batch: Tensor,
    time: Tensor,
    row: Tensor,
    column: Tensor,
) -> Tensor:
    """Return the places, int64, of batches, times, rows and columns, which are broadcast."""
    y = row + _ORIGIN
    x = column + _ORIGIN
    return batch * _BATCH + time * _TIME + y * _ROW + x * _COLUMN


def decode(places: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return batch, time, row and column of places, each in the shape of the places."""
    row = places % _TIME // _ROW - _ORIGIN
    return places // _BATCH, places % _BATCH // _TIME, row, places % _ROW - _ORIGIN


def make_places(shape: Sequence[int]) -> Tensor:
    """Return the places of a new map (B, C, H, W), (B, C, T, H, W), (B, C, L) or (B, L)."""
    if len(shape) == 0:
        return torch.tensor(MIXED)
    if len(shape) == 1:
        return make_places((1, *shape))[0]
    sides = list(shape[1:]) if len(shape) == 2 else list(shape[2:])
    sides = sides[-3:]
    lengths = [1] * (3 - len(sides)) + sides
    numbers = [torch.arange(length) for length in lengths]
    time = numbers[0].reshape(1, -1, 1, 1)
    row = numbers[1].reshape(1, 1, -1, 1)
    column = numbers[2].reshape(1, 1, 1, -1)
    batch = torch.arange(shape[0])
    batch = batch.reshape(-1, 1, 1, 1)
    mesh = encode(batch, time, row, column)
    if len(shape) == 2:
        return mesh.reshape(tuple(shape))
    between = (1,) * (len(shape) - 1 - len(sides))
    mesh = mesh.reshape(shape[0], *between, *sides)
    return mesh.expand(tuple(shape))


def find_agreed(places: Tensor, dims: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return one place for all elements along dims, and whether all of them have it.

    Both results keep the dims with length 1. If places differ, as in a merged patch, the first one
    is taken. It is `MIXED` instead if no image would keep more than one place.
    """
    dims = [dims] if isinstance(dims, int) else list(dims)
    lengths = list(places.shape)
    for dim in dims:
        lengths[dim] = 1
    places = unshare(places)
    without = places < 0
    lowest = places.masked_fill(without, _BEYOND_ALL).amin(dims, keepdim=True)
    highest = places.amax(dims, keepdim=True)
    exact = (lowest == highest) | (highest < 0)
    out = torch.where(highest < 0, highest, lowest)
    if not bool(exact.all()):
        remaining = out[~exact].unique()
        if len(remaining) <= len((remaining // _BATCH).unique()):
            out = torch.where(exact, out, torch.full_like(out, MIXED))
    return out.expand(lengths), exact.expand(lengths)


def unshare(tensor: Tensor) -> Tensor:
    """Return a tensor with length 1 along the axes whose elements share memory."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor[tuple(slice(size if stride else 1) for size, stride in sizes)]


def is_zero(numbers: Tensor) -> bool:
    """Return whether all numbers are 0, in one pass over them."""
    if not numbers.numel():
        return True
    lowest, highest = unshare(numbers).aminmax()
    return float(lowest) == float(highest) == 0.0


def reshape_shared(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a tensor in another shape; axes whose elements share memory stay so if possible."""
    if tensor.numel() == 0:
        return tensor.reshape(tuple(shape))
    old = list(zip(tensor.shape, tensor.stride(), strict=True))
    new = list(shape)
    lengths: list[int] = []
    corner: list[slice] = []
    while old or new:  # the least axes of both that have as many elements
        part = [old.pop(0)] if old else []
        new_part = [new.pop(0)] if new else []
        count = math.prod(size for size, _ in part)
        new_count = math.prod(new_part)
        while count != new_count:
            if count < new_count:
                part.append(old.pop(0))
                count *= part[-1][0]
            else:
                new_part.append(new.pop(0))
                new_count *= new_part[-1]
        shares = all(stride == 0 or size == 1 for size, stride in part)
        corner += [slice(1 if shares else None)] * len(part)
        lengths += [1] * len(new_part) if shares else new_part
    tensor = tensor[tuple(corner)].reshape(lengths)
    return tensor.expand(tuple(shape))


def compact(places: Tensor) -> Tensor:
    """Return places in less memory if they are constant along their last or second axis.

    Operators that move elements copy a map for each channel, even if all channels shared memory.
    """
    if places.numel() < _LARGE or places.dim() < 2:
        return places
    for axis in (places.dim() - 1, 1):
        corner = unshare(places)
        if places.stride(axis) and is_constant(corner, axis):
            one = corner.narrow(axis, 0, 1).clone()
            places = one.expand(places.shape)
    return places


def share_constant_axes(numbers: Tensor) -> Tensor:
    """Return numbers in less memory: axes along which they are constant share it."""
    for axis in range(numbers.dim()):
        if numbers.stride(axis) and is_constant(unshare(numbers), axis):
            first = numbers.narrow(axis, 0, 1)
            numbers = first.expand(numbers.shape)
    return numbers


def is_constant(places: Tensor, axis: int) -> bool:
    """Return whether places are constant along an axis."""
    if not places.numel():
        return True
    line = _take_line(places, axis)  # since most differ there
    if not bool((line == line[0]).all()):
        return False
    first = places.narrow(axis, 0, 1)
    return torch.equal(first.expand_as(places), places)


def extend(
    places: Tensor,
    dim: int,
    before: int,
    after: int,
) -> Tensor:
    """Return places padded along an axis.

    Evenly spaced places continue in the padding. Others are `NONE` there.

    Args:
        places: The places.
        dim: The axis.
        before: Elements to add at the beginning; a negative number removes elements.
        after: Elements to add at the end; a negative number removes elements.
    """
    size = places.shape[dim]
    cut_before = max(-before, 0)
    cut_after = max(-after, 0)
    places = places.narrow(dim, cut_before, size - cut_before - cut_after)
    before = max(before, 0)
    after = max(after, 0)
    if before == after == 0:
        return places
    steps = places.diff(dim=dim)
    even = places.shape[dim] > 1
    if even:
        first_step = steps.flatten()[0]
        even = bool((steps == first_step).all())
    step = 0
    if even and bool((places >= 0).all()):
        step = int(steps.flatten()[0])
    shape = [1] * places.dim()
    shape[dim] = -1

    def beyond(edge: Tensor, offsets: Tensor) -> Tensor:
        numbers = offsets.reshape(shape)
        if step:
            return edge + step * numbers
        return torch.full_like(edge + numbers, NONE)

    first = places.narrow(dim, 0, 1)
    last = places.narrow(dim, places.shape[dim] - 1, 1)
    ahead = torch.arange(-before, 0)
    behind = torch.arange(1, after + 1)
    ahead = beyond(first, ahead)
    behind = beyond(last, behind)
    return torch.cat((ahead, places, behind), dim)


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Return whether a shape broadcasts to another one."""
    try:
        together: torch.Size = torch.broadcast_shapes(tuple(shape), tuple(to))
        return bool(together == torch.Size(to))
    except RuntimeError:
        return False


def number_places(codes: Tensor, places: Tensor) -> Tensor:
    """Return the number of each place among the sorted codes of a map; -1 for others."""
    corner = unshare(places)
    codes_read = corner.clamp(min=0).contiguous()
    at = torch.searchsorted(codes, codes_read)
    at = at.clamp(max=len(codes) - 1)
    is_on_map = codes[at] == corner
    at = torch.where(is_on_map, at, torch.full_like(at, -1))
    return at.expand(places.shape)


def find_map_axes(codes: Tensor, place: Tensor) -> list[int] | None:
    """Return the axes of a tensor that are axes of the map of sorted codes; None if it has no map.

    Args:
        codes: The places of the map.
        place: The place of each element of the tensor.
    """
    sizes = place.shape
    strides = place.stride()
    axes_of_place = range(place.dim())
    wide = [axis for axis in axes_of_place if sizes[axis] > 1 and strides[axis]]
    corner = unshare(place).squeeze()
    count = corner.numel()
    if count < len(codes) or count % len(codes):
        return None
    axes = [axis for at, axis in enumerate(wide) if not is_constant(corner, at)]
    whole = slice(None)
    index = tuple(whole if axis in axes else slice(0, 1) for axis in wide)
    flat = corner[index]
    if flat.numel() != len(codes):
        return None
    if not torch.equal(flat.flatten(), codes):
        return None
    if torch.equal(flat.expand(corner.shape), corner):
        return axes
    return None


def _take_line(places: Tensor, axis: int) -> Tensor:
    """Return the places along an axis, at 0 of all others."""
    index: list[int | slice] = [0] * places.dim()
    index[axis] = slice(None)
    return places[tuple(index)]


def find_side_axes(place: Tensor) -> tuple[int, int] | None:
    """Return the axes of places along which only rows, and only columns, change."""
    axes: list[list[int]] = [[], []]
    for axis in range(place.dim()):
        line = _take_line(place, axis)
        counts = [len(part.unique()) for part in decode(line)]
        batches, times, *sides = counts
        one_side = sorted(sides) == [1, len(line)]
        if batches == times == 1 and one_side and len(line) > 1:
            axes[0 if sides[0] > 1 else 1].append(axis)
    rows, columns = axes
    if len(rows) == len(columns) == 1:
        return (rows[0], columns[0])
    return None
