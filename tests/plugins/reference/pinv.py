"""``NystraPinv`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.pinv.schema import SCHEMA
from reference.windows import Array, pseudoinverses


def reference(a: npt.ArrayLike, **attributes: object) -> Array:
    """Return the approximate pseudoinverse of each matrix.

    Args:
        a: A (..., m, m).
        **attributes: Those of the schema.

    Returns:
        Z (..., m, m) in float64.

    Raises:
        NystraError: The schema refuses the attributes.
    """
    checked = SCHEMA.validate(attributes)
    a = np.asarray(a, dtype=np.float64)
    m = a.shape[-1]
    matrices = list(a.reshape(-1, m, m))
    no_regions = [np.zeros(m, dtype=np.int64)] * len(matrices)
    return np.array(pseudoinverses(matrices, no_regions, checked)).reshape(a.shape)
