"""The metadata of a model file (its ``metadata_props``): all keys that nystra writes.

The key of a field is its name, with the prefix ``nystra.`` except for those of `_PLAIN`, which
other programs use too. No other module spells a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from .. import __version__
from .errors import NystraError
from .json_text import parse_json, quote, stable_json
from .plain_text import PLAIN_NAME, is_plain_line, is_plain_name
from .ports.listing import read_count, read_ports, read_range, write_ports
from .ports.port import AXES, Port
from .ports.preprocessing import Preprocessing, read_preprocessing, write_preprocessing

_PREFIX = "nystra."
_SCALARS = ("architecture", "scale", "input_channels", "output_channels", "license")
_TEXTS_OF_OTHERS = ("architecture", "license")
_PROVENANCE = ("version", "source_sha256", "psnr_vs_torch")

_LARGEST_SIDE = AXES["height"].largest
_LARGEST_SCALE = 64
_MAX_CHANNELS = 1 << 20
_MAX_BYTES = 1e12


def key_of(name: str) -> str:
    """Return the key of a field of `ModelMetadata` in a model file."""
    return name if name in _SCALARS else _PREFIX + name


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """The metadata of a model file; missing entries are None, or have the default below.

    Attributes:
        architecture: Name of the network; it and all other names are of `is_plain_name`.
        scale: Output pixels per input pixel and axis.
        input_channels: Channels of the input image.
        output_channels: Channels of the output image (of logits: classes).
        license: License of the weights.
        io: The ports; as they are read all their axes are free.
        version: Version of nystra that wrote the file; None: another program wrote it.
        task: A name of the table of tasks, such as ``restoration``.
        range: Lowest and highest value of the input and output image.
        size_multiple: The sides of the image are padded inside the network to multiples of this.
        size_minimum: The smallest height and width, in pixels.
        tiling: ``supported``, ``discouraged`` (tiles change the result) or ``internal`` (the model
            needs the whole image).
        window: Attention window in tokens, of any number of axes.
        preprocessing: How an image is prepared before it is passed to the file.
        precision: ``fp32``, ``fp16``, ``bf16``, ``int8`` or ``bf16-tensorrt`` (for TensorRT alone).
        precision_parameters: Parameters of the transform that differ from the defaults:
            ``block=32``.
        attention: The JSON of the plan, which is parsed by `attention_plan`.
        exact_layers: Modules that the transform of the file left in float32.
        tile_psnr: PSNR in dB of tiles against the whole image, by the side of the tiles in pixels,
            where tiles change the result; measured by the export on a photograph.
        quadratic_bytes: Bytes that attention takes over the square of the image's pixels, where
            it sees the whole image; else 0.
        source_sha256: SHA-256 of the checkpoint that the file was exported from.
        psnr_vs_torch: PSNR against PyTorch in dB, as rounded text, for display only.
    """

    architecture: str | None = None
    scale: int | None = None
    input_channels: int | None = None
    output_channels: int | None = None
    license: str | None = None
    io: tuple[Port, ...] = ()
    version: str | None = None
    task: str = "restoration"
    range: tuple[float, float] | None = None
    size_multiple: int | None = None
    size_minimum: int = 1
    tiling: str = "supported"
    window: tuple[int, ...] | None = None
    preprocessing: Preprocessing | None = None
    precision: str | None = None
    precision_parameters: str | None = None
    attention: str | None = None
    exact_layers: tuple[str, ...] = ()
    tile_psnr: tuple[tuple[int, float], ...] = ()
    quadratic_bytes: float = 0.0
    source_sha256: str | None = None
    psnr_vs_torch: str | None = None

    @classmethod
    def read(cls, entries: Mapping[str, str]) -> ModelMetadata:
        """Read the ``metadata_props`` of a file; unknown keys are ignored.

        So are `architecture` and `license` of another program's file if they are not of the form
        that nystra writes: such programs have texts of their own under these keys.

        Raises:
            NystraError: An entry cannot be read; the message names it, and the version of nystra
                that wrote it where it is newer than this one. The plan is not parsed here.
        """
        stated: dict[str, Any] = {}
        version = entries.get(key_of("version"))
        for name in _names():
            text = entries.get(key_of(name))
            if text is not None:
                where = f"the metadata entry {key_of(name)}"
                try:
                    stated[name] = _READERS[name](text, where)
                except NystraError as error:
                    if version is None and name in _TEXTS_OF_OTHERS:
                        continue
                    newer = newer_writer(version)
                    raise NystraError(f"{error}{newer}") from error
        return cls(**stated)

    def entries(self) -> dict[str, str]:
        """Return the ``metadata_props`` of a file; `read` returns an equal record of them."""
        stated = {name: getattr(self, name) for name in _names()}
        return {
            key_of(name): _WRITERS.get(name, str)(value)
            for name, value in stated.items()
            if value not in _OMITTED
        }

    def attention_plan(self) -> dict[str, Any]:
        """Return the plan as JSON; an empty one if the file has none.

        Raises:
            NystraError: It is not JSON, or no object.
        """
        if self.attention is None:
            return {}
        where = f"the metadata entry {key_of('attention')}"
        plan = parse_json(self.attention, where)
        if not isinstance(plan, dict):
            raise NystraError(f"{where} is not a plan: export the model again")
        return plan


def newer_writer(version: str | None) -> str:
    """Return what an error message adds if a newer nystra wrote the file.

    Args:
        version: Version of nystra in the file's metadata.

    Returns:
        A part of a sentence, or an empty text.
    """
    if version is None or _release(version) <= _release(__version__):
        return ""
    return f" (nystra {version[:40]} wrote the file, this is {__version__}: update nystra)"


def without_provenance(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the entries that decide what a model does with an image, not where it comes from.

    Raises:
        NystraError: The plan cannot be read.
    """
    left_out = {key_of(name) for name in _PROVENANCE}
    remaining = {key: value for key, value in entries.items() if key not in left_out}
    key = key_of("attention")
    if key in remaining:
        plan = ModelMetadata(attention=remaining[key]).attention_plan()
        plan.pop("source_sha256", None)
        remaining[key] = stable_json(plan).decode()
    return remaining


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; a text that is not a version sorts first."""
    match = re.match(r"\d{1,9}(\.\d{1,9}){0,3}", version)
    return tuple(map(int, match[0].split("."))) if match else ()


@cache
def _names() -> tuple[str, ...]:
    return tuple(each.name for each in fields(ModelMetadata))


def _name(text: str, where: str) -> str:
    if is_plain_name(text):
        return text
    raise NystraError(f"{where} is {quote(text)}, expected {PLAIN_NAME}: export the model again")


def _line(text: str, where: str) -> str:
    if is_plain_line(text):
        return text
    raise NystraError(
        f"{where} is {quote(text)}, expected one line of words without quotation marks: export the "
        "model again"
    )


def _json(text: str, where: str) -> str:
    """Return JSON that is parsed where it is needed."""
    return text


def _count(largest: int) -> Callable[[str, str], int]:
    def read(text: str, where: str) -> int:
        short = text.isascii() and text.isdigit() and len(text) <= len(str(largest))
        return read_count(where, int(text) if short else text, largest)

    return read


def _range(text: str, where: str) -> tuple[float, float]:
    return read_range(where, parse_json(text, where))


def _window(text: str, where: str) -> tuple[int, ...] | None:
    value = parse_json(text, where)
    if value is None:
        return None
    sides = [value, value] if isinstance(value, int) else value
    if not isinstance(sides, list) or not 1 <= len(sides) <= 3:
        raise NystraError(f"{where} is {text[:60]!r}, expected 1 to 3 sides")
    return tuple(read_count(where, side, _LARGEST_SIDE) for side in sides)


def _layers(text: str, where: str) -> tuple[str, ...]:
    layers = parse_json(text, where)
    if isinstance(layers, list) and all(isinstance(path, str) for path in layers):
        return tuple(layers)
    raise NystraError(
        f"{where} is {text[:80]!r}, expected a JSON list of modules: export the model again"
    )


def _tile_psnr(text: str, where: str) -> tuple[tuple[int, float], ...]:
    pairs = parse_json(text, where)
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise NystraError(f"{where} is {text[:60]!r}, expected a JSON list of [side, dB]")
    return tuple((read_count(where, side, _LARGEST_SIDE), float(psnr)) for side, psnr in pairs)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[1], int | float)


def _bytes(text: str, where: str) -> float:
    value = parse_json(text, where)
    if isinstance(value, int | float) and 0 <= value <= _MAX_BYTES:
        return float(value)
    raise NystraError(f"{where} is {text[:60]!r}, expected a number from 0 to {_MAX_BYTES:g}")


_READERS: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(("architecture", "version", "task", "tiling", "precision"), _name),
    **dict.fromkeys(("precision_parameters", "source_sha256", "psnr_vs_torch"), _name),
    "license": _line,
    "attention": _json,
    "scale": _count(_LARGEST_SCALE),
    "input_channels": _count(_MAX_CHANNELS),
    "output_channels": _count(_MAX_CHANNELS),
    "io": read_ports,
    "range": _range,
    "size_multiple": _count(_LARGEST_SIDE),
    "size_minimum": _count(_LARGEST_SIDE),
    "window": _window,
    "preprocessing": read_preprocessing,
    "exact_layers": _layers,
    "tile_psnr": _tile_psnr,
    "quadratic_bytes": _bytes,
}
"""Parser of every field: text and its origin -> value."""

_WRITERS: dict[str, Callable[[Any], str]] = {
    "io": write_ports,
    "range": json.dumps,
    "window": json.dumps,
    "preprocessing": write_preprocessing,
    "exact_layers": json.dumps,
    "tile_psnr": json.dumps,
    "quadratic_bytes": "{:.6g}".format,
}

_OMITTED: tuple[Any, ...] = (None, (), 0.0)
"""Values of a field whose entry is left out."""
