"""What a model file says about itself: its ports and the facts in its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata, key_of
from ...core.ports.port import Port
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
    metadata: Mapping[str, str], inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> ModelFacts:
    """Read the facts from a file's metadata and complete them from its tensors.

    Args:
        metadata: The file's ``metadata_props``.
        inputs: The graph's inputs; a 4-D floating one, if it is the only one, is the image.
        outputs: The graph's outputs; the first one is the image.

    Raises:
        NystraError: A metadata entry cannot be read; the message names it.
    """
    stated = ModelMetadata.read(metadata)
    listed = {port.name: port for port in stated.io}
    return ModelFacts(
        architecture=stated.architecture,
        task=stated.task,
        scale=stated.scale,
        inputs=tuple(_completed(stated, port) for port in input_ports(inputs, listed)),
        outputs=tuple(_completed(stated, port) for port in output_ports(outputs, listed)),
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


def _completed(stated: ModelMetadata, port: Port) -> Port:
    """Add the entries on input and output image, which must agree with their ports.

    Raises:
        NystraError: They contradict the listing of ports or the graph.
    """
    if port.role not in ("image", "picture"):
        return port
    image = port.role == "image"
    value_range = port.range or (0.0, 1.0)
    if stated.range is not None:
        value_range = stated.range
        _agree("range", value_range, port.range or value_range, port)
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
