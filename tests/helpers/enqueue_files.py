"""Rows of the conformance table as files of the TensorRT conformance host."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401  # tells numpy of bfloat16
import numpy as np

from conformance_case import Case, Outputs
from nystra.plugins.operators import find_schema


def write_row(folder: Path, name: str, case: Case, dtype: str) -> list[str]:
    """Write a row's inputs; return its lines of cases.txt."""
    schema = find_schema(case.operator)
    lines = [f"case {name} {case.operator} {dtype}"]
    for attribute in schema.attributes:
        value = case.all_attributes()[attribute.name]
        lines.append(f"{attribute.kind} {attribute.name} {value}")
    for place, (of, array) in enumerate(zip(schema.inputs, case.inputs(dtype), strict=True)):
        lines.append(_line("in", "I" if of in schema.int32 else "T", array.shape))
        (folder / f"{name}.in{place}").write_bytes(np.ascontiguousarray(array).tobytes())
    for of, shape in zip(schema.outputs, case.output_shapes(), strict=True):
        lines.append(_line("out", "I" if of in schema.int32 else "T", shape))
    return [*lines, "end"]


def read_row(folder: Path, name: str, case: Case, dtype: str) -> Outputs | str:
    """Return the outputs that the host wrote for a row, or its message if it refused the row."""
    refused = folder / f"{name}.refused"
    if refused.exists():
        return refused.read_text()
    schema = find_schema(case.operator)
    results = []
    for place, (of, shape) in enumerate(zip(schema.outputs, case.output_shapes(), strict=True)):
        kind = "int32" if of in schema.int32 else dtype
        data = (folder / f"{name}.out{place}").read_bytes()
        results.append(np.frombuffer(data, np.dtype(kind)).reshape(shape))
    return results[0] if len(results) == 1 else tuple(results)


def _line(word: str, kind: str, shape: tuple[int, ...]) -> str:
    return " ".join([word, kind, *map(str, shape)])
