"""The table of serving targets: what ``nystra deploy`` writes a model file for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.lazy import Lazy
from ..core.option import Options


@dataclass(frozen=True)
class Target:
    """A row. The modules of a target are imported on use.

    Attributes:
        name: What ``nystra deploy`` calls it.
        summary: What is written, in half a sentence.
        options: Its options.
        write: (model file, folder, options) -> the folder that it wrote in there, whole or not at
            all; raises `NystraError` if the target cannot run the model with these options.
    """

    name: str
    summary: str
    options: Callable[[], type[Options]]
    write: Callable[[], Callable[[Path, Path, Any], Path]]


def _part(module: str, name: str) -> Lazy[Any]:
    return Lazy(__package__, module, name)


TARGETS = (
    Target(
        "triton",
        "a model repository of NVIDIA Triton",
        _part("triton.options", "TritonOptions"),
        _part("triton.repository", "write_repository"),
    ),
    Target(
        "vapoursynth",
        "a VapourSynth script for the plug-in vs-mlrt",
        _part("vapoursynth.options", "VapourSynthOptions"),
        _part("vapoursynth.folder", "write_script"),
    ),
    Target(
        "comfyui",
        "a ComfyUI node for the folder custom_nodes",
        _part("comfyui.options", "ComfyUIOptions"),
        _part("comfyui.folder", "write_node"),
    ),
    Target(
        "web",
        "a web page that restores images in the browser, for any static file server",
        _part("web.options", "WebOptions"),
        _part("web.folder", "write_page"),
    ),
)
