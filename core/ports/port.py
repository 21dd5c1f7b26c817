"""One input or output of a network: its role, its named axes and how long they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from ..errors import NystraError
from ..json_text import is_number
from ..option import Option
from ..plain_text import PLAIN_NAME, is_plain_name

Shape: TypeAlias = tuple[int, ...]
Size: TypeAlias = Mapping[str, int]
"""Lengths by the name of an axis: ``{"height": 64, "width": 80}``."""

Range: TypeAlias = tuple[float, float]
"""The lowest and the highest value."""

UNIT: Range = (0.0, 1.0)
BYTES: Range = (0.0, 255.0)

IMPLIED_RANGES: dict[str, Range] = {
    "uint8": BYTES,
    "int8": (-128.0, 127.0),
    "uint16": (0.0, 65535.0),
    "int32": BYTES,
    "int64": BYTES,
}
"""Integer type of an image -> its range if none is stated; wider ones hold 8-bit values."""


@dataclass(frozen=True)
class Axis:
    """The properties of all axes of one name.

    Attributes:
        letter: Its letter in a layout such as ``NCHW``.
        default: Its length where none is given; None: one has to be given.
        largest: Largest length of a free axis.
    """

    letter: str
    default: int | None = 1
    largest: int = 1 << 10


AXES = {
    "batch": Axis("N"),
    "frames": Axis("T", default=5),
    "channels": Axis("C", default=3),
    "height": Axis("H", default=None, largest=1 << 14),
    "width": Axis("W", default=None, largest=1 << 14),
    "classes": Axis("K"),
    "groups": Axis("G"),
    "steps": Axis("L", default=8),
}

SIDES = ("height", "width")
IMAGE_AXES = ("batch", "channels", *SIDES)
FRAMES_AXES = ("batch", "frames", "channels", *SIDES)
LOGITS_AXES = ("batch", "classes")
ARRAY_AXES = ("batch", "groups", "steps", "classes")
"""Axes of an output that is no image; the ones in the middle are left out where it has fewer."""

CONDITION = "condition"
"""The role of an input of values: see `CONDITION_AXES`."""

NUMBER_AXES = ("batch",)
VECTOR_AXES = ("batch", "classes")
TOKENS_AXES = ("batch", "steps", "classes")
PER_TOKEN_AXES = ("batch", "steps")

CONDITION_AXES = {
    NUMBER_AXES: "a number",
    VECTOR_AXES: "{} numbers",
    TOKENS_AXES: "a list of tokens of {} numbers",
    PER_TOKEN_AXES: "one number per token",
}
"""The axes that an input of values may have -> what it is for each image, with its channels.

All inputs with ``steps`` have the same number of them: a list of tokens and its padding mask.
"""

ROLES = ("image", "mask", "reference", CONDITION, "frames", "picture", "logits")
UNKNOWN = "unknown"
"""The role of an unknown tensor, such as one of another program's file."""


@dataclass(frozen=True)
class Port:
    """One input or output of a network.

    Attributes:
        name: Name of the tensor in the model file, see `is_plain_name`.
        role: ``image``, ``mask`` (1 = to be filled), ``reference`` (another image), ``condition``
            (values with `CONDITION_AXES`), ``frames`` (of a video, input or output), ``picture``
            (an output image), ``logits`` (output), or `UNKNOWN`.
        axes: Names of the axes, outermost first, from `AXES`.
        lengths: Lengths of the fixed axes; the others are free.
        range: Lowest and highest value, or None if unbounded.
        multiple: For an input, its sides are padded inside the network to multiples of this. For an
            output, pixels per pixel of the first input and axis.
        dtype: The numpy name of its type.
        own_size: Its height and width are independent; otherwise they are those of the first input.
    """

    name: str
    role: str
    axes: tuple[str, ...] = IMAGE_AXES
    lengths: Mapping[str, int] = field(default_factory=dict, hash=False)
    range: Range | None = UNIT
    multiple: int = 1
    dtype: str = "float32"
    own_size: bool = False

    def __post_init__(self) -> None:
        """Refuse texts that are no plain names: programs that load the file have them in code."""
        for what in ("name", "role", "dtype"):
            text = getattr(self, what)
            if not is_plain_name(text):
                raise NystraError(
                    f"an input or output has the {what} {text!r:.80}, expected {PLAIN_NAME}: "
                    "rename it"
                )
        if self.role == CONDITION and self.axes not in tuple(CONDITION_AXES):
            expected = " or ".join(f"({', '.join(axes)})" for axes in CONDITION_AXES)
            raise NystraError(
                f"the condition {self.name!r} has the axes ({', '.join(self.axes)}), expected "
                f"{expected}: declare them with Port(axes=...)"
            )

    @property
    def channels(self) -> int | None:
        """Number of channels (of logits: classes), or None if free."""
        return self.lengths.get("channels", self.lengths.get("classes"))

    @property
    def sides(self) -> dict[str, int] | None:
        """Height and width if both are fixed, otherwise None."""
        lengths = {axis: self.lengths[axis] for axis in SIDES if axis in self.lengths}
        return lengths if len(lengths) == len(SIDES) else None

    @property
    def has_sides(self) -> bool:
        """Whether it has a height and a width."""
        return set(SIDES) <= set(self.axes)

    @property
    def layout(self) -> str | None:
        """The letters of its axes, such as ``NCHW``; None if an axis has no letter."""
        if not set(self.axes) <= AXES.keys():
            return None
        return "".join(AXES[axis].letter for axis in self.axes)

    def size_name(self, axis: str) -> str:
        """Return the name of an axis among those of the whole network."""
        return f"{self.name}_{axis}" if self.own_size and axis in SIDES else axis

    def free_axes(self) -> dict[int, str]:
        """Return index -> name (among those of the whole network) of the free axes."""
        return {
            place: self.size_name(axis)
            for place, axis in enumerate(self.axes)
            if axis not in self.lengths
        }

    def shape(self, size: Size) -> tuple[int, ...]:
        """Return the shape at a size.

        Args:
            size: Lengths by name. A port with its own size uses ``<name>_height`` if present,
                otherwise ``height``. Missing axes have their default length.

        Raises:
            NystraError: A fixed axis gets another length, or an axis has no length.
        """
        requested = {
            axis: size[self.size_name(axis)] for axis in self.axes if self.size_name(axis) in size
        }
        own = {axis: self.lengths.get(axis, length) for axis, length in requested.items()}
        if own != requested:
            raise NystraError(
                f"{self.name!r} has the fixed size {size_text(own)}, got {size_text(requested)}: "
                "use the fixed size"
            )
        return tuple(self._length(axis, size) for axis in self.axes)

    def fix_lengths(self, size: Size) -> Port:
        """Return the port with every axis fixed to its length at a size."""
        lengths = dict(zip(self.axes, self.shape(size), strict=True))
        return replace(self, lengths=lengths)

    def _length(self, axis: str, size: Size) -> int:
        stated = size.get(self.size_name(axis), size.get(axis))
        default = AXES[axis].default if axis in AXES else 1
        length = self.lengths.get(axis, default if stated is None else stated)
        if length is None:
            raise NystraError(f"the {axis} of {self.name!r} has no fixed length: give one")
        return length


def key_ports(ports: Sequence[Port]) -> dict[str, Port]:
    """Return ports by role; conditions, and those that share a role, by name."""
    roles = [port.role for port in ports]
    named = {role for role in roles if role == CONDITION or roles.count(role) > 1}
    return {port.name if port.role in named else port.role: port for port in ports}


def image_size(height: int, width: int) -> dict[str, int]:
    """Return the size of an image by the names of its axes."""
    return {"height": height, "width": width}


def join_sides(sides: Iterable[object]) -> str:
    """Return ``1x3x64x64``: the sides of a shape."""
    return "x".join(map(str, sides))


def size_text(size: Size) -> str:
    """Return a size in words: ``64x80``."""
    return join_sides(size.values())


_LARGEST = 1e9
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)"
_RANGE = re.compile(rf"(?:({_NUMBER})\.\.)?({_NUMBER})", re.ASCII)


@dataclass(frozen=True)
class ValueRanges(Option):
    """The range of the input and that of the output, as a pair.

    A text says ``0..255``, or ``255`` with the same meaning; two of them, ``1,255``, if the output
    has another range than the input.
    """

    _expected: ClassVar[str] = (
        "LOW..HIGH such as 0..255 or -1..1, or two for input and output: 0..1,0..255"
    )
    _placeholder: ClassVar[str] = "LOW..HIGH"

    def read(self, name: str, text: str) -> tuple[Range, Range]:
        """Return the ranges of a text."""
        ranges = []
        for part in text.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                raise self.make_error(name, text)
            ranges.append((float(match[1] or 0), float(match[2])))
        return self._convert(name, ranges * 2 if len(ranges) == 1 else ranges)

    def show(self, value: tuple[Range, Range]) -> str:
        """Return ``0..255``."""
        texts = [f"{low:g}..{high:g}" for low, high in value]
        return texts[0] if texts[0] == texts[1] else ",".join(texts)

    def _convert(self, name: str, value: Any) -> tuple[Range, Range]:
        if isinstance(value, str):
            return self.read(name, value)
        if is_number(value):
            value = [[0, value]] * 2
        pairs = [tuple(pair) for pair in value if isinstance(pair, (list, tuple))]
        if len(pairs) != 2 or not all(map(_is_range, pairs)):
            raise self.make_error(name, value)
        return (
            (float(pairs[0][0]), float(pairs[0][1])),
            (float(pairs[1][0]), float(pairs[1][1])),
        )


def _is_range(pair: tuple[Any, ...]) -> bool:
    if len(pair) != 2 or not all(is_number(item) and abs(item) <= _LARGEST for item in pair):
        return False
    return bool(pair[0] < pair[1])
