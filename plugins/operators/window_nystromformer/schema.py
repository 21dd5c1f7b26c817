"""The schema of ``NystraWindowNystromformer``."""

from ..schema import REVISION_ATTRIBUTE, OperatorSchema
from ..window_schema import (
    LANDMARK_ATTRIBUTES,
    LANDMARK_LIMITS,
    LANDMARK_RELATIONS,
    SCALE_ATTRIBUTE,
    WINDOW_ATTRIBUTES,
)

SCHEMA = OperatorSchema(
    name="NystraWindowNystromformer",
    doc=(
        "The row-normalised Nystrom attention (Nystromformer) in the windows of qkv "
        "(B, H, W, h(2d+e)), to (B, H, W, h e): softmax of scale q.k for all three matrices. "
        "With mask 1, -100 is added between Swin regions."
    ),
    inputs=("qkv",),
    outputs=("out",),
    attributes=(*WINDOW_ATTRIBUTES, SCALE_ATTRIBUTE, *LANDMARK_ATTRIBUTES, REVISION_ATTRIBUTE),
    relations=LANDMARK_RELATIONS,
    limits=LANDMARK_LIMITS,
    plugin="NystraPinv",
)
