"""What ``nystra validate --layerwise`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .console import echo, print_table

if TYPE_CHECKING:
    from ..export.validate.layer_report import LayerDifference, LayerReport


def print_layers(report: LayerReport) -> None:
    """Print for each size the first layer beyond its limit, or the one nearest to it."""
    from ..runtime.checking.validation import sides_text

    rows = [("size", "layers", "depart", "layer", "max", "allowed", "mean", "PSNR")]
    for case in report.cases:
        size = sides_text(case.shapes)
        if case.skipped:
            rows.append((size, "-", "-", f"not compared: {case.skipped}", *("-",) * 4))
            continue
        layer = (case.departing or sorted(case.layers, key=_nearness, reverse=True))[0]
        counts = (size, str(len(case.layers)), str(len(case.departing)))
        rows.append(
            (
                *counts,
                layer.tensor,
                f"{layer.max_abs:.1e}",
                f"{layer.allowed:.1e}",
                f"{layer.mean_abs:.1e}",
                f"{layer.psnr:.1f} dB",
            )
        )
    print_table(rows)
    echo(f"reference: {report.reference}")
    echo(f"against:   {report.candidate}")
    if report.first is None:
        echo("no layer exceeds its tolerance; the closest one is shown")
        return
    echo(f"first difference: {describe(report.first)}: {report.first.finding}")


def describe(layer: LayerDifference) -> str:
    """Return node, operator and tensor of a layer in words."""
    return f"node {layer.node or '(no name)'} ({layer.operator}), output {layer.tensor}"


def _nearness(layer: LayerDifference) -> float:
    return layer.max_abs / layer.allowed if layer.allowed else layer.max_abs
