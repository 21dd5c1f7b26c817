"""The options of an export, for the command line and for callers of `export_model`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from ..core.errors import NystraError
from ..core.option import Option, Options, option
from ..core.option_kinds import (
    Folder,
    NamedChoice,
    Number,
    Switch,
    Text,
    parse_whole,
    require_count,
)
from ..core.ports.port import join_sides
from ..runtime.options import OVERWRITE
from .attention.as_trained.parameters import AsTrained
from .attention.plan import Plan
from .auto_options import AutoOptions
from .targets import TARGETS, targets_help
from .transforms import PRECISIONS, parameters_help

Functions = Literal["attached", "none", "inline"]


_MAX_VALUES = 1 << 30


@dataclass(frozen=True)
class Shape(Option):
    """The lengths of the axes of an input; in text ``1x3x64x64``."""

    _expected: ClassVar[str] = "lengths of 1 or more, such as 1x3x64x64"

    def read(self, name: str, text: str) -> tuple[int, ...]:
        """Return the shape in a text."""
        try:
            sides = tuple(map(parse_whole, text.split("x")))
            return self._convert(name, sides)
        except ValueError:
            raise self.make_error(name, text) from None

    def _convert(self, name: str, value: Any) -> tuple[int, ...]:
        is_sequence = isinstance(value, (tuple, list))
        integers = is_sequence and all(type(size) is int for size in value)
        if not integers or min(value, default=0) < 1:
            raise self.make_error(name, value)
        text = join_sides(value)
        require_count(name, text, math.prod(value), "values", _MAX_VALUES)
        return tuple(value)


OPSET = 20
"""Opset of the file of a network."""


@dataclass(frozen=True)
class ExportOptions(Options):
    """Options of an export.

    Attributes:
        plan: The mechanism of each site, or how to choose it after the network is loaded; default:
            attention as trained.
        hyper: Hyper-parameters that take precedence over the checkpoint's.
        suggest: Measure other mechanisms if full attention is kept in large windows.
        command: The command line, for the manifest.
    """

    plan: Plan | AutoOptions = field(default_factory=lambda: Plan(AsTrained()))
    hyper: Mapping[str, Any] = field(default_factory=dict)
    opset: int | None = option(
        Number(None, "ONNX opset of the file", 18, 25, default_text="20, or that of an ONNX file")
    )
    static: tuple[int, ...] | None = option(
        Shape(None, "fixed input shape", metavar="BxCxHxW", default_text="any size")
    )
    functions: Functions = option(
        NamedChoice(
            "attached",
            "bodies of the nystra nodes",
            ("attached", "none", "inline"),
            {
                "none": ("no_functions", "write no bodies: the file needs the operator library"),
                "inline": ("inline", "write standard operators only"),
            },
        )
    )
    precision: str = option(
        Text(
            "fp32",
            "precision of weights and activations; sums, norms, the residual stream, inputs and "
            "outputs stay float32; int8 needs `calibrate` and is for CPUs with VNNI"
            f"{parameters_help()}",
            metavar="|".join(PRECISIONS),
        )
    )
    target: str | None = option(
        Text(
            None,
            f"write the file for certain engines; {targets_help()}",
            metavar="|".join(TARGETS),
        )
    )
    calibrate: Path | None = option(
        Folder(
            None,
            "images to measure the accuracy drop on, and to calibrate int8 with",
            default_text="the shipped photographs, except for int8",
        )
    )
    min_psnr: float | None = option(
        Number(
            None,
            "fail if the mean PSNR of the images against full attention at the trained window is "
            "lower; also the limit for the mean of automatic plans, and for every image of int8 "
            "layers",
            0,
            real=True,
            above=True,
            metavar="DB",
        )
    )
    trace_limit: float = option(
        Number(
            60.0,
            "seconds of processor time after which a trace, its conversion to ONNX, or the search "
            "for attention is stopped",
            0,
            above=True,
            metavar="SECONDS",
        )
    )
    overwrite: bool = option(OVERWRITE, doc="replace existing files")
    keep: bool = option(Switch("keep the file if validation fails"))
    speed: bool = option(Switch("do not time the file", default=True))
    with_preprocessing: bool = option(
        Switch("for classifiers: resize, crop and normalize images of any size in the graph")
    )
    suggest: bool = False
    command: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.plan, (Plan, AutoOptions)):
            raise NystraError(
                f"plan: got {self.plan!r:.60}, expected a Plan or AutoOptions, such as "
                "`Plan(mechanism('full'))`; see docs/python.md"
            )
        super().__post_init__()
