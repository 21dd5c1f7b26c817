"""Engines and hosts that a model file is made for: one row per target.

Without a target a file accepts any size and runs wherever onnxruntime runs. Importing this module
imports neither torch nor onnx: the command line lists the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import NystraError
from ..core.lazy import Lazy

if TYPE_CHECKING:
    import onnx

    from .execute.editing import PassResult

TENSORRT = "tensorrt"


@dataclass(frozen=True)
class Target:
    """One row.

    Attributes:
        name: What ``--target`` takes.
        meaning: What the file is, for the help.
        precisions: Names of the supported transforms.
        finish: Returns a function that rewrites the complete graph, in place, in standard
            operators; its notes are warnings. None: the graph is kept.
        opsets: The oldest and newest opset of such a file; the oldest is the default.
        static: Whether it has one size.
        fused: Whether all exact attention is written as ONNX's operator ``Attention``.
    """

    name: str
    meaning: str
    precisions: tuple[str, ...]
    finish: Callable[[], Callable[[onnx.ModelProto], PassResult]] | None = None
    opsets: tuple[int, int] | None = None
    static: bool = False
    fused: bool = False


_PORTABLE: Lazy[Callable[[onnx.ModelProto], PassResult]] = Lazy(
    __package__, "graph.portable.rewriting", "make_portable"
)
_STANDARD: Lazy[Callable[[onnx.ModelProto], PassResult]] = Lazy(
    __package__, "graph.standard", "make_standard"
)

TARGETS = {
    row.name: row
    for row in (
        Target(
            TENSORRT,
            "for TensorRT only, with convolutions and attention in bf16 too (needs `precision` "
            "bf16)",
            ("bf16",),
        ),
        Target(
            "portable",
            "for other engines: standard operators of opset 18, one input size (needs `static`), "
            "at most four axes",
            ("fp32", "fp16"),
            _PORTABLE,
            (18, 18),
            static=True,
        ),
        Target(
            "standard",
            "for engines that fuse attention: standard operators, exact attention as ONNX's own "
            "Attention (opset 23 to 25)",
            ("fp32", "fp16", "bf16"),
            _STANDARD,
            (23, 25),
            fused=True,
        ),
    )
}
"""By name."""


def targets_help() -> str:
    """Return the meaning of the targets, as half a sentence each."""
    return "; ".join(f"{row.name}: {row.meaning}" for row in TARGETS.values())


def find_target(name: str | None, precision: str) -> Target | None:
    """Return the row of a target, or None if there is none.

    Args:
        name: Name of the target, or None.
        precision: Name of the transform.

    Raises:
        NystraError: It is unknown, or does not apply to the precision.
    """
    if name is None:
        return None
    if name not in TARGETS:
        raise NystraError(
            f"`target` {name!r:.40} is unknown: expected {', '.join(TARGETS)}; `nystra deploy` "
            "writes a page for browsers and folders for servers and other hosts"
        )
    row = TARGETS[name]
    if precision not in row.precisions:
        raise NystraError(
            f"`target` {name} does not apply to `precision` {precision}: it is for `precision` "
            f"{', '.join(row.precisions)}"
        )
    return row
