"""Kernels use more than 48 KiB of shared memory if the device has it, and only then."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import emulator_build
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
        limits = (1024 * requested, *emulator_columns.LIMITS["default"][1:3], 1024 * device)
        try:
            out, = emulator_library.run(library, case, case.inputs("float32"), "float32", limits)
            seen.append([library.emulator_most_shared(), out.tolist()])
        except emulator_build.EmulatorError as error:
            seen.append([0, str(error)])
print(json.dumps(seen))
"""

KIB = [(48, 48), (48, 64), (48, 227), (228, 48)]
"""Asked for, of the device."""


@pytest.mark.full
def test_shared_memory_follows_the_device() -> None:
    """For the smallest matrices that do not fit into 48 KiB."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    rows = [case for case in CASES if case.wants_more_shared and not case.refused_by]
    case = min(rows, key=lambda row: int(np.prod(row.shape)))
    described = json.dumps([CASES.index(case)]), json.dumps(KIB)
    command = [sys.executable, "-c", SCRIPT, str(emulator_build.build()), *described]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    least, other, large, refused = json.loads(done.stdout)
    for taken, out in (least, other, large):
        compare(case, "float32", "emulator", np.array(out, np.float32))
        assert taken > 0
    assert least[0] <= 48 * 1024 < large[0] <= 227 * 1024
    assert other[0] <= 64 * 1024
    assert refused == [0, f"{case.operator}: launch: "]
