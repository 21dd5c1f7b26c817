"""The ports of a model file: from its metadata, completed by its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import NystraError
from ...core.metadata import key_of
from ...core.ports.port import IMAGE_AXES, LOGITS_AXES, SIDES, UNKNOWN, Port


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
    image. A port whose sides differ from those of the first one has its own size.

    Raises:
        NystraError: A tensor has another number of axes than its layout.
    """
    ports = [_port(tensor, listed) for tensor in tensors]
    if not any(port.role in ("image", "frames") for port in ports):
        images = [place for place, tensor in enumerate(tensors) if _looks_like_image(tensor)]
        if len(images) == 1 and ports[images[0]].role == UNKNOWN:
            ports[images[0]] = replace(ports[images[0]], role="image")
    sides = [_sides(tensor, port) for tensor, port in zip(tensors, ports, strict=True)]
    first = next((own for own in sides if own), None)
    return tuple(
        replace(port, own_size=bool(own) and own != first)
        for port, own in zip(ports, sides, strict=True)
    )


def output_ports(tensors: Sequence[TensorInfo], listed: Mapping[str, Port]) -> tuple[Port, ...]:
    """Return the ports of a graph's outputs.

    The first one is the image if it is 4-D and nothing else is stated.

    Raises:
        NystraError: A tensor has another number of axes than its layout.
    """
    ports = [_port(tensor, listed) for tensor in tensors]
    first = ports[0] if ports else None
    if first is not None and first.role == UNKNOWN and first.axes == IMAGE_AXES:
        ports[0] = replace(first, role="picture")
    return tuple(ports)


def _port(tensor: TensorInfo, listed: Mapping[str, Port]) -> Port:
    rank = len(tensor.shape)
    port = listed.get(tensor.name) or Port(tensor.name, UNKNOWN, _guessed_axes(rank), range=None)
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


def _guessed_axes(rank: int) -> tuple[str, ...]:
    """Return the axes of an unknown tensor: batch first, those of an image last."""
    if rank == len(LOGITS_AXES):
        return LOGITS_AXES
    last = IMAGE_AXES[-3:] if rank >= len(IMAGE_AXES) - 1 else ()
    first = ("batch", *(f"axis{place}" for place in range(1, rank)))
    return (*first[: rank - len(last)], *last)


def _looks_like_image(tensor: TensorInfo) -> bool:
    return len(tensor.shape) == 4 and tensor.dtype.startswith(("float", "bfloat"))


def _sides(tensor: TensorInfo, port: Port) -> tuple[int | str | None, ...]:
    return tuple(
        length for axis, length in zip(port.axes, tensor.shape, strict=True) if axis in SIDES
    )
