"""What a model file says about itself: its ports and the facts in its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata, key_of
from ...core.ports.port import (
    IMAGE_AXES,
    IMPLIED_RANGES,
    LOGITS_AXES,
    SIDES,
    UNIT,
    UNKNOWN,
    Port,
    Range,
)
from ...core.ports.preprocessing import Preprocessing

_MAX_CHANNELS = 16
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
        port = Port(tensor.name, UNKNOWN, _guess_axes(tensor.shape, like), range=None)
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


def _guess_axes(
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
        return length <= _MAX_CHANNELS
    return length is not None and length.lower() in _CHANNEL_NAMES


def _image_among(ports: Sequence[Port]) -> int | None:
    maps = [place for place, port in enumerate(ports) if len(port.axes) == len(IMAGE_AXES)]
    floating = [place for place in maps if ports[place].dtype.startswith(("float", "bfloat"))]
    integer = [place for place in maps if ports[place].dtype in IMPLIED_RANGES]
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


@dataclass(frozen=True)
class ModelFacts:
    """The facts in an exported file's metadata; missing ones have the defaults below.

    Attributes:
        architecture: Name of the network, or None for a file without nystra's metadata.
        task: A name of the table of tasks, such as ``restoration``.
        scale: Output pixels per input pixel and axis, or None if unknown.
        inputs: Its inputs, in the order of the graph.
        outputs: Its outputs; the first one is the result.
        size_minimum: The smallest height and width, in pixels.
        tiling: ``supported``, ``discouraged`` (tiles change the result) or ``internal`` (the model
            needs the whole image).
        tile_psnr: PSNR in dB of tiles against the whole image, by the side of the tiles in pixels,
            if the export measured it.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``bf16-tensorrt`` (for TensorRT only).
        window: Attention window in tokens, of any number of axes, or None.
        license: License of the weights, or None.
        quadratic_bytes: Bytes of attention per squared number of pixels, if it spans the whole
            image; otherwise 0.
        preprocessing: How an image becomes the input, or None.
        foreign: The file was not written by nystra.
    """

    architecture: str | None = None
    task: str = "restoration"
    scale: int | None = None
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    size_minimum: int = 1
    tiling: str = "supported"
    tile_psnr: tuple[tuple[int, float], ...] = ()
    precision: str | None = None
    window: tuple[int, ...] | None = None
    license: str | None = None
    quadratic_bytes: float = 0.0
    preprocessing: Preprocessing | None = None
    foreign: bool = True

    def input(self, role: str) -> Port | None:
        """Return the first input of a role, or None."""
        return next((port for port in self.inputs if port.role == role), None)

    @property
    def image(self) -> Port | None:
        """The image input, or None."""
        return self.input("image")

    @property
    def output_image(self) -> Port | None:
        """The output with the role of an image, otherwise the first one."""
        named = (port for port in self.outputs if port.role == "picture")
        return next(named, self.outputs[0] if self.outputs else None)

    @property
    def sides(self) -> dict[str, int] | None:
        """The fixed height and width, or None if they are free."""
        sizes = (port.sides for port in self.inputs if not port.own_size)
        return next((sides for sides in sizes if sides is not None), None)


def parse_facts(
    metadata: Mapping[str, str],
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    ranges: tuple[Range, Range] | None = None,
) -> ModelFacts:
    """Read the facts from a file's metadata and complete them from its tensors.

    Args:
        metadata: The file's ``metadata_props``.
        inputs: The graph's inputs; see `input_ports` for which one is the image.
        outputs: The graph's outputs; the first one is the image.
        ranges: The ranges of input and output image, which precede those of the file.

    Raises:
        NystraError: A metadata entry cannot be read; the message names it.
    """
    stated = ModelMetadata.read(metadata)
    listed = {port.name: port for port in stated.io}
    of_input, of_output = ranges or (None, None)
    inputs_stated = [_complete(stated, port, of_input) for port in input_ports(inputs, listed)]
    image = next((port for port in inputs_stated if port.role == "image"), None)
    outputs_stated = output_ports(outputs, listed, image)
    return ModelFacts(
        architecture=stated.architecture,
        task=stated.task,
        scale=stated.scale,
        inputs=tuple(inputs_stated),
        outputs=tuple(_complete(stated, port, of_output) for port in outputs_stated),
        size_minimum=stated.size_minimum,
        tiling=stated.tiling,
        tile_psnr=stated.tile_psnr,
        precision=stated.precision,
        window=stated.window,
        license=stated.license,
        quadratic_bytes=stated.quadratic_bytes,
        preprocessing=stated.preprocessing,
        foreign=stated.version is None,
    )


def _complete(stated: ModelMetadata, port: Port, override: Range | None) -> Port:
    """Add the entries on input and output image, which must agree with their ports.

    A given range precedes that of the file. The range of an image in another program's file that
    states none is None: it is measured.

    Raises:
        NystraError: They contradict the listing of ports or the graph.
    """
    if override is not None and port.role in ("image", "picture", "frames", "reference"):
        port = replace(port, range=override)
    if port.role not in ("image", "picture"):
        return port
    image = port.role == "image"
    value_range = port.range or IMPLIED_RANGES.get(port.dtype)
    if override is None and stated.range is not None:
        value_range = stated.range
        _agree("range", value_range, port.range or value_range, port)
    if value_range is None and stated.version is not None:
        value_range = UNIT
    name = "input_channels" if image else "output_channels"
    lengths = dict(port.lengths)
    channels: int | None = getattr(stated, name)
    if channels is not None:
        _agree(name, channels, lengths.setdefault("channels", channels), port)
    multiple = port.multiple
    if image and stated.size_multiple is not None:
        multiple = stated.size_multiple
        _agree("size_multiple", multiple, max(port.multiple, multiple), port)
    return replace(port, range=value_range, lengths=lengths, multiple=multiple)


def _agree(name: str, stated: object, own: object, port: Port) -> None:
    if stated != own:
        raise NystraError(
            f"the metadata entry {key_of(name)} says {stated}, but {port.name!r} has {own}: the "
            "file's metadata was changed; export it again"
        )
