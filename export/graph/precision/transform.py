"""The low float types as transforms of a graph."""

from __future__ import annotations

import onnx

from ...transforms import TransformInputs
from .lowering import Lowered, lower_model
from .policy import policy_for


def lower(
    precision: str, target: str | None, model: onnx.ModelProto, inputs: TransformInputs
) -> Lowered:
    """Lower the nodes that are safe in a precision, in place."""
    policy = policy_for(inputs.architecture, precision)
    return lower_model(model, precision, policy, inputs.feeds, tensorrt=target is not None)
