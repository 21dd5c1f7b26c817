"""The tests' record of ``NystraAttention``."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from conformance_case import EVERYWHERE, Case
from operator_tests import OpenNode, OperatorTests


@dataclass(frozen=True)
class AttentionCase(Case):
    """A row: ``shape`` is that of q, ``table`` that of the bias.

    Attributes:
        keys: Their number.
        value_dim: Channels of a value.
        hidden: The bias is -inf at some keys: at all of the first query's and at the first 256 of
            the second's, if queries differ.
    """

    keys: int = 1
    value_dim: int = 1
    hidden: bool = False

    @property
    def id(self) -> str:
        more = f"keys={self.keys} e={self.value_dim} bias={self.table} hidden={self.hidden}"
        return super().id.replace("]", f" {more}]")

    def output_shapes(self) -> list[tuple[int, ...]]:
        return [(*self.shape[:3], self.value_dim)]

    def inputs(self, dtype: str) -> list[np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        batch, heads, _, channels = self.shape
        q = self.first(rng)
        k = self.filled(rng.standard_normal((batch, heads, self.keys, channels)))
        v = rng.standard_normal((batch, heads, self.keys, self.value_dim))
        if self.values == "nan":
            q[0, 0, 0, 0] = np.nan
        assert self.table is not None
        bias = rng.standard_normal(self.table)
        if self.hidden:
            bias[rng.random(self.table) < 0.3] = -np.inf
            if self.table[2] > 1:
                bias[:, :, 0] = -np.inf
                bias[:, :, 1, :256] = -np.inf
        return [array.astype(dtype) for array in (q, k, v, bias)]


def _row(
    shape: tuple[int, ...],
    keys: int,
    value_dim: int,
    bias: tuple[int, ...] | None = None,
    hidden: bool = False,
    values: str = "normal",
    refused_by: frozenset[str] = frozenset(),
) -> AttentionCase:
    attributes = {"bias": int(bias is not None), "scale": shape[3] ** -0.5}
    dtypes = ("float32",) if refused_by else ("float32", "float16")
    return AttentionCase(
        "NystraAttention",
        attributes,
        shape,
        bias or (1, 1, 1, 1),
        values,
        dtypes,
        refused_by,
        keys,
        value_dim,
        hidden,
    )


_SMALL = (2, 2, 18, 10), 21, 6

TESTS = OperatorTests(
    cases=[
        _row((1, 1, 1, 1), 1, 1),
        _row((2, 3, 17, 10), 33, 6),
        _row((1, 2, 64, 32), 64, 32),
        _row((1, 2, 70, 30), 131, 34, (1, 1, 1, 131), hidden=True),
        _row((2, 2, 20, 8), 24, 8, (1, 2, 20, 24)),
        _row((2, 2, 20, 8), 24, 16, (2, 2, 20, 24), hidden=True),
        _row((2, 3, 9, 5), 7, 3, (2, 1, 1, 1)),
        _row((1, 1, 5, 16), 40, 16, (1, 1, 5, 1)),
        _row((1, 1, 300, 4), 290, 2),
        _row((1, 1, 34, 6), 530, 3, (1, 1, 34, 530), hidden=True),
        _row((1, 2, 12, 64), 65, 64),
        _row((1, 1, 12, 128), 20, 128),
        _row((1, 1, 6, 70), 9, 131, (1, 1, 1, 9)),
        _row(*_SMALL, values="zero"),
        _row(*_SMALL, values="tiny"),
        _row(*_SMALL, (1, 1, 18, 21), values="large"),
        _row(*_SMALL, values="huge"),
        _row(*_SMALL, (1, 2, 1, 21), values="nan"),
        _row(*_SMALL, (1, 2, 3, 21), refused_by=EVERYWHERE),
    ],
    base=_row((2, 2, 9, 6), 8, 5, (2, 2, 9, 8), values="large"),
    changes={"scale": {"scale": 0.3}, "bias": {"bias": 0}},
    attributes={"bias": 1, "scale": 0.4},
    shapes=[(2, 2, 6, 8), (2, 2, 7, 8), (2, 2, 7, 4), (1, 2, 1, 7)],
    open_node=OpenNode(
        [("b", 2, "n", 8), ("b", 2, "m", 8), ("b", 2, "m", 4), ("b", 1, 1, "m")],
        [("b", 2, "n", 4)],
        [{"b": 2, "n": 6, "m": 33}, {"b": 1, "n": 1, "m": 7}, {"b": 3, "n": 70, "m": 2}],
    ),
)
