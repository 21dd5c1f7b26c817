"""Which operators compute in a low precision: data for `precision`.

An operator that no table names computes in float32: normalizations, sums, means, softmax, powers,
exponentials, divisions of two maps, and additions of two maps (the residual stream).
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import TensorProto

WEIGHTED = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Low if the input with that index is a weight; products of two feature maps (attention) are
float32."""

ATTENTION = frozenset(
    {
        "NystraAttention",
        "NystraWindowSoftmax",
        "NystraWindowOverlap",
        "NystraWindowCosine",
        "NystraWindowNystrom",
        "NystraWindowNystromformer",
        "NystraWindowCluster",
        "NystraWindowCovariance",
    }
)
"""Low inputs and outputs; kernels and bodies compute in float32 inside.

``NystraPinv`` and ``NystraPatchMatch`` are left out: the entries of a pseudoinverse and the scores
of a search (sums of squares) have a range and a precision that float16 lacks.
"""

MOVING = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "Pad",
        "Reshape",
        "Resize",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)
"""They only move values, in the type of their input (Resize: with the mode nearest)."""

POINTWISE = frozenset(
    {
        "Add",
        "Clip",
        "Div",
        "Elu",
        "Gelu",
        "LeakyRelu",
        "Mul",
        "PRelu",
        "Relu",
        "Sigmoid",
        "Sub",
        "Tanh",
    }
)
"""They compute on one feature map (and constants) in the type of their input, if a low-precision
operator follows."""


@dataclass(frozen=True)
class LowType:
    """A low precision.

    Attributes:
        name: ``fp16`` or ``bf16``.
        element: Its number in ONNX.
        text: Its name in ONNX's schemas.
        digits: Binary digits of a number, including the leading one.
        largest: Its largest number.
        narrow_range: float32 numbers may exceed it.
        pointwise: `POINTWISE` operators may have it. Not bf16: each further step would round to 8
            digits again.
    """

    name: str
    element: int
    text: str
    digits: int
    largest: float
    narrow_range: bool
    pointwise: bool


LOW_TYPES = {
    "fp16": LowType("fp16", TensorProto.FLOAT16, "tensor(float16)", 11, 65504.0, True, True),
    "bf16": LowType(
        "bf16", TensorProto.BFLOAT16, "tensor(bfloat16)", 8, 3.3895314e38, False, False
    ),
}


def moves(node: onnx.NodeProto) -> bool:
    """Whether a node only moves values."""
    if node.op_type == "Resize":
        return all(
            attribute.s == b"nearest" for attribute in node.attribute if attribute.name == "mode"
        )
    return node.op_type in MOVING and node.domain == ""
