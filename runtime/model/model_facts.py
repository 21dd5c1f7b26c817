"""What a model file says about itself: its tensors and the facts in its metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...plugins.errors import NystraError
from ...plugins.strict_json import parse_json

_LARGEST = 1e9
"""Of a number in the metadata."""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        name: Its name in the graph.
        shape: A number for a fixed dimension, a name for a dynamic one, None where unnamed.
        dtype: The numpy name of its type, such as ``float32``.
    """

    name: str
    shape: tuple[int | str | None, ...]
    dtype: str

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """Height and width in pixels of an NCHW tensor whose size is fixed, else None."""
        if len(self.shape) != 4:
            return None
        height, width = self.shape[2:]
        return (height, width) if isinstance(height, int) and isinstance(width, int) else None


@dataclass(frozen=True)
class ModelFacts:
    """The facts an exported file carries; where it says nothing, the defaults below.

    Attributes:
        architecture: Name of the network, or None for a file without nystra's metadata.
        task: ``restoration``, ``video``, ``inpainting`` or ``classification``.
        scale: Output pixels per input pixel and axis, or None if unknown.
        input_channels: Channels of the image input, or None if unknown.
        output_channels: Channels of the picture output, or None if unknown.
        range: Lowest and highest value of the image input.
        output_range: The same of the picture output.
        size_multiple: Sizes are padded inside the graph to a multiple of this, in pixels.
        size_minimum: The smallest height and width, in pixels.
        tiling: ``supported``, ``discouraged`` or ``internal`` (the model must see the whole).
        precision: ``fp32``, ``fp16``, ``bf16`` or ``bf16-tensorrt`` (for TensorRT alone).
        image_input: Name of the input that takes the image.
        picture_output: Name of the output that is the picture.
        window: Attention window in pixels, or None.
        license: License of the weights, or None.
        quadratic_bytes: Bytes that attention takes over the square of the picture's pixels, where
            it sees the whole picture; else 0.
        io: The entries of ``nystra.io``: name, role, layout, range, dtype, multiple.
        foreign: The file was not written by nystra.
    """

    architecture: str | None = None
    task: str = "restoration"
    scale: int | None = None
    input_channels: int | None = None
    output_channels: int | None = None
    range: tuple[float, float] = (0.0, 1.0)
    output_range: tuple[float, float] = (0.0, 1.0)
    size_multiple: int = 1
    size_minimum: int = 1
    tiling: str = "supported"
    precision: str | None = None
    image_input: str | None = None
    picture_output: str | None = None
    window: tuple[int, int] | None = None
    license: str | None = None
    quadratic_bytes: float = 0.0
    io: tuple[dict[str, Any], ...] = ()
    foreign: bool = True


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
    io = _json(metadata, "nystra.io", [])
    if not isinstance(io, list) or not all(isinstance(entry, dict) for entry in io):
        raise NystraError(f"the metadata entry nystra.io is {io!r}, expected a list of objects")
    image = _by_role(io, "image", inputs) or _only_image(inputs)
    picture = _by_role(io, "picture", outputs) or (outputs[0] if outputs else None)
    value_range = _range("nystra.range", _json(metadata, "nystra.range", None), (0.0, 1.0))
    by_name = {entry.get("name"): entry for entry in io}
    output_range = _range(
        "nystra.io",
        by_name.get(picture.name if picture else None, {}).get("range"),
        value_range,
    )
    return ModelFacts(
        architecture=metadata.get("architecture"),
        task=metadata.get("nystra.task", "restoration"),
        scale=_integer(metadata, "scale"),
        input_channels=_integer(metadata, "input_channels") or _channels(image),
        output_channels=_integer(metadata, "output_channels") or _channels(picture),
        range=value_range,
        output_range=output_range,
        size_multiple=_integer(metadata, "nystra.size_multiple") or 1,
        size_minimum=_integer(metadata, "nystra.size_minimum") or 1,
        tiling=metadata.get("nystra.tiling", "supported"),
        precision=metadata.get("nystra.precision"),
        image_input=image.name if image else None,
        picture_output=picture.name if picture else None,
        window=_window(metadata),
        license=metadata.get("license"),
        quadratic_bytes=_number(metadata, "nystra.quadratic_bytes"),
        io=tuple(io),
        foreign="nystra.version" not in metadata,
    )


def _by_role(
    io: list[dict[str, Any]], role: str, tensors: Sequence[TensorInfo]
) -> TensorInfo | None:
    names = [entry.get("name") for entry in io if entry.get("role") == role]
    return next((tensor for tensor in tensors if tensor.name in names), None)


def _only_image(inputs: Sequence[TensorInfo]) -> TensorInfo | None:
    images = [t for t in inputs if len(t.shape) == 4 and t.dtype.startswith(("float", "bfloat"))]
    return images[0] if len(images) == 1 else None


def _channels(tensor: TensorInfo | None) -> int | None:
    if tensor is None or len(tensor.shape) != 4:
        return None
    channels = tensor.shape[1]
    return channels if isinstance(channels, int) else None


def _json(metadata: Mapping[str, str], key: str, default: Any) -> Any:
    if key not in metadata:
        return default
    return parse_json(metadata[key], f"the metadata entry {key}")


def _integer(metadata: Mapping[str, str], key: str) -> int | None:
    if key not in metadata:
        return None
    digits = metadata[key]
    if not re.fullmatch("[0-9]{1,9}", digits) or int(digits) < 1:
        raise NystraError(
            f"the metadata entry {key} is {digits[:80]!r}, expected a whole number from 1 on"
        )
    return int(digits)


def _number(metadata: Mapping[str, str], key: str) -> float:
    value = _json(metadata, key, 0.0)
    if _is_number(value) and 0 <= value <= _LARGEST:
        return float(value)
    raise NystraError(
        f"the metadata entry {key} is {metadata[key][:80]!r}, expected a number from 0 to "
        f"{_LARGEST:.0e}"
    )


def _range(key: str, value: Any, default: tuple[float, float]) -> tuple[float, float]:
    if value is None:
        return default
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(map(_is_number, value))
        and -_LARGEST <= value[0] < value[1] <= _LARGEST
    ):
        return float(value[0]), float(value[1])
    raise NystraError(
        f"the metadata entry {key} has the range {value!r}, expected [low, high]: two "
        f"numbers, the lower first, none beyond {_LARGEST:.0e}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _window(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    value = _json(metadata, "nystra.window", None)
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) == 2 and all(type(side) is int and 0 < side <= _LARGEST for side in sides):
        return sides[0], sides[1]
    return None
