"""The operators of the ONNX domain ``nystra``: a lazy register, importing neither torch nor onnx.

Each operator is one folder of this package:

- ``schema.py``: ``SCHEMA``, its inputs, outputs and attributes;
- ``torch_op.py``: a plain differentiable function and ``torch.ops.nystra.<folder>``;
- ``body.py``: ``write(nodes)``, which writes its meaning as standard ONNX nodes.
"""

from __future__ import annotations

from importlib import import_module

from ...core.errors import NystraError
from .schema import OperatorSchema  # before schema() is defined: the module has its name

__all__ = ["OPERATORS", "find_schema"]

OPERATORS: dict[str, str] = {
    "NystraPinv": "pinv",
    "NystraAttention": "attention",
    "NystraWindowSoftmax": "window_softmax",
    "NystraWindowOverlap": "window_overlap",
    "NystraWindowCosine": "window_cosine",
    "NystraWindowNystrom": "window_nystrom",
    "NystraWindowNystromformer": "window_nystromformer",
    "NystraWindowCluster": "window_cluster",
    "NystraWindowCovariance": "window_covariance",
    "NystraPatchMatch": "patch_match",
}
"""Node type -> folder, which is also the name of the torch op and of the kernel."""


def find_schema(name: str) -> OperatorSchema:
    """Return the schema of the operator with node type ``name``.

    Raises:
        NystraError: There is no such operator.
    """
    if name not in OPERATORS:
        names = ", ".join(OPERATORS)
        raise NystraError(f"unknown operator {name!r}: the operators of nystra are {names}")
    schema: OperatorSchema = import_module(f"{__name__}.{OPERATORS[name]}.schema").SCHEMA
    return schema
