"""Rows of the conformance table and whole models in files, replayed where no tests are installed.

``rows.txt`` has a line a fact, its words between tabs; ``rows.bin`` has the numbers. Lines that
follow a row are its own:

    row      operator or -   model file   refused: 0 or 1   name of the row
    integer  attribute       value
    number   attribute       value
    input    name            type         offset            sizes
    output   name            type         offset            largest error   sizes

Inputs are of their type; what an output is expected to be is float64. A row without an operator is
a whole model. ``replay.py`` and the programs of ``host`` read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conformance_case import Case
from conformance_cases import CASES, expected
from conformance_models import node_model
from conformance_tolerance import allowed
from nystra.plugins.operators import find_schema
from nystra.runtime import Session
from operators.patch_match import PatchMatchCase

Named = dict[str, np.ndarray]


class Recorder:
    """A folder that is filled with rows."""

    def __init__(self, folder: Path) -> None:
        """Make the folder."""
        folder.mkdir(parents=True)
        self.folder = folder
        self._lines: list[str] = []
        self._numbers = (folder / "rows.bin").open("wb")
        self._count = 0

    def close(self) -> None:
        """Write the list of what was added."""
        self._numbers.close()
        (self.folder / "rows.txt").write_text("\n".join(self._lines) + "\n", encoding="utf-8")

    def add_case(self, case: Case, dtype: str) -> None:
        """Add a row of the conformance table: the output of its reference, and its tolerance."""
        schema = find_schema(case.operator)
        model = node_model(case, dtype=dtype, functions=False)
        arrays = case.inputs(dtype)
        inputs = {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}
        self._row(case.operator, model.SerializeToString(), case.refused_by, f"{case.id} {dtype}")
        kinds = {attribute.name: attribute.kind for attribute in schema.attributes}
        for name, value in case.all_attributes().items():
            self._line("integer" if kinds[name] == "int" else "number", name, repr(value))
        self._inputs(inputs)
        outputs, bound = _expected(case, dtype)
        for info, output in zip(model.graph.output, outputs, strict=True):
            kind = "int32" if info.name.rpartition("_")[0] in schema.int32 else dtype
            self._output(info.name, kind, output, bound)

    def add_model(self, model: Path, inputs: Named, bound: float) -> None:
        """Add a whole model: the output of its standard operators on this machine."""
        self._row("-", model.read_bytes(), frozenset(), model.name)
        self._inputs(inputs)
        session = Session(model, "ort-cpu", library=None)
        for name, output in session.run(inputs).items():
            self._output(name, output.dtype.name, output, bound)

    def _row(self, operator: str, model: bytes, refused_by: frozenset[str], name: str) -> None:
        file = f"{self._count}.onnx"
        (self.folder / file).write_bytes(model)
        self._count += 1
        self._line("row", operator, file, int(bool(refused_by)), name)

    def _inputs(self, inputs: Named) -> None:
        for name, array in inputs.items():
            self._line("input", name, array.dtype.name, self._kept(array), *array.shape)

    def _output(self, name: str, kind: str, output: np.ndarray, bound: float) -> None:
        offset = self._kept(output.astype(np.float64))
        self._line("output", name, kind, offset, repr(float(bound)), *output.shape)

    def _kept(self, array: np.ndarray) -> int:
        self._numbers.write(b"\0" * (-self._numbers.tell() % 8))
        offset = self._numbers.tell()
        self._numbers.write(np.ascontiguousarray(array).tobytes())
        return offset

    def _line(self, *words: object) -> None:
        self._lines.append("\t".join(map(str, words)))


def _expected(case: Case, dtype: str) -> tuple[tuple[np.ndarray, ...], float]:
    """The expected outputs of a row, and their tolerances."""
    if case.refused_by:
        return (np.zeros(()),) * len(find_schema(case.operator).outputs), 0.0
    outputs = expected(case, dtype)
    if isinstance(outputs, tuple):  # index and score of a search, the same everywhere
        return (outputs[0], outputs[1].astype(dtype)), 0.0
    return (outputs,), allowed(case, dtype, "cpu")


def is_recorded(case: Case) -> bool:
    """Whether a row is compared as numbers; searches of real numbers are not."""
    if case.refused_by:
        return "cpu" in case.refused_by
    return not isinstance(case, PatchMatchCase) or case.exact


def record(folder: Path, every: int = 1, models: Sequence[tuple[Path, Named, float]] = ()) -> None:
    """Write every n-th row of each operator, in float32 and float16, and whole models.

    Args:
        folder: Is made.
        every: 1: all rows.
        models: File, inputs by name, and how far an output may be off.
    """
    recorder = Recorder(folder)
    for operator in dict.fromkeys(case.operator for case in CASES):
        cases = [case for case in CASES if case.operator == operator and is_recorded(case)]
        good = [case for case in cases if not case.refused_by]
        for case in [*good[::every], *(case for case in cases if case.refused_by)]:
            for dtype in case.dtypes:
                recorder.add_case(case, dtype)
    for model, inputs, bound in models:
        recorder.add_model(model, inputs, bound)
    recorder.close()
