"""The options of a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...core.option import Options, option
from ...core.option_kinds import File
from ...runtime.options import OVERWRITE
from .runtime_files import VERSION


@dataclass(frozen=True)
class WebOptions(Options):
    """Options of a web page."""

    onnxruntime_web: Path | None = option(
        File(
            None,
            f"required: onnxruntime-web {VERSION}, as the .tgz file of npm pack or an unpacked "
            "package such as node_modules/onnxruntime-web",
            metavar="FILE|FOLDER",
        )
    )
    overwrite: bool = option(OVERWRITE)
