"""A model into which mechanisms were written."""

from __future__ import annotations

from dataclasses import dataclass

import onnx


@dataclass(frozen=True)
class WrittenModel:
    """A model with nodes of nystra.

    Attributes:
        model: The model without bodies.
        notes: Other changes, one sentence each.
    """

    model: onnx.ModelProto
    notes: tuple[str, ...] = ()
