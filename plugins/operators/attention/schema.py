"""The schema of ``NystraAttention``."""

from ..schema import REVISION_ATTRIBUTE, Attribute, OperatorSchema
from ..window_schema import SCALE_ATTRIBUTE

SCHEMA = OperatorSchema(
    name="NystraAttention",
    doc=(
        "Exact attention between lists of tokens, softmax(scale q k^T + attn_bias) v, of "
        "q (B, h, N, d), k (B, h, M, d) and v (B, h, M, e), to (B, h, N, e). attn_bias (one "
        "element where bias is 0) has four axes, each that of (B, h, N, M) or 1. A key at which it "
        "is -inf has no weight; a query with no other key gets zeros."
    ),
    inputs=("q", "k", "v", "attn_bias"),
    outputs=("out",),
    attributes=(
        Attribute("bias", "int", 0, 0, 1, "1: attn_bias is added; 0: it is not read"),
        SCALE_ATTRIBUTE,
        REVISION_ATTRIBUTE,
    ),
)
