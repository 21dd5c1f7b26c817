"""The tests' record of ``NystraWindowCovariance``."""

from __future__ import annotations

import functools

from cluster_case import at, cluster_tests
from conformance_case import EVERYWHERE, Case
from window_case import WindowCase, window_row


def _cases() -> list[Case]:
    row = functools.partial(window_row, "NystraWindowCovariance", biased=True, of=WindowCase)

    return [
        row((1, 1, 1), (1, 1, 1), (1, 1), **at(1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), **at(2, 2, mask=1, bias=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(2, 2, mask=1)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 2, mask=1, bias=1, rounds=1)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(2, 3, block=2, bias_block=2, rounds=2)),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 4), **at(2, 2, mask=1, block=2, bias_block=2)),
        row((1, 8, 12), (1, 32, 1), (4, 6), (2, 0), **at(3, 1, mask=1, block=2, bias_block=2)),
        row((1, 32, 32), (2, 30, 30), (16, 16), (8, 8), **at(2, 2, mask=1, bias=1)),
        row(
            (1, 32, 32), (2, 16, 16), (32, 32), (16, 16), **at(2, 2, mask=1, block=8, bias_block=16)
        ),
        row((1, 32, 32), (1, 16, 16), (32, 32), **at(4, 4, block=8, bias_block=32)),
        row((1, 16, 16), (1, 34, 48), (16, 16), (8, 8), **at(4, 4, mask=1, bias=1, bias_block=8)),
        row((1, 64, 64), (1, 10, 3), (64, 64), **at(2, 2, bias=1, block=8, bias_block=8)),
        row((1, 13, 15), (1, 10, 8), (13, 15), **at(2, 3, bias=1, block=6, bias_block=12)),
        row((1, 9, 17), (2, 16, 17), (9, 17), **at(2, 4, bias=1, bias_block=8)),
        row((1, 4, 8), (1, 70, 131), (4, 8), **at(2, 2, bias=1, block=2, bias_block=4)),
        row((1, 6, 4), (1, 5, 5), (6, 4), **at(4, 4, block=2, bias_block=2)),
        row((2, 8, 8), (2, 10, 10), (8, 8), (4, 4), values="zero", **at(2, 2, mask=1, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), values="tiny", **at(2, 2, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), (4, 4), values="large", **at(2, 2, mask=1, bias=1)),
        row((1, 16, 16), (2, 10, 10), (8, 8), values="sharp", **at(2, 2, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), values="nan", **at(2, 2, bias=1)),
        row((2, 8, 8), (2, 10, 10), (8, 8), (4, 4), values="far_keys", **at(2, 2, mask=1, bias=1)),
        row(
            (1, 16, 8), (2, 5, 6), (8, 8), (4, 4), values="equal_keys", **at(2, 2, mask=1, rounds=1)
        ),
        row((1, 8, 8), (2, 5, 5), (8, 8), (3, 4), refused_by=EVERYWHERE, **at(2, 2, mask=1)),
        row((1, 8, 8), (2, 5, 5), (8, 8), refused_by=EVERYWHERE, **at(2, 2, bias_block=6)),
        row((1, 8, 8), (2, 5, 5), (8, 8), refused_by=EVERYWHERE, **at(4, 5)),
        row((1, 9, 8), (2, 5, 5), (8, 8), refused_by=EVERYWHERE, **at(2, 2)),
        row(
            (1, 20, 16),
            (1, 1, 1),
            (20, 16),
            refused_by=EVERYWHERE,
            **at(1, 1, block=2, bias_block=2),
        ),
    ]


TESTS = cluster_tests("NystraWindowCovariance", _cases())
