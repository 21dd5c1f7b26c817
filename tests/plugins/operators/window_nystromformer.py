"""The tests' record of ``NystraWindowNystromformer``."""

from __future__ import annotations

from landmark_case import (
    GOOD_LANDMARKS,
    LANDMARK_BASE,
    LANDMARK_CHANGES,
    landmark_rows,
)
from operator_tests import OperatorTests
from window_case import QKV, base_case, open_node

TESTS = OperatorTests(
    cases=landmark_rows("NystraWindowNystromformer"),
    base=base_case("NystraWindowNystromformer", LANDMARK_BASE),
    changes=LANDMARK_CHANGES,
    attributes=GOOD_LANDMARKS,
    shapes=[QKV],
    open_node=open_node(),
)
