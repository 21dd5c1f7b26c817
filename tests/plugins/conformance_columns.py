"""The columns of the conformance table: everything that the rows run on."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import emulator_build
import emulator_columns
import kernel_columns
from conformance_case import Case, Outputs
from conformance_cases import CASES
from conformance_models import node_model, run_poisoned, session
from nystra.export.graph.portable.rewriting import OPSET, make_portable
from nystra.export.graph.portable.rules import RANK
from nystra.plugins import native
from nystra.plugins.operators.operator_torch import KERNELS_VARIABLE
from nystra.runtime import Session
from nystra.runtime.backends import find_backend

Outcome = Outputs | Exception


@dataclass(frozen=True)
class Column:
    """One way to compute a row.

    Attributes:
        name: What the test is called after.
        family: Key of the tolerances and of ``Case.refused_by``.
        run: (case, dtype) -> the output (several: a tuple), or what was raised.
        missing: Why it cannot run on this machine, or None.
        dtypes: The types a row runs in; none: it does not run.
        long: It runs with ``-m full`` only: it takes long to build, or is the same source as
            another column, otherwise set.
        sparse: Before a release it runs all rows, otherwise every third: what it adds to another
            column is the same in all.
    """

    name: str
    family: str
    run: Callable[[Case, str], Outcome]
    missing: Callable[[], str | None] = lambda: None
    dtypes: Callable[[Case], tuple[str, ...]] = lambda case: case.dtypes
    long: bool = False
    sparse: bool = False

    def marks(self, case: Case) -> list[pytest.MarkDecorator]:
        """Marks of a row."""
        if self.sparse and CASES.index(case) % 3:
            return [pytest.mark.release]
        return [pytest.mark.full] if self.long or is_long(case) else []


def is_long(case: Case) -> bool:
    """Whether a row runs with ``-m full`` only: large ones, and three of four others."""
    return case.large or CASES.index(case) % 4 > 0


def _outputs(results: list[np.ndarray]) -> Outputs:
    return results[0] if len(results) == 1 else tuple(results)


def run_torch(case: Case, dtype: str) -> Outcome:
    """The torch op without the kernels, which are a column of their own."""
    importlib.import_module(f"nystra.plugins.operators.{case.folder}.torch_op")
    operator = getattr(torch.ops.nystra, case.folder)
    names = [argument.name for argument in operator.default._schema.arguments]
    tensors = [torch.from_numpy(array) for array in case.inputs(dtype)]
    attributes = case.all_attributes()
    attributes = {name: attributes[name] for name in names[len(tensors) :]}
    torch.use_deterministic_algorithms(True)  # empty tensors are then filled with NaN
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(KERNELS_VARIABLE, "0")
            result = operator(*tensors, **attributes)
        results = [result] if isinstance(result, torch.Tensor) else result
        return _outputs([result.numpy() for result in results])
    except Exception as error:
        return error
    finally:
        torch.use_deterministic_algorithms(False)


def run_body(case: Case, dtype: str) -> Outcome:
    runner = session(node_model(case, dtype=dtype))
    return _outputs(run_poisoned(runner, case.inputs(dtype), case.output_shapes()))


def run_portable(case: Case, dtype: str) -> Outcome:
    """The body at one size: sizes and attributes are numbers when it is written."""
    model = node_model(case, dtype=dtype, functions=False, opset=OPSET)
    for value, array in zip(model.graph.input, case.inputs(dtype), strict=True):
        for dimension, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dimension.dim_value = size
    try:
        left_over = make_portable(model).notes
    except Exception as error:
        return error
    many = sum(len(shape) > RANK for shape in case.output_shapes())  # as the row itself has
    expected = [f"{many} nodes have more than {RANK} axes"] if many else []
    assert [sentence.partition(",")[0] for sentence in left_over] == expected
    onnx.checker.check_model(model, full_check=True)
    runner = session(model, planned=True)
    return _outputs(run_poisoned(runner, case.inputs(dtype), case.output_shapes()))


def run_native(case: Case, dtype: str) -> Outcome:
    """The row through the C interface, on the default instruction set of this machine."""
    try:
        return _outputs(kernel_columns.through_c(case, dtype))
    except Exception as error:
        return error


def run_openvino(case: Case, dtype: str) -> Outcome:
    """The row as a file of one node in OpenVINO."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "node.onnx"
        file.write_bytes(node_model(case, dtype=dtype, functions=False).SerializeToString())
        try:
            runner = Session(file, "openvino", threads=2)
            names = [tensor.name for tensor in runner.inputs]
            feeds = dict(zip(names, case.inputs(dtype), strict=True))
            return _outputs(list(runner.run(feeds).values()))
        except Exception as error:
            return error


def _openvino_missing() -> str | None:
    usable, reason = find_backend("openvino").available()
    return reason if not usable else None if native.available() else "libnystra_cpu.so is not built"


COLUMNS: list[Column] = [
    *(
        Column(
            name + half,
            name,
            run,
            dtypes=lambda case, part=part: case.dtypes[part],
            long=bool(half),
            sparse=bool(half),
        )
        for name, run in (("torch", run_torch), ("body", run_body))
        for half, part in (("", slice(1)), ("-half", slice(1, None)))
    ),
    Column(
        "portable",
        "body",
        run_portable,
        dtypes=lambda case: () if case.operator == "NystraPatchMatch" else case.dtypes[:1],
        sparse=True,
    ),
    *(
        Column(
            f"cpu-{isa}",
            "cpu",
            functools.partial(kernel_columns.run, isa),
            functools.partial(kernel_columns.missing, flag),
            emulator_columns.gpu_types,
            long=isa != "avx512",
        )
        for isa, flag in (
            ("generic", None),
            ("avx2", "avx2"),
            ("avx512", "avx512f"),
            ("avx512_bf16", "avx512_bf16"),
            ("amx", "amx_bf16"),
        )
    ),
    Column(
        "cpu-interface",
        "cpu",
        run_native,
        lambda: None if native.available() else "libnystra_cpu.so is not built",
        emulator_columns.gpu_types,
    ),
    Column("openvino", "cpu", run_openvino, _openvino_missing, long=True, sparse=True),
    *(
        Column(
            f"emulator-{build}-{limits}",
            "emulator",
            functools.partial(emulator_columns.run, build, limits),
            emulator_build.missing,
            functools.partial(emulator_columns.dtypes, build, limits),
            long=True,
        )
        for build in emulator_columns.builds()
        for limits in emulator_columns.LIMITS
    ),
]
