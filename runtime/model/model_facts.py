"""What a model file says about itself: its ports and the facts in its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import NystraError
from ...core.ports.listing import KEY, read_count, read_ports, read_range
from ...core.ports.port import AXES, Port
from ...core.ports.preprocessing import KEY as PREPROCESSING
from ...core.ports.preprocessing import Preprocessing, read_preprocessing
from ...core.strict_json import parse_json
from .model_ports import TensorInfo, input_ports, output_ports

_LARGEST_SIDE = AXES["height"].largest
_LARGEST_SCALE = 64
_MOST_CHANNELS = 1 << 20
_MOST_BYTES = 1e12


@dataclass(frozen=True)
class ModelFacts:
    """The facts an exported file carries; where it says nothing, the defaults below.

    Attributes:
        architecture: Name of the network, or None for a file without nystra's metadata.
        task: A name of the table of tasks, such as ``restoration``.
        scale: Output pixels per input pixel and axis, or None if unknown.
        inputs: What it takes, in the order of the graph.
        outputs: What it gives; the first one is the result.
        size_minimum: The smallest height and width, in pixels.
        tiling: ``supported``, ``discouraged`` or ``internal`` (the model must see the whole).
        precision: ``fp32``, ``fp16``, ``bf16`` or ``bf16-tensorrt`` (for TensorRT alone).
        window: Attention window in tokens, of any number of axes, or None.
        license: License of the weights, or None.
        quadratic_bytes: Bytes that attention takes over the square of the picture's pixels, where
            it sees the whole picture; else 0.
        preprocessing: What becomes of a picture before the file takes it, or None.
        foreign: The file was not written by nystra.
    """

    architecture: str | None = None
    task: str = "restoration"
    scale: int | None = None
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    size_minimum: int = 1
    tiling: str = "supported"
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
        """The input that takes the image, or None."""
        return self.input("image")

    @property
    def picture(self) -> Port | None:
        """The output that is the picture, or else the first one."""
        named = (port for port in self.outputs if port.role == "picture")
        return next(named, self.outputs[0] if self.outputs else None)

    @property
    def sides(self) -> dict[str, int] | None:
        """Height and width that the file takes alone, or None where they are free."""
        known = (port.sides for port in self.inputs if not port.own_size)
        return next((sides for sides in known if sides is not None), None)


def parse_facts(
    metadata: Mapping[str, str], inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> ModelFacts:
    """Read the facts from a file's metadata and complete them from its tensors.

    Args:
        metadata: The file's ``metadata_props``.
        inputs: The graph's inputs; a 4-D floating one, if it is the only one, is the image.
        outputs: The graph's outputs; the first one is the picture.

    Raises:
        NystraError: A metadata entry cannot be read; the message names it.
    """
    listed = read_ports(metadata[KEY]) if KEY in metadata else {}
    stated = metadata.get(PREPROCESSING)
    return ModelFacts(
        architecture=metadata.get("architecture"),
        task=metadata.get("nystra.task", "restoration"),
        scale=_integer(metadata, "scale", _LARGEST_SCALE),
        inputs=tuple(_completed(metadata, port) for port in input_ports(inputs, listed)),
        outputs=tuple(_completed(metadata, port) for port in output_ports(outputs, listed)),
        size_minimum=_integer(metadata, "nystra.size_minimum", _LARGEST_SIDE) or 1,
        tiling=metadata.get("nystra.tiling", "supported"),
        precision=metadata.get("nystra.precision"),
        window=_window(metadata),
        license=metadata.get("license"),
        quadratic_bytes=_bytes(metadata),
        preprocessing=None if stated is None else read_preprocessing(stated),
        foreign="nystra.version" not in metadata,
    )


def _completed(metadata: Mapping[str, str], port: Port) -> Port:
    """Add what plain entries say of the image and the picture; both say the same, or one does.

    Raises:
        NystraError: They contradict what ``nystra.io`` or the graph says.
    """
    if port.role not in ("image", "picture"):
        return port
    image = port.role == "image"
    stated = _json(metadata, "nystra.range", None)
    value_range = port.range or (0.0, 1.0)
    if stated is not None:
        value_range = read_range("nystra.range", stated)
        _agree("nystra.range", value_range, port.range or value_range, port)
    key = "input_channels" if image else "output_channels"
    lengths = dict(port.lengths)
    channels = _integer(metadata, key, _MOST_CHANNELS)
    if channels is not None:
        _agree(key, channels, lengths.setdefault("channels", channels), port)
    multiple = port.multiple
    if image and "nystra.size_multiple" in metadata:
        multiple = _integer(metadata, "nystra.size_multiple", _LARGEST_SIDE) or 1
        _agree("nystra.size_multiple", multiple, max(port.multiple, multiple), port)
    return replace(port, range=value_range, lengths=lengths, multiple=multiple)


def _agree(key: str, stated: object, own: object, port: Port) -> None:
    if stated != own:
        raise NystraError(
            f"the metadata entry {key} says {stated}, but {port.name!r} has {own}: the file's "
            "metadata was changed; export it again"
        )


def _json(metadata: Mapping[str, str], key: str, default: Any) -> Any:
    if key not in metadata:
        return default
    return parse_json(metadata[key], f"the metadata entry {key}")


def _integer(metadata: Mapping[str, str], key: str, largest: int) -> int | None:
    if key not in metadata:
        return None
    text = metadata[key]
    short = text.isascii() and text.isdigit() and len(text) <= len(str(largest))
    return read_count(key, int(text) if short else text, largest)


def _bytes(metadata: Mapping[str, str]) -> float:
    key = "nystra.quadratic_bytes"
    value = _json(metadata, key, 0.0)
    if isinstance(value, int | float) and 0 <= value <= _MOST_BYTES:
        return float(value)
    raise NystraError(
        f"the metadata entry {key} is {metadata[key][:60]!r}, expected a number from 0 to "
        f"{_MOST_BYTES:g}"
    )


def _window(metadata: Mapping[str, str]) -> tuple[int, ...] | None:
    key = "nystra.window"
    value = _json(metadata, key, None)
    if value is None:
        return None
    sides = [value, value] if isinstance(value, int) else value
    if not isinstance(sides, list) or not 1 <= len(sides) <= 3:
        raise NystraError(
            f"the metadata entry {key} is {metadata[key][:60]!r}, expected 1 to 3 sides"
        )
    return tuple(read_count(key, side, _LARGEST_SIDE) for side in sides)
