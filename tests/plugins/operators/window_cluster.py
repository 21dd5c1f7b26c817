"""The tests' record of ``NystraWindowCluster``."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from cluster_case import at, cluster_tests
from conformance_case import EVERYWHERE, Case
from window_case import WindowCase, window_row


@dataclass(frozen=True)
class ClusterCase(WindowCase):
    """A row of attention with clustered keys."""

    @property
    def large(self) -> bool:
        return self.attributes["window_h"] * self.attributes["window_w"] >= 2304


def _cases() -> list[Case]:
    row = functools.partial(window_row, "NystraWindowCluster", biased=True, of=ClusterCase)

    return [
        row((1, 1, 1), (1, 1, 1), (1, 1), **at(1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), **at(4, 4, mask=1, bias=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(2, 2, mask=1, bias=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(2, 2, mask=1)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 2, mask=1, bias=1, rounds=1)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 2, bias=1, block=3, bias_block=6)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(2, 3, block=2, bias_block=2, rounds=2)),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 4), **at(2, 2, mask=1, block=2, bias_block=2)),
        row(
            (2, 12, 12),
            (2, 3, 5),
            (4, 6),
            (0, 4),
            **at(1, 3, mask=1, bias=1, block=2, bias_block=2),
        ),
        row((1, 8, 12), (1, 32, 1), (4, 6), (2, 0), **at(3, 1, mask=1, block=2, bias_block=2)),
        row((1, 32, 32), (2, 30, 30), (16, 16), (8, 8), **at(4, 4, mask=1, bias=1)),
        row((1, 32, 32), (1, 30, 30), (16, 16), (8, 8), **at(4, 4, mask=1, bias=1, bias_block=8)),
        row((1, 32, 32), (2, 30, 30), (32, 32), **at(4, 4, bias_block=32)),
        row(
            (1, 24, 24), (1, 20, 20), (24, 24), (12, 12), **at(8, 8, mask=1, bias=1, bias_block=12)
        ),
        row((1, 16, 16), (2, 4, 32), (16, 16), (8, 8), **at(8, 8, bias=1, block=8, bias_block=8)),
        row((1, 48, 48), (1, 10, 3), (48, 48), (24, 24), **at(4, 4, mask=1)),
        row((1, 48, 48), (1, 6, 4), (48, 48), **at(8, 8, bias=1, block=8, bias_block=8)),
        row((1, 64, 64), (1, 10, 3), (64, 64), (32, 32), **at(8, 8, mask=1, block=8, bias_block=8)),
        row((1, 96, 96), (1, 6, 4), (96, 96), **at(8, 8, block=8, bias_block=8)),
        row(
            (1, 64, 64),
            (1, 16, 8),
            (64, 64),
            (32, 32),
            dtypes=("float16",),
            **at(4, 4, mask=1, bias=1, bias_block=8),
        ),
        row((2, 16, 24), (2, 32, 32), (8, 8), (4, 4), **at(4, 4, mask=1, bias=1)),
        row((1, 16, 16), (1, 34, 48), (16, 16), (8, 8), **at(8, 4, mask=1, bias=1)),
        row((1, 32, 32), (1, 64, 64), (32, 32), (16, 16), **at(4, 4, mask=1)),
        row((1, 13, 15), (1, 10, 8), (13, 15), **at(2, 3, bias=1, block=6, bias_block=12)),
        row((1, 9, 17), (2, 16, 17), (9, 17), **at(2, 4, bias=1, bias_block=8)),
        row((1, 10, 11), (1, 9, 8), (10, 11), **at(2, 2, bias=1, block=5, bias_block=5)),
        row((1, 13, 15), (1, 9, 8), (13, 15), **at(2, 3, bias=1, block=6, bias_block=12, rounds=1)),
        row((1, 15, 8), (1, 6, 7), (15, 8), **at(2, 2, bias=1, block=7, bias_block=7)),
        row((1, 4, 8), (1, 70, 131), (4, 8), **at(2, 2, bias=1, block=2, bias_block=4)),
        row((1, 6, 6), (1, 128, 68), (6, 6), **at(1, 1, block=8, bias_block=8)),
        row((1, 6, 4), (1, 5, 5), (6, 4), **at(8, 8, block=2, bias_block=2)),
        row((2, 8, 8), (2, 10, 10), (8, 8), (4, 4), values="zero", **at(2, 2, mask=1, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), values="tiny", **at(2, 2, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), (4, 4), values="large", **at(2, 2, mask=1, bias=1)),
        row((1, 16, 16), (2, 10, 10), (8, 8), values="sharp", **at(2, 2, bias=1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), values="huge", **at(2, 2, bias=1) | {"scale": 1e-3}),
        row((2, 8, 8), (2, 10, 10), (8, 8), values="nan", **at(2, 2, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), (4, 4), values="far_keys", **at(2, 2, mask=1, bias=1)),
        row(
            (1, 16, 8), (2, 5, 6), (8, 8), (4, 4), values="equal_keys", **at(2, 2, mask=1, rounds=1)
        ),
        row((1, 8, 8), (2, 5, 5), (8, 8), (3, 4), refused_by=EVERYWHERE, **at(2, 2, mask=1)),
        row((1, 8, 8), (2, 5, 5), (8, 8), (4, 2), refused_by=EVERYWHERE, **at(2, 2, mask=1)),
        row(
            (1, 8, 8),
            (2, 5, 5),
            (8, 8),
            (4, 4),
            refused_by=EVERYWHERE,
            **at(2, 2, mask=1, bias_block=8),
        ),
        row((1, 8, 8), (2, 5, 5), (8, 8), refused_by=EVERYWHERE, **at(2, 2, bias_block=6)),
        row((1, 8, 8), (2, 5, 5), (8, 8), refused_by=EVERYWHERE, **at(9, 8)),
        row((1, 9, 8), (2, 5, 5), (8, 8), refused_by=EVERYWHERE, **at(2, 2)),
        row(
            (1, 66, 66),
            (1, 1, 1),
            (66, 66),
            refused_by=EVERYWHERE,
            **at(1, 1, block=2, bias_block=2),
        ),
    ]


TESTS = cluster_tests("NystraWindowCluster", _cases())
