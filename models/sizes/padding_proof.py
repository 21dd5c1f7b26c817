"""Shows that all that a network does with an image, it does with the padded image.

The network runs on an image that it pads, and on one that is padded already. Every operator gets a
name of what it is, of its arguments, and of the names of its inputs. An operator that computes each
pixel from the same pixel of its inputs may work on the image as it is, or on a crop, since padding
and cropping copy pixels. If the names of the outputs are the same in both runs, no other path leads
from the image or its size to the output.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...core.ports.port import IMAGE_AXES
from ..torch_internals import OpOverload, TorchDispatchMode
from .given import copy_sharing_weights
from .watched_sides import WatchedSides

_LONG = 131
"""A side above 128, in pixels."""

_LARGE = 48
"""Multiple from which on images have few pixels more than it."""

_RAW, _MOVED, _PADDED_BEFORE = "of the image's own size", "partly padded", "padded before"

_PADS = ("constant_pad_nd", "reflection_pad2d", "replication_pad2d")
_SAME = ("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy")
_MOVES = (
    *_PADS, "reflection_pad1d", "slice", "cat", "flip", "index_select", "index", "_unsafe_index",
)  # fmt: skip
"""Operators that copy elements to other places."""

_MOST_SIZES = 64
"""Sizes that are run, those by which a network decides among them."""

_LARGEST_CONSTANT = 1 << 16


def moves_in_front(
    network: nn.Module, call: Callable[..., Any], inputs: Sequence[Tensor], multiple: int
) -> bool:
    """Return whether padding an image before a network changes nothing but the padding.

    Args:
        network: In evaluation mode; it pads the bottom and the right of images to a multiple.
        call: (network, inputs) -> output.
        inputs: Examples of its inputs; those of 4 axes and more have a height and a width.
        multiple: Sides become multiples of it, in pixels.
    """
    own_sizes = _own_sizes(multiple)
    sizes = dict.fromkeys(own_sizes)
    waiting = deque(sizes)
    while waiting:
        size = waiting.popleft()
        sides = WatchedSides(size, sizes, multiple)
        try:
            same = _is_same(network, call, inputs, sides, multiple)
        except Exception:  # noqa: BLE001 - it takes no such size
            same = size not in own_sizes  # nothing is proven
        if not same or sides.is_hashed:
            return False
        waiting.extend(other for other in sides.sizes if other not in sizes)
        sizes = sides.sizes
        if len(sizes) > _MOST_SIZES:
            return False
    return True


def _own_sizes(multiple: int) -> list[tuple[int, int]]:
    """Return heights and widths that are padded: all to several multiples, by several amounts."""
    above = -(-_LONG // multiple) * multiple
    if multiple >= _LARGE:
        return [(2 * multiple - 1, multiple - 3), (multiple - 2, 2 * multiple - 5)]
    return [
        (2 * multiple - 1, multiple + multiple // 2),
        (3 * multiple, 2 * multiple - multiple // 2),
        (multiple + multiple // 2, above - 1),
        (above - 1, 2 * multiple),
    ]


def _is_same(
    network: nn.Module,
    call: Callable[..., Any],
    inputs: Sequence[Tensor],
    sides: WatchedSides,
    multiple: int,
) -> bool:
    rows, columns = (-(-side // multiple) * multiple for side in sides.size)
    with sides:
        names = _Run(sides.size, (rows, columns)).of(network, call, inputs)
    return names is not None and names == _Run((rows, columns), (rows, columns)).of(
        network, call, inputs
    )


@dataclass(frozen=True)
class _Value:
    name: str
    state: str = ""


@dataclass
class _Run:
    """A run on an image.

    Attributes:
        size: Its height and width.
        padded_size: The same, padded.
        values: What tensors are, which are kept so that their numbers stay theirs.
        written: Memory -> what was written to it.
        rules: By which operators images are padded, whatever the image.
        chains: Name of a partly padded image -> that of the image, and its operators until then.
    """

    size: tuple[int, int]
    padded_size: tuple[int, int]
    values: dict[int, tuple[Tensor, _Value]] = field(default_factory=dict)
    written: dict[int, str] = field(default_factory=dict)
    rules: set[str] = field(default_factory=set)
    chains: dict[str, tuple[str, str]] = field(default_factory=dict)

    def of(
        self, network: nn.Module, call: Callable[..., Any], inputs: Sequence[Tensor]
    ) -> list[str] | None:
        """Return the names of the outputs; None if one is not cropped, or padding is not one."""
        copies = [
            _noise(tensor, self.size) if tensor.dim() >= len(IMAGE_AXES) else tensor.clone()
            for tensor in inputs
        ]
        for place, tensor in enumerate(copies):
            state = _PADDED_BEFORE if self.size == self.padded_size else _RAW
            has_sides = tensor.dim() >= len(IMAGE_AXES)
            self._set(tensor, _Value(f"input {place}", state if has_sides else ""))
        copied = copy_sharing_weights(network)
        with torch.no_grad(), _Named(self):
            returned = call(copied, *copies)
        if len(self.rules) > 1:
            return None
        values = [self._value(tensor) for tensor in _tensors(returned)]
        if self.size != self.padded_size and any(value.state != _RAW for value in values):
            return None
        return [value.name for value in values]

    def _set(self, tensor: Tensor, value: _Value) -> None:
        self.values[id(tensor)] = tensor, value

    def _value(self, tensor: Tensor) -> _Value:
        _, value = self.values.get(id(tensor), (tensor, None))
        if value is None:
            value = _Value(_constant(tensor))
            self._set(tensor, value)
        written = self.written.get(_memory(tensor))
        return value if written is None else _Value(_hash(value.name, written), value.state)

    def describe(self, argument: Any) -> str:
        """Return an argument as a text, tensors by name."""
        if isinstance(argument, Tensor):
            return self._value(argument).name
        if isinstance(argument, (list, tuple)):
            return f"[{', '.join(map(self.describe, argument))}]"
        return repr(argument)

    def note(self, operator: Any, args: Any, kwargs: Any, returned: Any) -> None:
        """Name the results of an operator."""
        name = operator._schema.name.partition("::")[2]
        tensors = _tensors((args, list(kwargs.values())))
        before = [self._value(tensor) for tensor in tensors]
        results = _tensors(returned)
        described = (
            f"{operator}({self.describe(args)}, "
            f"{[(key, self.describe(value)) for key, value in sorted(kwargs.items())]})"
        )
        states = {value.state for value in before} - {""}
        if name in _SAME or (name in _MOVES and _is_equal(results[0], tensors[0])):
            self._set(results[0], before[0])
            return
        if name in _MOVES and before[0].state != _MOVED:
            value = self._crop(tensors[0], before[0], results[0])
            if value is not None:
                self._set(results[0], value)
                return
        pixelwise = torch.Tag.pointwise in operator.tags or name == "_to_copy"
        if states and name in _MOVES and len(results) == 1 and not pixelwise:
            values = [self._move(before, described, results[0])]
        else:
            passed = states if pixelwise and len(states) == 1 and _MOVED not in states else set()
            mark = str(sorted(states - passed - {_PADDED_BEFORE}))
            state = next(iter(passed), "")
            values = [_Value(_hash(described, mark, str(at)), state) for at in range(len(results))]
        if operator._schema.is_mutable:
            self._write(operator, args, _hash(described, *sorted(states)))
            return
        for tensor, value in zip(results, values, strict=True):
            self._set(tensor, value)

    def _write(self, operator: Any, args: Any, name: str) -> None:
        for argument, tensor in zip(operator._schema.arguments, args, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and isinstance(tensor, Tensor):
                self.written[_memory(tensor)] = name

    def _crop(self, source: Tensor, value: _Value, result: Tensor) -> _Value | None:
        """Return what a result is that holds the first rows and columns of a tensor; else None."""
        if result.dim() < len(IMAGE_AXES) or result.dim() != source.dim():
            return None
        rows, columns = result.shape[-2:]
        if not _is_equal(result, source[..., :rows, :columns]):
            return None
        for place, axis in enumerate((-2, -1)):
            full, cropped = source.shape[axis], result.shape[axis]
            if full != cropped and full * self.size[place] != cropped * self.padded_size[place]:
                return None
        return _Value(value.name, _RAW)

    def _move(self, before: Sequence[_Value], described: str, result: Tensor) -> _Value:
        """Return what an operator is that moves pixels of the image: part of its padding."""
        moved = [value for value in before if value.state]
        starts = [self.chains.get(value.name, (value.name, "image")) for value in moved]
        bases = {base for base, _ in starts}
        if len(bases) != 1:
            return _Value(_hash(described, *sorted(bases)))
        (base,) = bases
        rule = described
        for value, (_, start) in zip(moved, starts, strict=True):
            rule = rule.replace(value.name, start)
        if result.dim() >= len(IMAGE_AXES) and tuple(result.shape[-2:]) == self.padded_size:
            is_partly = any(value.name in self.chains for value in before)
            if before[0].state == _PADDED_BEFORE and not is_partly:
                return _Value(_hash(described, "[]", "0"))  # it moves pixels within the image
            self.rules.add(_hash(rule))
            return _Value(base)
        name = _hash(described)
        self.chains[name] = base, _hash(rule)
        return _Value(name, _MOVED)


class _Named(TorchDispatchMode):
    def __init__(self, run: _Run) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        returned = func(*args, **named)
        if isinstance(func, OpOverload):
            self._run.note(func, args, named, returned)
        return returned


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors(each)]
    return []


def _noise(example: Tensor, size: tuple[int, int]) -> Tensor:
    """Return noise, so that pixels that were moved can be told from others."""
    noise = torch.rand(*example.shape[:-2], *size, generator=torch.Generator().manual_seed(0))
    return (noise if example.is_floating_point() else 255 * noise).to(example.dtype)


def _is_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _constant(tensor: Tensor) -> str:
    """Return the name of a tensor that no operator made: a weight, or a constant by its values."""
    if isinstance(tensor, nn.Parameter) or tensor.numel() > _LARGEST_CONSTANT:
        return f"weight {id(tensor)}"
    values = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return _hash(str(tensor.shape), str(tensor.dtype), values.numpy().tobytes().hex())


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
