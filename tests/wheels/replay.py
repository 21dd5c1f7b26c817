"""Replays recorded rows on an installed nystra: the C interface, and onnxruntime if installed.

    python replay.py FOLDER

Needs nystra and numpy alone. Prints the instruction set and how many rows agreed on each; what does
not agree is printed, and the exit code is 1.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nystra.plugins import native
from nystra.plugins.library import isa, library_path


@dataclass
class Output:
    """An expected output, and its tolerance."""

    name: str
    kind: str
    bound: float
    values: np.ndarray


@dataclass
class Row:
    """One recorded row."""

    operator: str
    model: Path
    refused: bool
    name: str
    attributes: dict[str, int | float] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)


def read(folder: Path) -> list[Row]:
    """Read a folder that was recorded."""
    numbers = (folder / "rows.bin").read_bytes()

    def array(kind: str, offset: str, sizes: list[str]) -> np.ndarray:
        shape = tuple(map(int, sizes))
        flat = np.frombuffer(numbers, kind, int(np.prod(shape)), int(offset))
        return flat.reshape(shape)

    rows: list[Row] = []
    for line in (folder / "rows.txt").read_text(encoding="utf-8").splitlines():
        what, name, *words = line.split("\t")
        if what == "row":
            rows.append(Row(name, folder / words[0], words[1] == "1", words[2]))
        elif what == "integer":
            rows[-1].attributes[name] = int(words[0])
        elif what == "number":
            rows[-1].attributes[name] = float(words[0])
        elif what == "input":
            rows[-1].inputs[name] = array(words[0], words[1], words[2:])
        else:
            kind, offset, bound, *sizes = words
            values = array("float64", offset, sizes)
            rows[-1].outputs.append(Output(name, kind, float(bound), values))
    return rows


def by_interface(row: Row) -> list[np.ndarray]:
    """Run a row through the C interface."""
    return native.run(row.operator, list(row.inputs.values()), row.attributes, threads=2)


def by_onnxruntime(row: Row) -> list[np.ndarray]:
    """Run a row's model in onnxruntime with the operator library; no node has a body."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library_path()))
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(str(row.model), options, providers=providers)
    results: list[np.ndarray] = session.run([output.name for output in row.outputs], row.inputs)
    return results


def fault(row: Row, run: Any) -> str | None:
    """Return what is wrong with a row on one of the two, or None."""
    try:
        results = run(row)
    except Exception as error:  # what onnxruntime raises has no common class
        if row.refused and row.operator in str(error):
            return None
        return f"{type(error).__name__}: {error}"
    if row.refused:
        return "was not refused"
    for output, got in zip(row.outputs, results, strict=True):
        if got.dtype != output.kind or got.shape != output.values.shape:
            return f"{got.dtype} {got.shape}; expected {output.kind} {output.values.shape}"
        if reason := _difference(got.astype(np.float64), output):
            return f"{output.name}: {reason}"
    return None


def _difference(got: np.ndarray, output: Output) -> str | None:
    want = output.values
    if (np.isnan(got) != np.isnan(want)).any():
        return "NaN in other positions"
    same = (got == want) | np.isnan(want)
    error = float(np.abs(got[~same] - want[~same]).max(initial=0.0))
    return None if error <= output.bound else f"off by {error}; at most {output.bound} is allowed"


def main() -> int:
    """Replay the rows of the folder on the command line."""
    rows = read(Path(sys.argv[1]))
    ways = {"interface": by_interface, "onnxruntime": by_onnxruntime}
    faults, lines = 0, [f"instruction set {isa()}"]
    for way, run in ways.items():
        chosen = [row for row in rows if way == "onnxruntime" or row.operator != "-"]
        wrong = [(row, reason) for row in chosen if (reason := fault(row, run)) is not None]
        lines.append(f"{way}: {len(chosen) - len(wrong)} of {len(chosen)} rows agree")
        lines += [f"  {row.name}: {reason}" for row, reason in wrong]
        faults += len(wrong)
    sys.stdout.write("\n".join([*lines, ""]))
    return 1 if faults or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
