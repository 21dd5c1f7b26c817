"""Rows of operators with plugins through the conformance host: writing and judging them.

    python tests/plugins/enqueue_table.py write FOLDER [--every N] [--types float32,float16]
    python tests/plugins/enqueue_table.py judge FOLDER OUT FILE.json
    python tests/plugins/enqueue_table.py times FOLDER
    python tests/plugins/enqueue_table.py expected FOLDER

``write`` leaves what ``nystra_trt_host LIBRARY --enqueue FOLDER OUT`` reads, ``judge`` compares
what it wrote with the references, ``times`` leaves cases of whole images for ``--time``,
``expected`` computes the references for a machine that is to judge without PyTorch
(NYSTRA_EXPECTED). Needs ``tests/helpers`` and the package on the path.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from conformance_case import Case
from conformance_cases import CASES, expected
from conformance_store import STORE_VARIABLE, save
from conformance_tolerance import allowed, compare, difficulty
from emulator_columns import gpu_types
from enqueue_files import read_row, write_row
from enqueue_times import write_times
from operator_tests import CUDA_OPERATORS

Row = tuple[int, str]
"""A row's number in the table, and the type it runs in."""


def rows(every: int = 1, types: Iterable[str] = ()) -> list[Row]:
    """Every n-th row of the table with a plugin, in all its types or in those of ``types``."""
    chosen = [row for row, case in enumerate(CASES) if case.operator in CUDA_OPERATORS]
    requested = set(types)
    return [
        (row, dtype)
        for row in chosen[::every]
        for dtype in gpu_types(CASES[row])
        if not requested or dtype in requested
    ]


def name(row: Row) -> str:
    """The name of a row's files."""
    return f"{row[0]}_{row[1]}"


def write(folder: Path, chosen: Iterable[Row]) -> None:
    """Write the inputs of rows, and ``cases.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [line for row in chosen for line in write_row(folder, name(row), CASES[row[0]], row[1])]
    (folder / "cases.txt").write_text("\n".join(lines))


def written(folder: Path) -> list[Row]:
    """The rows of a folder that `write` filled."""
    text = (folder / "cases.txt").read_text().splitlines()
    names = [line.split()[1].partition("_") for line in text if line.startswith("case ")]
    return [(int(row), dtype) for row, _, dtype in names]


def judge(out: Path, row: Row) -> dict[str, Any]:
    """Compare a row with its reference.

    Returns:
        ``ok``; ``reason`` where it is not; ``margin``, the error as a share of what is allowed.
    """
    case, dtype = CASES[row[0]], row[1]
    outcome: dict[str, Any] = {"row": row[0], "type": dtype, "operator": case.operator}
    try:
        got = read_row(out, name(row), case, dtype)
        if isinstance(got, str):
            right = bool(case.refused_by) and case.operator in got
            return outcome | {"ok": right} | ({} if right else {"reason": f"refused: {got[:300]}"})
        if case.refused_by:
            return outcome | {"ok": False, "reason": "taken, though it must be refused"}
        if isinstance(got, np.ndarray):
            outcome["margin"] = _margin(case, dtype, got)
        compare(case, dtype, "emulator", got)
    except (AssertionError, OSError, ValueError) as error:
        return outcome | {"ok": False, "reason": f"{case.id}: {error}"[:600]}
    return outcome | {"ok": True}


def _margin(case: Case, dtype: str, got: np.ndarray) -> float | None:
    want = expected(case, dtype)
    bound = allowed(case, dtype, "emulator")
    if not isinstance(want, np.ndarray) or got.shape != want.shape or bound <= 0:
        return None
    error = float(np.nanmax(np.abs(got.astype(np.float64) - want), initial=0.0))
    return error / bound if np.isfinite(error) else None


def summary(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, failures, and the largest margin of each operator and type."""
    margins: dict[str, float] = {}
    for one in outcomes:
        if one.get("margin") is not None:
            key = f"{one['operator']} {one['type']}"
            margins[key] = round(max(margins.get(key, 0.0), one["margin"]), 4)
    failed = [one for one in outcomes if not one["ok"]]
    return {"rows": len(outcomes), "failed": len(failed), "failures": failed, "margins": margins}


def write_expected(folder: Path) -> None:
    """Write the references and difficulties of all rows, in float32, for NYSTRA_EXPECTED."""
    folder.mkdir(parents=True, exist_ok=True)
    for row, dtype in rows():
        if CASES[row].refused_by:
            continue
        want = expected(CASES[row], dtype)
        parts = want if isinstance(want, tuple) else (want,)
        short = [part.astype(np.float32) if part.dtype == np.float64 else part for part in parts]
        save(folder / f"{row}.{dtype}.npz", short)
        if len(short) == 1:
            save(folder / f"{row}.{dtype}.difficulty.npz", [np.array(difficulty(row, dtype))])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=("write", "judge", "times", "expected"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--every", type=int, default=1, help="every so-many-th row")
    parser.add_argument("--types", default="", help="of the rows, with commas")
    parser.add_argument("--small", action="store_true", help="times of small images")
    args = parser.parse_args()
    if args.do == "write":
        write(args.folder, rows(args.every, filter(None, args.types.split(","))))
    elif args.do == "times":
        write_times(args.folder, small=args.small)
    elif args.do == "expected":
        write_expected(args.folder)
    elif args.out is None or args.file is None:
        parser.error(f"judge FOLDER OUT FILE.json; the references are in {STORE_VARIABLE}")
    else:
        outcomes = [judge(args.out, row) for row in written(args.folder)]
        args.file.write_text(json.dumps(summary(outcomes), indent=1))


if __name__ == "__main__":
    main()
