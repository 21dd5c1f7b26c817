"""The ports of a model file: from its metadata, completed by its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import NystraError
from ...core.metadata import key_of
from ...core.ports.port import IMAGE_AXES, IMPLIED_RANGES, LOGITS_AXES, SIDES, UNKNOWN, Port

_MOST_CHANNELS = 16
_CHANNEL_NAMES = ("c", "channel", "channels")
"""How a small fixed axis, or a name, shows the channels of an image whose layout is not stated."""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        name: Its name in the graph.
        shape: A number for a fixed dimension, a name for a dynamic one, None if unnamed.
        dtype: The numpy name of its type, such as ``float32``.
    """

    name: str
    shape: tuple[int | str | None, ...]
    dtype: str

    @classmethod
    def of(cls, port: Port) -> TensorInfo:
        """Return the tensor of a port, with the names of its free axes."""
        lengths = (port.lengths.get(axis, port.size_name(axis)) for axis in port.axes)
        return cls(port.name, tuple(lengths), port.dtype)


def input_ports(tensors: Sequence[TensorInfo], listed: Mapping[str, Port]) -> tuple[Port, ...]:
    """Return the ports of a graph's inputs.

    If none is stated to be an image or the frames of a video, the only 4-D floating one is the
    image, or the only 4-D one of integers, or the only input if it is 3-D with 1 or 3 channels. A
    port whose sides differ from those of the first one has its own size.

    Raises:
        NystraError: A tensor has another number of axes than its layout.
    """
    ports = [_port(tensor, listed) for tensor in tensors]
    if not any(port.role in ("image", "frames") for port in ports):
        place = _image_among(ports)
        if place is not None and ports[place].role == UNKNOWN:
            ports[place] = replace(ports[place], role="image")
    sides = [_sides(tensor, port) for tensor, port in zip(tensors, ports, strict=True)]
    first = next((own for own in sides if own), None)
    return tuple(
        replace(port, own_size=bool(own) and own != first)
        for port, own in zip(ports, sides, strict=True)
    )


def output_ports(
    tensors: Sequence[TensorInfo], listed: Mapping[str, Port], image: Port | None = None
) -> tuple[Port, ...]:
    """Return the ports of a graph's outputs.

    The first one is the image if it is 4-D and nothing else is stated, or 3-D like the input.

    Args:
        tensors: The outputs.
        listed: The ports that the metadata states, by name.
        image: The image input, whose layout an output has that does not show its own.

    Raises:
        NystraError: A tensor has another number of axes than its layout.
    """
    like = IMAGE_AXES if image is None else image.axes
    ports = [_port(tensor, listed, like) for tensor in tensors]
    first = ports[0] if ports else None
    if (
        first is not None
        and first.role == UNKNOWN
        and set(first.axes)
        in (
            set(IMAGE_AXES),
            set(like) & set(IMAGE_AXES),
        )
    ):
        ports[0] = replace(first, role="picture")
    return tuple(ports)


def _port(
    tensor: TensorInfo, listed: Mapping[str, Port], like: tuple[str, ...] = IMAGE_AXES
) -> Port:
    rank = len(tensor.shape)
    port = listed.get(tensor.name)
    if port is None:
        port = Port(tensor.name, UNKNOWN, _guessed_axes(tensor.shape, like), range=None)
    if len(port.axes) != rank:
        raise NystraError(
            f"the metadata entry {key_of('io')} gives {tensor.name!r} the layout {port.layout}, "
            f"its shape is {tensor.shape}"
        )
    lengths = {
        axis: length
        for axis, length in zip(port.axes, tensor.shape, strict=True)
        if isinstance(length, int)
    }
    return replace(port, lengths=lengths, dtype=tensor.dtype)


def _guessed_axes(
    shape: tuple[int | str | None, ...], like: tuple[str, ...] = IMAGE_AXES
) -> tuple[str, ...]:
    """Return the axes of an unknown tensor: batch first, those of an image last.

    The channels of an image are before its sides or after them: where the length is small, or as in
    ``like``.
    """
    rank = len(shape)
    if rank == len(LOGITS_AXES):
        return LOGITS_AXES
    last = IMAGE_AXES[-3:] if rank >= len(IMAGE_AXES) - 1 else ()
    if rank in (3, 4):
        before, after = _holds_channels(shape[-3]), _holds_channels(shape[-1])
        if (after and not before) or (after == before and like[-1] == "channels"):
            last = (*SIDES, "channels")
    first = ("batch", *(f"axis{place}" for place in range(1, rank)))
    return (*first[: rank - len(last)], *last)


def _holds_channels(length: int | str | None) -> bool:
    if isinstance(length, int):
        return length <= _MOST_CHANNELS
    return length is not None and length.lower() in _CHANNEL_NAMES


def _image_among(ports: Sequence[Port]) -> int | None:
    """Return the place of the port that is taken for the image, or None."""
    whole = [place for place, port in enumerate(ports) if len(port.axes) == len(IMAGE_AXES)]
    floating = [place for place in whole if ports[place].dtype.startswith(("float", "bfloat"))]
    integer = [place for place in whole if ports[place].dtype in IMPLIED_RANGES]
    for places in (floating, integer):
        if places:
            return places[0] if len(places) == 1 else None
    only = ports[0] if len(ports) == 1 else None
    is_image = only is not None and only.axes != LOGITS_AXES and only.channels in (1, 3)
    return 0 if is_image else None


def _sides(tensor: TensorInfo, port: Port) -> tuple[int | str | None, ...]:
    return tuple(
        length for axis, length in zip(port.axes, tensor.shape, strict=True) if axis in SIDES
    )
