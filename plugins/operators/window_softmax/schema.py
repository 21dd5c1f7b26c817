"""The schema of ``NystraWindowSoftmax``."""

from ..schema import REVISION_ATTRIBUTE, OperatorSchema
from ..window_schema import (
    BIAS_ATTRIBUTE,
    EXACT_WINDOW_ATTRIBUTES,
    SCALE_ATTRIBUTE,
    WINDOW_RELATIONS,
)

SCHEMA = OperatorSchema(
    name="NystraWindowSoftmax",
    doc=(
        "Exact window attention of qkv (B, H, W, h(2d+e)), packed q, k, v and each (head, channel),"
        " to (B, H, W, h e): cyclic shift, window partition, softmax attention with the relative "
        "position bias of bias_table ((2wh-1)(2ww-1), h) (one element where bias is 0), reverse. "
        "With mask 1, -100 is added between tokens of different Swin regions; with mask 2 they do "
        "not see each other at any score."
    ),
    inputs=("qkv", "bias_table"),
    outputs=("out",),
    attributes=(*EXACT_WINDOW_ATTRIBUTES, BIAS_ATTRIBUTE, SCALE_ATTRIBUTE, REVISION_ATTRIBUTE),
    relations=WINDOW_RELATIONS,
)
