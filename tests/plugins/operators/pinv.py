"""The tests' record of ``NystraPinv``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance_case import EVERYWHERE, Case
from operator_tests import OpenNode, OperatorTests, Shape


@dataclass(frozen=True)
class PinvCase(Case):
    """A row of matrices whose entries are positive."""

    @property
    def wants_more_shared(self) -> bool:
        return self.shape[-1] > 44

    def first(self, rng: np.random.Generator) -> np.ndarray:
        """``nan``: in the first matrix."""
        matrices = self.filled(np.exp(rng.standard_normal(self.shape)))
        if self.values == "nan":
            matrices.reshape(-1)[0] = np.nan
        return matrices


def _cases() -> list[Case]:
    name = "NystraPinv"
    rows: list[Case] = [
        PinvCase(name, {"iterations": iterations, "batch_init": iterations % 2}, (2, 3, 4, 4))
        for iterations in range(1, 9)
    ]
    rows += [
        PinvCase(name, {"iterations": 6, "batch_init": batch}, shape)
        for batch, shape in (
            (0, (1, 1)),
            (1, (1, 1)),
            (0, (5, 7, 7)),
            (1, (1, 2, 2, 9, 9)),
            (0, (3, 15, 15)),
            (0, (2, 16, 16)),
            (1, (2, 17, 17)),
            (0, (1, 32, 32)),
            (1, (2, 45, 45)),
            (0, (1, 67, 67)),
        )
    ]
    rows += [
        PinvCase(name, {"iterations": 3, "batch_init": 0}, (2, 4, 4), values=values)
        for values in ("zero", "negative_zero", "tiny", "large", "nan")
    ]
    rows.append(
        PinvCase(name, {"iterations": 9}, (2, 4, 4), refused_by=EVERYWHERE, dtypes=("float32",))
    )
    return rows


_MATRICES: Shape = ("b", "m", "m")

TESTS = OperatorTests(
    cases=_cases(),
    base=PinvCase("NystraPinv", {"iterations": 2, "batch_init": 0}, (2, 3, 6, 6), values="large"),
    changes={"iterations": {"iterations": 3}, "batch_init": {"batch_init": 1}},
    attributes={"iterations": 3, "batch_init": 1},
    shapes=[(3, 6, 6)],
    open_node=OpenNode(
        [_MATRICES], [_MATRICES], [{"b": 3, "m": 6}, {"b": 1, "m": 1}, {"b": 2, "m": 33}]
    ),
    fills_workspace=lambda case: case.shape[-1] > 32,
)
