"""The schema of ``NystraWindowCosine``."""

from ..schema import REVISION_ATTRIBUTE, Attribute, OperatorSchema
from ..window_schema import (
    BIAS_ATTRIBUTE,
    EXACT_WINDOW_ATTRIBUTES,
    SCALE_ATTRIBUTE,
    WINDOW_RELATIONS,
)

SCHEMA = OperatorSchema(
    name="NystraWindowCosine",
    doc=(
        "NystraWindowSoftmax of queries and keys that are divided by their norms, and scores that "
        "are multiplied by logit_scale (h), as in Swin V2 (arXiv 2111.09883, section 3.3)."
    ),
    inputs=("qkv", "bias_table", "logit_scale"),
    outputs=("out",),
    attributes=(
        *EXACT_WINDOW_ATTRIBUTES,
        BIAS_ATTRIBUTE,
        SCALE_ATTRIBUTE,
        Attribute("epsilon", "float", 1e-12, 1e-30, 1e6, "the least norm that is divided by"),
        REVISION_ATTRIBUTE,
    ),
    relations=WINDOW_RELATIONS,
)
