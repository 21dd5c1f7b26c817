"""The schema of ``NystraWindowOverlap``."""

from ..schema import REVISION_ATTRIBUTE, Attribute, OperatorSchema
from ..window_schema import BIAS_ATTRIBUTE, LARGEST_SIDE, SCALE_ATTRIBUTE, SIZE_ATTRIBUTES

SCHEMA = OperatorSchema(
    name="NystraWindowOverlap",
    doc=(
        "Exact attention of qkv (B, H, W, h(2d+e)), packed q, k, v and each (head, channel), to "
        "(B, H, W, h e): the queries of a window see the keys in and around it, in a window of "
        "kh = wh + 2 margin_h rows and kw = ww + 2 margin_w columns with the same centre. Keys "
        "beyond the map are zeros: they score by the relative position bias of bias_table "
        "((wh+kh-1)(ww+kw-1), h) (one element where bias is 0) alone, and their values are 0. "
        "Without margins it is NystraWindowSoftmax without shift."
    ),
    inputs=("qkv", "bias_table"),
    outputs=("out",),
    attributes=(
        *SIZE_ATTRIBUTES,
        Attribute(
            "margin_h", "int", None, 0, LARGEST_SIDE, "rows of keys above a window, and below it"
        ),
        Attribute(
            "margin_w", "int", None, 0, LARGEST_SIDE, "columns of keys left of it, and right"
        ),
        BIAS_ATTRIBUTE,
        SCALE_ATTRIBUTE,
        REVISION_ATTRIBUTE,
    ),
)
