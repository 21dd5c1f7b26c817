"""How to export: what the command line and the callers of `export_model` choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..core.option import Option, Options, option
from ..core.option_kinds import Folder, NamedChoice, Number, Switch, Text
from ..runtime.options import OVERWRITE
from .attention.as_trained.parameters import AsTrained
from .attention.plan import Plan
from .auto_options import AutoOptions
from .targets import TARGETS, targets_help
from .transforms import PRECISIONS, parameters_help

Functions = Literal["attached", "none", "inline"]


@dataclass(frozen=True)
class Shape(Option):
    """The lengths of the axes of an input; a text says ``1x3x64x64``."""

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return "lengths of 1 or more, such as 1x3x64x64"

    def read(self, name: str, text: str) -> tuple[int, ...]:
        """Return the shape that a text says."""
        try:
            return self._accepted(name, tuple(int(part) for part in text.split("x")))
        except ValueError:
            raise self.refused(name, text) from None

    def _accepted(self, name: str, value: Any) -> tuple[int, ...]:
        whole = isinstance(value, (tuple, list)) and all(type(size) is int for size in value)
        if not whole or min(value, default=0) < 1:
            raise self.refused(name, value)
        return tuple(value)


@dataclass(frozen=True)
class ExportOptions(Options):
    """How to export.

    Attributes:
        plan: What to compute where, or how to find that out once the network is loaded; by
            default what it was trained with.
        hyper: Hyper-parameters that take precedence over the checkpoint's.
        suggest: Measure what others would do where full attention is kept in large windows.
        command: The command line, for the manifest.
    """

    plan: Plan | AutoOptions = field(default_factory=lambda: Plan(AsTrained()))
    hyper: Mapping[str, Any] = field(default_factory=dict)
    opset: int = option(Number(20, "of the file", 18, 20))
    static: tuple[int, ...] | None = option(
        Shape(None, "the only input shape", metavar="BxCxHxW", usual="any size")
    )
    functions: Functions = option(
        NamedChoice(
            "attached",
            "bodies of the nystra nodes",
            ("attached", "none", "inline"),
            {
                "none": ("no_functions", "no bodies: the file needs the library"),
                "inline": ("inline", "plain ONNX without the nystra domain"),
            },
        )
    )
    precision: str = option(
        Text(
            "fp32",
            "of weights and maps; sums, norms and the residual stream stay fp32, inputs and "
            "outputs float32; int8, which needs `calibrate`, is for CPUs with VNNI"
            f"{parameters_help()}",
            metavar="|".join(PRECISIONS),
        )
    )
    target: str | None = option(
        Text(
            None,
            "what the file is made for, where that is not pictures of any size in onnxruntime; "
            f"{targets_help()}",
            metavar="|".join(TARGETS),
        )
    )
    calibrate: Path | None = option(
        Folder(
            None,
            "your pictures to validate the plan on, and to measure the ranges of int8 on",
            usual="the shipped ones, which int8 does not do with",
        )
    )
    min_psnr: float | None = option(
        Number(
            None,
            "fail below this PSNR against full attention, or against the trained window; with an "
            "automatic plan what it has to keep; with int8 what layers return to float for too",
            0,
            real=True,
            above=True,
            metavar="DB",
        )
    )
    overwrite: bool = option(OVERWRITE, doc="replace the files of another export")
    keep: bool = option(Switch("keep the model of a failed validation"))
    speed: bool = option(Switch("do not time the file", default=True))
    with_preprocessing: bool = option(
        Switch(
            "of a classifier: the file resizes, crops and normalises pictures of any size itself"
        )
    )
    suggest: bool = False
    command: Sequence[str] = ()
