"""Low precision in the graph, which every program supports.

TensorRT 11 has no other way to ask for a precision. The pass runs on a tidied float32 graph before
the bodies are attached: choose the nodes of the low type, measure their values, leave those in
float32 that come too close to its limits, write the casts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx

from ....core.errors import UnsupportedModelError
from ....models.architecture import PrecisionPolicy
from ...targets import TENSORRT
from ...transforms import TransformInputs
from ..policies import find_exact_nodes, find_precision_policy
from .cast import write_casts
from .choice import choose_nodes
from .ranges import find_overflowing, measure_largest
from .rounded_copy import make_rounded_copy
from .table import LOW_TYPES


@dataclass(frozen=True)
class Lowered:
    """The result of a model.

    Attributes:
        low: Number of nodes with inputs or outputs of the low type.
        reasons: Name of a node that could be low -> why it stays float32.
        largest: The largest absolute value measured in a tensor of the low type, 0 for bf16.
        rounded_copy: A float32 model that rounds where this one does.
    """

    low: int
    reasons: dict[str, str]
    largest: float
    rounded_copy: onnx.ModelProto

    @property
    def exact(self) -> tuple[str, ...]:
        """Empty: the fake-quantized network rounds every layer that the policy does not name."""
        return ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"low_nodes": self.low, "kept": self.reasons, "largest_value": self.largest}

    def notes(self) -> list[str]:
        """Return one sentence for each reason why nodes stay float32."""
        counts = Counter(self.reasons.values())
        return [f"{count} nodes stay in float32: {why}" for why, count in counts.items()]

    def warnings(self) -> list[str]:
        """Return none."""
        return []


def lower_model(
    model: onnx.ModelProto,
    precision: str,
    policy: PrecisionPolicy,
    feeds: Sequence[Mapping[str, npt.NDArray[Any]]],
    *,
    tensorrt: bool = False,
) -> Lowered:
    """Write a low precision into a model, in place.

    Args:
        model: Traced and tidied, without bodies.
        precision: ``fp16`` or ``bf16``.
        policy: Policy of the architecture.
        feeds: Inputs of the network by name, to measure values on.
        tensorrt: The file is for TensorRT alone.

    Raises:
        UnsupportedModelError: Nothing of the network can be of that type.
    """
    keep = {**policy.keep, **find_exact_nodes(model.graph, policy)}
    chosen = choose_nodes(model, precision, keep, tensorrt=tensorrt)
    exact = dict(chosen.reasons)
    largest = 0.0
    if LOW_TYPES[precision].narrow_range and chosen.nodes:
        values = measure_largest(model, chosen.tensors | chosen.entering, feeds)
        high = find_overflowing(chosen, values)
        if high:
            chosen = choose_nodes(model, precision, {**keep, **high}, tensorrt=tensorrt)
            exact |= chosen.reasons
        low_tensors = chosen.tensors | chosen.entering
        largest = max((values[name] for name in low_tensors), default=0.0)
    if not chosen.nodes:
        reasons = "; ".join(dict.fromkeys(exact.values())) or "it has no layers of float32 weights"
        advice = "`precision` fp32"
        if precision == "bf16":
            advice = "`precision` fp16"
        if precision == "bf16" and not tensorrt:
            advice += f", or `target` {TENSORRT} for a file that only TensorRT runs"
        raise UnsupportedModelError(
            f"no part of this network can be {precision}: {reasons}. Use {advice}; "
            "see docs/precision.md"
        )
    names = {node.output[0]: node.name or node.output[0] for node in model.graph.node}
    low = len(chosen.nodes)
    tensors = write_casts(model, chosen)
    copied = make_rounded_copy(model, precision, tensors)
    named = {names[first]: why for first, why in exact.items()}
    return Lowered(low, named, largest, copied)


def apply_precision(
    model: onnx.ModelProto,
    inputs: TransformInputs,
    *,
    precision: str,
    target: str | None,
) -> Lowered:
    """Lower the nodes that are safe in a precision, in place: a transform, for its row."""
    policy = find_precision_policy(inputs.architecture, precision)
    return lower_model(model, precision, policy, inputs.feeds, tensorrt=target is not None)
