"""The schema of ``NystraPinv``."""

from ..relation import Limit
from ..schema import REVISION_ATTRIBUTE, OperatorSchema
from ..window_schema import BATCH_INIT_ATTRIBUTE, ITERATIONS_ATTRIBUTE

SCHEMA = OperatorSchema(
    name="NystraPinv",
    doc=(
        "Iterative pseudoinverse of A (..., m, m): Z0 = A^T / (max row sum * max column sum of "
        "abs A + 1e-15), then Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4."
    ),
    inputs=("A",),
    outputs=("Z",),
    attributes=(ITERATIONS_ATTRIBUTE, BATCH_INIT_ATTRIBUTE, REVISION_ATTRIBUTE),
    plugin="NystraPinv",
    limits=(Limit("MaxPinvSize", 128, "m, of the kernels"),),
)
