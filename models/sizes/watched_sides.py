"""Sides of an image that show what Python code decides and computes with them.

While a network runs, the sides of its image are whole numbers that repeat every step of a
calculation for all other sides. Where a result is equal for neighboring sides and then changes, as
of ``height // 200`` and ``height == 141``, runs on sides around that change tell the most.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LONGEST = 4096
"""Sides up to which steps are repeated."""

_FIRST_CHANGES = 2
"""Changes of each result that count: others are alike."""

_SIDES = np.arange(1, _LONGEST + 1)


class WatchedSides(TorchFunctionMode):
    """Gives the sides of tensors that are as large as the image as watched numbers.

    Attributes:
        sizes: Heights and widths to look at: those seen, and others around a change of a result.
        is_hashed: Whether a side was looked up in a table, which may hold any other side.
    """

    def __init__(
        self, size: tuple[int, int], sizes: Iterable[tuple[int, int]], multiple: int
    ) -> None:
        """Watch the sides of an image.

        Args:
            size: Its height and width.
            sizes: Those at which the network is seen anyway.
            multiple: Of padded sides.
        """
        super().__init__()
        self.size = size
        self.sizes = dict.fromkeys(sizes)
        self.is_hashed = False
        self._padded = -(-_SIDES // multiple) * multiple
        self._is_padded = any(side % multiple for side in size)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        is_shape = isinstance(returned, torch.Size)
        if not self._is_padded or (not is_shape and func is not Tensor.size):
            return returned  # sides of padded maps are like those of an image that needs no padding
        if not set(self.size) <= set(args[0].shape):  # a number of channels may be like a side
            return returned
        if is_shape:
            return torch.Size([self._watch(length) for length in returned])
        return self._watch(returned)

    def _watch(self, length: int) -> Any:
        height, width = self.size
        if length == height:
            return _Side.of(length, (_SIDES, np.full_like(_SIDES, height)), self)
        if length == width:
            return _Side.of(length, (np.full_like(_SIDES, width), _SIDES), self)
        return length

    def note(self, values: tuple[Any, Any]) -> None:
        """Note what a result is for other heights, and for other widths."""
        for axis, each in enumerate(values):
            for side in self._find_telling_sides(each, {size[axis] for size in self.sizes}):
                self.sizes[(side, self.size[1]) if axis == 0 else (self.size[0], side)] = None

    def _find_telling_sides(self, values: Any, seen: Collection[int]) -> Iterator[int]:
        """Yield sides that differ from those seen in the results for them and for padded ones."""
        if np.ndim(values) == 0:
            return
        padded = self._padded[self._padded <= _LONGEST]
        is_decision = values.dtype == bool
        if not is_decision and np.array_equal(values[: len(padded)], values[padded - 1]):
            return  # of padded sides, as they are after padding too

        def pattern(side: int) -> tuple[Any, Any, bool]:
            other = int(padded[side - 1])
            return values[side - 1], values[other - 1], side == other

        changes = values[1:] != values[:-1]
        (places,) = np.nonzero(changes[1:-1] & ~changes[:-2])
        patterns = {pattern(side) for side in seen if side <= len(padded)}
        for place in places[:_FIRST_CHANGES]:
            for side in range(int(place) + 1, int(place) + 5):
                if side <= len(padded) and pattern(side) not in patterns:
                    patterns.add(pattern(side))
                    yield side


class _Watched:
    """A number, what it is for other heights and for other widths, and who watches it."""

    values: tuple[Any, Any]
    watching: WatchedSides

    @classmethod
    def of(cls, number: Any, values: tuple[Any, Any], watching: WatchedSides) -> Any:
        watched: Any = cls(number)  # type: ignore[call-arg]
        watched.values, watched.watching = values, watching
        return watched

    def __hash__(self) -> int:
        self.watching.is_hashed = True
        return super().__hash__()


def _repeat_operator(name: str, repeat: Callable[..., Any], base: type) -> Callable[..., Any]:
    """Return an operator of numbers that is repeated for other sides."""
    own = getattr(base, name)

    def compute(number: Any, *others: Any) -> Any:
        result = own(number, *others)
        if result is NotImplemented or not all(isinstance(each, (int, float)) for each in others):
            return result
        with np.errstate(all="ignore"):
            operands = [number.values, *map(_values, others)]
            by_height = repeat(*(operand[0] for operand in operands))
            by_width = repeat(*(operand[1] for operand in operands))
        values = by_height, by_width
        number.watching.note(values)
        if isinstance(result, bool) or not isinstance(result, (int, float)):
            return result
        kind = _Side if isinstance(result, int) else _Ratio
        return kind.of(result, values, number.watching)

    return compute


def _values(number: Any) -> tuple[Any, Any]:
    return number.values if isinstance(number, _Watched) else (number, number)


class _Side(_Watched, int):
    def __float__(self) -> float:
        self.watching.is_hashed = True
        return super().__float__()


class _Ratio(_Watched, float):
    def __int__(self) -> int:
        return int.__int__(math.trunc(self))


def _reverse(repeat: Callable[..., Any]) -> Callable[..., Any]:
    return lambda number, other: repeat(other, number)


_OF_TWO = ("add", "sub", "mul", "floordiv", "truediv", "mod", "pow")
_OF_WHOLE = ("and", "or", "xor", "lshift", "rshift")
_COMPARISONS = ("lt", "le", "eq", "ne", "ge", "gt")
_OF_ONE: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "abs": operator.abs,
    "bool": lambda number: number != 0,
    "round": np.round,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
}


def _complete(kind: type, base: type, names: tuple[str, ...]) -> None:
    """Give a kind of numbers the operators of its base."""
    for name in (*names, *_COMPARISONS):
        repeat = getattr(operator, f"__{name}__")
        setattr(kind, f"__{name}__", _repeat_operator(f"__{name}__", repeat, base))
        if name not in _COMPARISONS:
            setattr(kind, f"__r{name}__", _repeat_operator(f"__r{name}__", _reverse(repeat), base))
    for name, repeat in _OF_ONE.items():
        setattr(kind, f"__{name}__", _repeat_operator(f"__{name}__", repeat, base))


_complete(_Side, int, _OF_TWO + _OF_WHOLE)
_complete(_Ratio, float, _OF_TWO)
