"""The conformance table: every operator's rows, replayed on every column of conformance_columns."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any

from conformance_case import EVERYWHERE, Case, Outputs
from conformance_patch_match import patch_match
from conformance_store import stored

BIASED = ("NystraWindowSoftmax", "NystraWindowOverlap", "NystraWindowCluster")
"""Operators with a bias table."""

KINDS = (
    "normal",
    "zero",
    "negative_zero",
    "tiny",
    "large",
    "sharp",
    "huge",
    "nan",
    "equal_keys",
    "integer",
)


@functools.cache
def _expected(row: int, dtype: str) -> Outputs:
    case = CASES[row]

    def reference() -> Outputs:
        module = importlib.import_module(f"nystra.plugins.operators.{case.folder}.reference")
        outputs: Outputs = module.reference(*case.inputs(dtype), **case.all_attributes())
        return outputs

    return stored(f"{row}.{dtype}", reference)


def expected(case: Case, dtype: str) -> Outputs:
    """What the float64 reference gives for the row, its inputs rounded to ``dtype``."""
    return _expected(CASES.index(case), dtype)


def _pinv() -> list[Case]:
    name = "NystraPinv"
    rows = [
        Case(name, {"iterations": iterations, "batch_init": iterations % 2}, (2, 3, 4, 4))
        for iterations in range(1, 9)
    ]
    rows += [
        Case(name, {"iterations": 6, "batch_init": batch}, shape)
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
        Case(name, {"iterations": 3, "batch_init": 0}, (2, 4, 4), values=values)
        for values in ("zero", "negative_zero", "tiny", "large", "nan")
    ]
    rows.append(
        Case(name, {"iterations": 9}, (2, 4, 4), refused_by=EVERYWHERE, dtypes=("float32",))
    )
    return rows


def _window(
    name: str,
    size: tuple[int, int, int],
    heads: tuple[int, int, int],
    window: tuple[int, int],
    shift: tuple[int, int] = (0, 0),
    values: str = "normal",
    refused_by: frozenset[str] = frozenset(),
    dtypes: tuple[str, ...] = ("float32", "float16"),
    **rest: int | float,
) -> Case:
    h, d, e = heads
    attributes = {
        "heads": h,
        "head_dim": d,
        "value_dim": e,
        "window_h": window[0],
        "window_w": window[1],
        "shift_h": shift[0],
        "shift_w": shift[1],
        "scale": d**-0.5,
        **rest,
    }
    table = None
    if name in BIASED:
        entries = (2 * window[0] - 1) * (2 * window[1] - 1)
        table = (entries, h) if rest.get("bias") else (1, 1)
    shape = (*size, h * (2 * d + e))
    return Case(name, attributes, shape, table, values, dtypes, refused_by)


def _softmax() -> list[Case]:
    row = functools.partial(_window, "NystraWindowSoftmax")
    return [
        row((1, 1, 1), (1, 1, 1), (1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), mask=1, bias=1),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), mask=1, bias=1),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=1, bias=1),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), mask=0, bias=1),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 3), mask=1, bias=0),
        row((2, 12, 12), (2, 3, 5), (4, 6), (0, 5), mask=1, bias=1),
        row((1, 8, 12), (1, 32, 1), (4, 6), (3, 0), mask=1),
        row((1, 16, 16), (2, 1, 32), (16, 16), mask=1, bias=1),
        row((1, 9, 17), (2, 16, 17), (9, 17), bias=1),
        row((1, 4, 8), (1, 70, 131), (4, 8), (2, 4), mask=1, bias=1),
        row((1, 6, 6), (1, 128, 68), (6, 6)),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="zero", mask=1, bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="tiny", bias=1),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values="large", mask=1, bias=1),
        row((1, 8, 8), (2, 10, 10), (4, 4), values="huge"),
        row((2, 8, 8), (2, 10, 10), (4, 4), values="nan", bias=1),
        row((1, 8, 8), (2, 5, 5), (4, 4), (4, 0), refused_by=EVERYWHERE, dtypes=("float32",)),
        row((1, 9, 8), (2, 5, 5), (4, 4), refused_by=EVERYWHERE, dtypes=("float32",)),
    ]


def _overlap() -> list[Case]:
    def row(
        size: tuple[int, int, int],
        heads: tuple[int, int, int],
        window: tuple[int, int],
        margin: tuple[int, int],
        table: int | None = None,
        **rest: Any,
    ) -> Case:
        """A row; its bias table has ``table`` entries a head, none without it."""
        case = _window("NystraWindowOverlap", size, heads, window, **rest)
        kept = {name: n for name, n in case.attributes.items() if not name.startswith("shift")}
        margins = {"margin_h": margin[0], "margin_w": margin[1], "bias": int(table is not None)}
        shape = (1, 1) if table is None else (table, heads[0])
        return replace(case, attributes=kept | margins, table=shape)

    return [
        row((1, 1, 1), (1, 1, 1), (1, 1), (0, 0)),
        row((1, 1, 1), (1, 1, 1), (1, 1), (1, 1), 9),
        row((1, 8, 8), (2, 10, 10), (8, 8), (2, 2), 19 * 19),
        row((2, 16, 24), (2, 30, 30), (8, 8), (2, 2), 19 * 19),
        row((1, 32, 16), (1, 30, 30), (16, 16), (4, 4), 39 * 39),
        row((1, 32, 32), (2, 8, 8), (16, 16), (4, 4)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 1), 19 * 15),
        row((3, 12, 12), (2, 5, 3), (4, 6), (0, 3), 7 * 17),
        row((2, 12, 12), (2, 3, 5), (4, 6), (5, 0)),
        row((1, 9, 17), (2, 16, 17), (9, 17), (1, 2), 19 * 37),
        row((1, 4, 8), (1, 70, 131), (4, 8), (2, 4), 11 * 23),
        row((1, 3, 3), (1, 128, 68), (3, 3), (7, 7)),
        row((2, 8, 8), (2, 10, 10), (4, 4), (0, 0), 49),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), 11 * 11, values="zero"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), 11 * 11, values="tiny"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), 11 * 11, values="large"),
        row((1, 8, 8), (2, 10, 10), (4, 4), (1, 1), values="huge"),
        row((2, 8, 8), (2, 10, 10), (4, 4), (1, 1), 9 * 9, values="nan"),
        row((1, 9, 8), (2, 5, 5), (4, 4), (1, 1), refused_by=EVERYWHERE, dtypes=("float32",)),
        row((1, 8, 8), (2, 5, 5), (4, 4), (1025, 1), refused_by=EVERYWHERE, dtypes=("float32",)),
    ]


def _nystrom(name: str) -> list[Case]:
    row = functools.partial(_window, name)

    def at(rows: int, cols: int, **rest: int | float) -> dict[str, int | float]:
        return {"landmark_rows": rows, "landmark_cols": cols, **rest}

    cases = [
        row((1, 1, 1), (1, 1, 1), (1, 1), **at(1, 1)),
        row((1, 8, 8), (2, 10, 10), (8, 8), (4, 4), **at(4, 4, mask=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(4, 4, mask=1)),
        row((2, 16, 24), (2, 30, 30), (8, 8), (4, 4), **at(4, 4, mask=1, batch_init=1)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 5)),
        row((2, 14, 21), (3, 10, 10), (7, 7), (3, 3), **at(3, 5, batch_init=1)),
        row((1, 14, 7), (2, 5, 5), (7, 7), (3, 2), **at(7, 7, mask=1, iterations=3)),
        row((3, 12, 12), (2, 5, 3), (4, 6), (2, 3), **at(2, 2, mask=1)),
        row((2, 12, 12), (2, 3, 5), (4, 6), (2, 0), **at(2, 1, mask=1)),
        row((2, 8, 12), (1, 32, 1), (4, 6), (0, 2), **at(1, 3, mask=1)),
        row((1, 16, 16), (2, 1, 32), (16, 16), (8, 8), **at(1, 1)),
        row((1, 16, 16), (1, 16, 17), (16, 16), (8, 12), **at(4, 4, mask=1)),
        row((1, 4, 4), (2, 8, 8), (2, 2), **at(4, 4, iterations=2)),
        row((1, 9, 17), (2, 15, 16), (9, 17), **at(3, 5)),
        row((1, 6, 8), (1, 70, 131), (6, 8), (3, 4), **at(2, 2, mask=1)),
        row((1, 8, 8), (1, 128, 68), (8, 8), **at(8, 8, iterations=2)),
        row((1, 32, 32), (2, 30, 30), (32, 32), (16, 16), **at(4, 4, mask=1)),
        row((2, 16, 16), (2, 32, 32), (16, 16), (8, 8), **at(4, 4, mask=1)),
        row((1, 9, 18), (2, 16, 24), (9, 9), **at(3, 4)),
        row((1, 16, 12), (3, 12, 20), (8, 12), (4, 6), **at(2, 2, mask=1, batch_init=1)),
        row((1, 8, 8), (2, 32, 30), (8, 8), **at(4, 4), values="large"),
    ]
    cases += [
        row((2, 8, 8), (2, 8, 8), (8, 8), **at(2, 4, iterations=steps, batch_init=steps // 2 % 2))
        for steps in range(1, 9)
    ]
    cases += [
        row((2, 8, 8), (2, 10, 10), (4, 4), (2, 2), values=values, **at(2, 2, mask=1))
        for values in ("zero", "tiny", "large")
    ]
    cases += [
        row((2, 8, 8), (2, 10, 10), (4, 4), values="nan", **at(2, 2)),
        row((1, 14, 14), (2, 5, 5), (7, 7), (3, 3), **at(4, 4, mask=1), refused_by=EVERYWHERE),
        row((1, 8, 8), (2, 5, 5), (4, 4), (2, 2), **at(1, 2, mask=1), refused_by=EVERYWHERE),
        row((1, 8, 8), (2, 5, 5), (4, 4), (2, 2), **at(2, 1, mask=1), refused_by=EVERYWHERE),
        row((1, 9, 8), (2, 5, 5), (4, 4), **at(2, 2), refused_by=EVERYWHERE),
        row((1, 8, 8), (2, 5, 5), (4, 4), **at(2, 2, revision=2), refused_by=frozenset({"cpu"})),
    ]
    return cases


def _kernel_only() -> list[Case]:
    row = functools.partial(_window, "NystraWindowNystrom")
    landmarks = {"landmark_rows": 4, "landmark_cols": 4}
    few = {"landmark_rows": 3, "landmark_cols": 5}
    large = functools.partial(row, dtypes=("float32",))  # and bfloat16, in tiles from 1,024 tokens
    return [
        row((2, 16, 8), (2, 10, 10), (8, 8), (4, 4), **landmarks, guard=0.0, mask=1, iterations=3),
        row((2, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.0, batch_init=1, iterations=2),
        row((2, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.1, threshold=0.0),
        row((2, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.5, threshold=2.5),
        row((1, 16, 8), (2, 10, 10), (8, 8), **landmarks, guard=0.3, values="large", iterations=2),
        row((1, 8, 8), (2, 10, 10), (4, 4), **landmarks, values="huge", iterations=2),
        row(
            (1, 8, 8), (2, 10, 10), (4, 4), landmark_rows=2, landmark_cols=2, values="negative_zero"
        ),
        large((1, 32, 32), (1, 5, 3), (32, 32), **few),
        large((1, 29, 37), (2, 16, 30), (29, 37), **few, guard=0.0),
        large((1, 32, 36), (1, 1, 32), (32, 36), landmark_rows=1, landmark_cols=1),
        large((2, 32, 32), (1, 30, 17), (32, 32), (16, 16), **landmarks, mask=1, batch_init=1),
        large((1, 32, 32), (1, 70, 64), (32, 32), **landmarks, guard=0.5, iterations=2),
        large((1, 32, 32), (2, 10, 10), (32, 32), values="large", **landmarks, guard=0.3),
        large((1, 32, 32), (1, 8, 8), (32, 32), values="tiny", **landmarks),
        large((1, 32, 64), (1, 8, 8), (32, 32), values="nan", **landmarks),
    ]


def _cluster() -> list[Case]:
    row = functools.partial(_window, "NystraWindowCluster")

    def at(rows: int, cols: int, **rest: int | float) -> dict[str, int | float]:
        return {"cluster_rows": rows, "cluster_cols": cols, **rest}

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


CASES: list[Case] = [
    *_pinv(),
    *_softmax(),
    *_overlap(),
    *_nystrom("NystraWindowNystrom"),
    *_kernel_only(),
    *_nystrom("NystraWindowNystromformer"),
    *_cluster(),
    *patch_match(),
]
