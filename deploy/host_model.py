"""A model file for a program that opens it by an onnxruntime of its own, without nystra.

Such a program takes one image and shows one, and knows standard operators alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.ports.port import SIDES
from ..runtime.model.external_data import external_files
from ..runtime.model.model_facts import ModelFacts
from ..runtime.model.onnx_header import read_onnx_header
from ..runtime.session import Session

_CHANNELS = (1, 3)
_TYPES = ("float32", "float16")


@dataclass(frozen=True)
class HostModel:
    """A model file of one image in and one image out.

    Attributes:
        path: The file.
        facts: The facts of its metadata.
        scale: Output pixels per input pixel and axis.
        channels: Channels of its input and of its output image, 1 or 3 each.
        ranges: Lowest and highest value of both.
    """

    path: Path
    facts: ModelFacts
    scale: int
    channels: tuple[int, int]
    ranges: tuple[tuple[float, float], tuple[float, float]]

    @classmethod
    def of(cls, session: Session) -> HostModel:
        """Return what is known of a file that has no `host_problems`."""
        facts = session.facts
        ports = (facts.inputs[0], facts.outputs[0])
        channels = [port.channels or 3 for port in ports]
        ranges = [port.range or (0.0, 1.0) for port in ports]
        return cls(
            session.path,
            facts,
            facts.scale or 1,
            (channels[0], channels[1]),
            (ranges[0], ranges[1]),
        )


def host_problems(session: Session) -> list[str]:
    """Return why a program with its own onnxruntime cannot use a file.

    It needs one 4-D floating input and output, one image at a time, of 1 or 3 channels; an
    output whose sides are whole multiples of the input's, weights in the file, and operators that
    are standard or have bodies.
    """
    problems = []
    header = read_onnx_header(session.path)
    for kind, tensors in (("takes", session.inputs), ("gives", session.outputs)):
        if len(tensors) != 1:
            names = ", ".join(tensor.name for tensor in tensors)
            problems.append(f"it {kind} {len(tensors)} tensors ({names}), expected one")
            continue
        tensor = tensors[0]
        if len(tensor.shape) != 4 or tensor.dtype not in _TYPES:
            shape = ", ".join(map(str, tensor.shape))
            problems.append(f"it {kind} {tensor.dtype} ({shape}), expected 4 axes of float32")
            continue
        if isinstance(tensor.shape[0], int) and tensor.shape[0] != 1:
            problems.append(f"it {kind} {tensor.shape[0]} images at once, expected one")
        if tensor.shape[1] not in _CHANNELS:
            problems.append(f"it {kind} {tensor.shape[1]} channels, expected 1 or 3")
    problems += _size_problems(session)
    if header.has_operators and not header.has_bodies:
        problems.append("its operators of nystra have no bodies: export without `no_functions`")
    if external_files(session.path):
        problems.append("its weights are in a data file, which such programs do not load")
    return problems


def _size_problems(session: Session) -> list[str]:
    facts = session.facts
    if facts.output_image is None or not set(SIDES) <= {*facts.output_image.axes}:
        return ["its output is not an image"]
    if facts.scale is None:
        return ["its metadata does not state the scale, which only files of nystra have"]
    return []
