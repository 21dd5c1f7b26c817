"""Kernels use more than 48 KiB of shared memory if the device has it, and only then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import emulator_build
from conformance_case import Case
from conformance_cases import CASES
from conformance_tolerance import compare

SCRIPT = """
import json, sys
import emulator_build, emulator_columns, emulator_library
from conformance_cases import CASES
library, seen = emulator_library.load(sys.argv[1]), []
for row in json.loads(sys.argv[2]):
    for requested, device in json.loads(sys.argv[3]):
        case = CASES[row]
        limits = (1024 * requested, *emulator_columns.LIMITS["default"][1:4], 1024 * device)
        try:
            out, = emulator_library.run(library, case, case.inputs("float32"), "float32", limits)
            seen.append([library.emulator_most_shared(), out.tolist()])
        except emulator_build.EmulatorError as error:
            seen.append([0, str(error)])
print(json.dumps(seen))
"""

OPERATORS = ("NystraPinv", "NystraWindowNystrom", "NystraWindowNystromformer")
KIB = [(48, 48), (48, 64), (48, 227), (228, 48)]
"""Asked for, of the device."""


def _smallest(operator: str) -> Case:
    """The smallest row of an operator that does not fit into 48 KiB."""
    rows = [
        case
        for case in CASES
        if case.operator == operator and not case.refused_by and case.wants_more_shared
    ]
    return min(rows, key=lambda case: int(np.prod(case.shape)))


def _run(cases: list[Case], kib: list[tuple[int, int]]) -> list[Any]:
    """The largest shared memory and the output of each case, for each shared memory of a device."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    rows = json.dumps([CASES.index(case) for case in cases])
    command = [sys.executable, "-c", SCRIPT, str(emulator_build.build()), rows, json.dumps(kib)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    seen: list[Any] = json.loads(done.stdout)
    return seen


@pytest.mark.full
def test_shared_memory_is_not_taken_for_fewer_warps() -> None:
    """A biased window 16 in shared memory leaves 8 warps, otherwise there are 12."""
    case = next(
        case
        for case in CASES
        if case.operator == "NystraWindowCluster"
        and case.attributes["window_h"] == 16
        and case.attributes.get("bias")
    )
    ((taken, out),) = _run([case], [(48, 227)])
    compare(case, "float32", "emulator", np.array(out, np.float32))
    assert 0 < taken <= 48 * 1024


@pytest.mark.full
def test_shared_memory_follows_the_device() -> None:
    cases = [_smallest(operator) for operator in OPERATORS]
    seen = _run(cases, KIB)
    for place, case in enumerate(cases):
        least, other, large, refused = seen[4 * place : 4 * place + 4]
        for taken, out in (least, other, large):
            compare(case, "float32", "emulator", np.array(out, np.float32))
            assert taken > 0
        assert least[0] <= 48 * 1024 < large[0] <= 227 * 1024
        assert other[0] <= 64 * 1024
        assert refused == [0, f"{case.operator}: launch: "]
