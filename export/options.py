"""How to export: what the command line and the callers of `export_model` choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .attention.as_trained.parameters import AsTrained
from .attention.plan import Plan
from .auto.options import AutoOptions

OPSETS = (18, 19, 20)
Functions = Literal["attached", "none", "inline"]


@dataclass(frozen=True)
class ExportOptions:
    """How to export.

    Attributes:
        plan: What to compute where, or how to find that out once the network is loaded; by
            default what it was trained with.
        hyper: Hyper-parameters that take precedence over the checkpoint's.
        opset: 18, 19 or 20.
        static: The only shape of the first input, or None for any batch, height and width.
        functions: Nystra nodes with bodies ``attached``, with ``none``, or bodies ``inline``.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``int8``; inputs and outputs stay float32.
        target: None for every program, or ``tensorrt``: a bf16 file that TensorRT alone takes.
        calibrate: Folder of pictures to validate the plan on, and to measure the ranges of int8 on;
            None takes the shipped ones, which int8 does not do with.
        min_psnr: Decibels against full attention, and against the trained window where that was
            changed, below which the validation fails; None warns only. In int8 layers return to
            float32 to keep it against the float32 file; None is then what `measures` has.
        overwrite: Replace files of another export, or that are not of an export.
        keep: Keep the model of a failed validation as ``<stem>.failed.onnx``.
        speed: Time the file against the full-attention file.
        with_preprocessing: The file takes pictures of any size and prepares them itself.
        suggest: Measure what others would do where full attention is kept in large windows.
        command: The command line, for the manifest.
    """

    plan: Plan | AutoOptions = field(default_factory=lambda: Plan(AsTrained()))
    hyper: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 20
    static: tuple[int, ...] | None = None
    functions: Functions = "attached"
    precision: str = "fp32"
    target: str | None = None
    calibrate: Path | None = None
    min_psnr: float | None = None
    overwrite: bool = False
    keep: bool = False
    speed: bool = True
    with_preprocessing: bool = False
    suggest: bool = False
    command: Sequence[str] = ()
