"""The schema of ``NystraWindowNystrom``."""

from ..schema import REVISION_ATTRIBUTE, OperatorSchema
from ..window_schema import (
    KERNEL_ATTRIBUTES,
    LANDMARK_ATTRIBUTES,
    LANDMARK_LIMITS,
    LANDMARK_RELATIONS,
    SCALE_ATTRIBUTE,
    WINDOW_ATTRIBUTES,
)

SCHEMA = OperatorSchema(
    name="NystraWindowNystrom",
    doc=(
        "The kernel Nystrom attention of PnP-Nystra in the windows of qkv (B, H, W, h(2d+e)), "
        "to (B, H, W, h e), with f(x) = exp(min(x, threshold)) + max(x - threshold, 0) of "
        "x = scale q.k, and a guard where its denominator is not safely positive. "
        "With mask 1, kernel entries between Swin regions are 0."
    ),
    inputs=("qkv",),
    outputs=("out",),
    attributes=(
        *WINDOW_ATTRIBUTES,
        SCALE_ATTRIBUTE,
        *LANDMARK_ATTRIBUTES,
        *KERNEL_ATTRIBUTES,
        REVISION_ATTRIBUTE,
    ),
    relations=LANDMARK_RELATIONS,
    limits=LANDMARK_LIMITS,
    plugin="NystraPinv",
)
