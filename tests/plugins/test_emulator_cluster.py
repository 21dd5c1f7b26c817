"""Clusters on tensor cores: the emulator detects each fault that is planted in the source."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import emulator_build
from conformance_case import Case
from conformance_cases import CASES
from conformance_tolerance import compare

KERNELS = emulator_build.CSRC / "kernels" / "cuda"
DRIVER = emulator_build.EMULATOR / "cluster_faults.cu"
SIZES = [
    *("heads", "head_dim", "value_dim", "window_h", "window_w", "shift_h", "shift_w", "mask"),
    *("cluster_rows", "cluster_cols", "rounds", "block", "bias_block"),
]

SCRIPT = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.emulator_error.restype = ctypes.c_char_p
ctypes.c_int.in_dll(library, "planted_fault").value = int(sys.argv[2])
words = lambda numbers: (ctypes.c_uint16 * len(numbers))(*numbers)
seen = []
for sizes, scale, qkv, bias, count in json.load(sys.stdin):
    for seed in json.loads(sys.argv[3]):
        out = (ctypes.c_uint16 * count)()
        status = library.emulated_cluster(
            seed, (ctypes.c_int64 * 16)(*sizes), ctypes.c_float(scale), words(qkv),
            words(bias) if bias else None, out,
        )
        seen.append([status, library.emulator_error().decode(), list(out)])
print(json.dumps(seen))
"""


class Fault(NamedTuple):
    """A text of a kernel header, and its replacement: an expression, or nothing for a statement."""

    header: str
    text: str
    instead: str = ""

    def planted(self, number: int) -> str:
        """Return a text that is the fault while ``planted_fault`` is that number."""
        if not self.instead:
            return f"if (planted_fault != {number}) {self.text}"
        return f"(planted_fault == {number} ? {self.instead} : {self.text})"


HALF_ALONE = Fault(
    "elements.h",
    """\
    case Type::kBfloat16: return f(static_cast<__nv_bfloat16*>(nullptr));
    default: return f(static_cast<float*>(nullptr));
""",
    "    default: return f(static_cast<__half*>(nullptr));\n",
)
"""No fault: kernels of other types than that of the rows are not compiled, in half the time."""

WRONG = {
    "no wait for a tile": Fault("cluster_tensor.h", "wait_for_copies<1>();"),
    "no wait for own tokens": Fault("cluster_attend_tensor.h", "wait_for_copies<0>();"),
    "members of other tokens": Fault(
        "cluster_tensor.h", "2 * in + i / 2 * 8", "2 * in + i / 2 * 8 + 1"
    ),
    "clusters of the other half": Fault(
        "cluster_tensor.h",
        "(low == group + 8 ? one : 0u) | (high == group + 8 ? other : 0u)",
        "(low == group ? one : 0u) | (high == group ? other : 0u)",
    ),
    "the nearest of another token": Fault("cluster_tensor.h", "lane % 8 * 4", "lane % 4 * 4"),
    "words of keys exchanged": Fault(
        "cluster_tensor.h",
        "(16 * half + lane % 16) * kStep + lane / 16 * 8",
        "(16 * half + lane / 2) * kStep + lane % 2 * 8",
    ),
    "centers without the origin": Fault(
        "cluster_tensor.h", "fmaf(-members, b.origin[c], sum)", "fmaf(0.0f, b.origin[c], sum)"
    ),
    "logits without the origin": Fault(
        "cluster_attend_tensor.h",
        "multiply_add_16<T>(base, q[n], origin[0], origin[1])",
        "multiply_add_16<T>(base, q[n], 0 * origin[0], 0u)",
    ),
}
"""Faults that give another result."""

ONE_PIECE = Fault("cluster_tensor.h", "__half> ? 2 : 3", "__half> ? 1 : 3")
"""One piece of a center, in a template: it is compiled alone."""

RACES = {
    "lanes do not meet behind the wait": Fault(
        "cluster_tensor.h", "__syncwarp();  // the copies of all lanes are visible"
    ),
    "a tile is written over": Fault("cluster_tensor.h", "__syncwarp();  // and may be overwritten"),
    "own tokens are not waited for": Fault(
        "cluster_attend_tensor.h", "__syncwarp();  // the copies of all lanes are visible"
    ),
    "means are not waited for": Fault(
        "cluster_attend_tensor.h", "__syncwarp();  // the means of all lanes are visible"
    ),
    "pieces are not waited for": Fault(
        "cluster_tensor.h", "__syncthreads();  // the pieces of all threads are visible"
    ),
    "sums are not waited for": Fault(
        "cluster_tensor.h", "__syncthreads();  // the sums of all warps are visible"
    ),
}
"""Faults that are races."""

PLANTED = [*WRONG.values(), *RACES.values()]
"""All that one library has: the number of a fault is its place, from 1."""

ROWS = [
    case
    for case in CASES
    if case.operator == "NystraWindowCluster"
    and not case.refused_by
    and case.values in ("normal", "far_keys")
    and case.attributes["window_h"] * case.attributes["window_w"] in (64, 195, 256)
    and "float16" in case.dtypes
    and not case.attributes["head_dim"] % 2
    and not case.attributes["value_dim"] % 2
][:4]


def _built(build: str, folder: Path, changed: Fault | None = None) -> Path:
    """The library of the kernel with the faults that can be planted, or with a changed text."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    for file in (*KERNELS.glob("*.h"), KERNELS / "window_cluster.cu", DRIVER):
        shutil.copy(file, folder)
    texts = [(HALF_ALONE, HALF_ALONE.instead)]
    if changed:
        texts.append((changed, changed.instead))
    else:
        texts += [(fault, fault.planted(number)) for number, fault in enumerate(PLANTED, 1)]
    for fault, text in texts:
        header = folder / fault.header
        source = header.read_text()
        assert source.count(fault.text) == 1, f"{fault.text!r} is not once in {fault.header}"
        header.write_text(source.replace(fault.text, text))
    for name in {fault.header for fault in PLANTED}:
        declared = 'extern "C" int planted_fault;\n' + (folder / name).read_text()
        (folder / name).write_text(declared)
    races = emulator_build.EMULATOR / "races.cc"
    library = folder / "cluster.so"
    sources = [folder / "window_cluster.cu", folder / DRIVER.name, races]
    emulator_build.compile_library(build, sources, library, ["-O1"])
    return library


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("plain", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("race", tmp_path_factory.mktemp("race"))


def _orders(fault: Fault | None) -> list[int]:
    return [0] if fault else [0, 1, 2]


def _run(library: Path, fault: Fault | None = None) -> list[tuple[int, str, np.ndarray]]:
    """The result of each row: status, error, output.

    Without a fault in each order of the threads; one order shows a fault.
    """
    requests = []
    for case in ROWS:
        attributes = case.all_attributes()
        qkv, table = (array.view(np.uint16).ravel().tolist() for array in case.inputs("float16"))
        sizes = [*case.shape[:3], *(int(attributes[name]) for name in SIZES)]
        count = int(np.prod(case.output_shapes()[0]))
        requests.append(
            [sizes, attributes["scale"], qkv, table if attributes["bias"] else [], count]
        )
    number = PLANTED.index(fault) + 1 if fault else 0
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(library), str(number), str(_orders(fault))],
        input=json.dumps(requests), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [
        (status, error, np.array(out, np.uint16).view(np.float16))
        for status, error, out in json.loads(done.stdout)
    ]


def _right(case: Case, outcome: tuple[int, str, np.ndarray]) -> bool:
    status, error, out = outcome
    if status or error:
        return False
    try:
        compare(case, "float16", "emulator", out.reshape(case.output_shapes()[0]))
    except AssertionError:
        return False
    return True


def _outcomes(library: Path, fault: Fault | None = None) -> list[bool]:
    cases = [case for case in ROWS for _ in _orders(fault)]
    return [_right(*pair) for pair in zip(cases, _run(library, fault), strict=True)]


@pytest.mark.full
@pytest.mark.parametrize("build", ["plain", "race"])
def test_without_a_fault_all_is_right(build: str, request: pytest.FixtureRequest) -> None:
    assert all(_outcomes(request.getfixturevalue(build)))


@pytest.mark.full
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_product_is_noticed(name: str, plain: Path) -> None:
    assert not all(_outcomes(plain, WRONG[name]))


@pytest.mark.full
def test_one_piece_of_a_center_is_noticed(tmp_path: Path) -> None:
    assert not all(_outcomes(_built("plain", tmp_path, ONE_PIECE)))


@pytest.mark.full
@pytest.mark.parametrize("name", RACES)
def test_a_race_is_noticed(name: str, race: Path) -> None:
    assert any("race: " in error for _, error, _ in _run(race, RACES[name]))
