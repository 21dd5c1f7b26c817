"""The effect of an export's target on its other options."""

from __future__ import annotations

from dataclasses import replace

from ...core.errors import NystraError
from ..options import ExportOptions
from ..targets import Target


def for_target(options: ExportOptions, target: Target | None, file_opset: int = 0) -> ExportOptions:
    """Return the options with those that the target implies.

    Args:
        options: The options.
        target: The target, or None.
        file_opset: Opset of the ONNX file that is exported; 0 for other sources.

    Raises:
        NystraError: One of them contradicts it.
    """
    if target is None or target.finish is None:
        return options
    if target.static and options.static is None:
        raise NystraError(
            f"`target` {target.name} needs a fixed size: give `static`, such as 1x3x64x64; "
            "see docs/engines.md"
        )
    if options.functions == "none":
        raise NystraError(
            f"`target` {target.name} is for engines without the operator library: omit "
            "`no_functions`; see docs/engines.md"
        )
    opset = _opset(options, target, file_opset)
    return replace(options, functions="inline", opset=opset)


def _opset(options: ExportOptions, target: Target, file_opset: int) -> int | None:
    if target.opsets is None:
        return options.opset
    oldest, newest = target.opsets
    if options.opset is None:
        return min(max(oldest, file_opset), newest)
    if not oldest <= options.opset <= newest:
        has = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
        raise NystraError(f"`target` {target.name} has opset {has}: omit `opset`")
    return options.opset
