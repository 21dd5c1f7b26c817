"""What a model file says about itself: its ports and the facts in its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata, key_of
from ...core.ports.port import IMPLIED_RANGES, UNIT, Port, Range
from ...core.ports.preprocessing import Preprocessing
from .model_ports import TensorInfo, input_ports, output_ports


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
        known = (port.sides for port in self.inputs if not port.own_size)
        return next((sides for sides in known if sides is not None), None)


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
    taken = [_completed(stated, port, of_input) for port in input_ports(inputs, listed)]
    image = next((port for port in taken if port.role == "image"), None)
    given = output_ports(outputs, listed, image)
    return ModelFacts(
        architecture=stated.architecture,
        task=stated.task,
        scale=stated.scale,
        inputs=tuple(taken),
        outputs=tuple(_completed(stated, port, of_output) for port in given),
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


def _completed(stated: ModelMetadata, port: Port, given: Range | None) -> Port:
    """Add the entries on input and output image, which must agree with their ports.

    A given range precedes that of the file. The range of an image in another program's file that
    states none is None: it is measured.

    Raises:
        NystraError: They contradict the listing of ports or the graph.
    """
    if given is not None and port.role in ("image", "picture", "frames", "reference"):
        port = replace(port, range=given)
    if port.role not in ("image", "picture"):
        return port
    image = port.role == "image"
    value_range = port.range or IMPLIED_RANGES.get(port.dtype)
    if given is None and stated.range is not None:
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
