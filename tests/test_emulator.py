"""The block emulator notices faults of kernels: each of ``tests/emulator/faults.cu`` is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import emulator_library

FAULTS = (
    "none",
    "barrier",
    "warp",
    "divergent",
    "shuffle",
    "too much",
    "unwritten",
    "two blocks",
)

SCRIPT = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.emulator_error.restype = ctypes.c_char_p
outcomes = []
for fault in range(int(sys.argv[2])):
    seen = []
    for seed in (0, 1, 2):
        out = (ctypes.c_float * 128)()
        status = library.emulated_fault(fault, seed, out)
        seen.append([status, library.emulator_error().decode(), [str(x) for x in out]])
    outcomes.append(seen)
print(json.dumps(outcomes))
"""


@pytest.fixture(scope="module", params=["plain", "race"])
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, list[tuple[int, str, list[str]]]]]:
    """The build, and what it says of each fault in each order of threads."""
    if reason := emulator_library.missing():
        pytest.skip(reason)
    build = request.param
    sources = [emulator_library.ROOT / "tests" / "emulator" / name for name in FILES]
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    emulator_library.compile_library(build, sources, library)
    command = [sys.executable, "-c", SCRIPT, str(library), str(len(FAULTS))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return build, dict(zip(FAULTS, json.loads(done.stdout), strict=True))


FILES = ("faults.cu", "races.cc")


def test_a_right_kernel_is_right(outcomes) -> None:  # type: ignore[no-untyped-def]
    expected = [str(float((i + 1) % 64 + (i + 63) % 64)) for i in range(64)] * 2
    for status, error, out in outcomes[1]["none"]:
        assert (status, error, out) == (0, "", expected)


def test_a_missing_barrier_is_noticed(outcomes) -> None:  # type: ignore[no-untyped-def]
    build, found = outcomes
    right = found["none"][0][2]
    if build == "race":  # in every order; the order says which of the two threads is first
        for fault in ("barrier", "warp", "two blocks"):
            assert all("race: " in error for _, error, _ in found[fault]), found[fault]
    else:
        assert any(out != right for _, _, out in found["barrier"])
        assert any(out != right for _, _, out in found["warp"])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("divergent", "threads of a block wait for each other: .*left the kernel.*faults.cu:"),
        ("shuffle", "a shuffle reads a lane outside its mask: .*faults.cu:"),
        ("too much", "the shared arrays need more bytes than the launch gave"),
    ],
)
def test_a_launch_fails(outcomes, fault: str, message: str) -> None:  # type: ignore[no-untyped-def]
    for status, error, _ in outcomes[1][fault]:
        assert status == 719
        with pytest.raises(RuntimeError, match=message):
            raise RuntimeError(error)


def test_unwritten_shared_memory_is_nan(outcomes) -> None:  # type: ignore[no-untyped-def]
    for _, _, out in outcomes[1]["unwritten"]:
        assert [i for i, value in enumerate(out) if "nan" in value] == [4, 6, 68, 70]


def test_sources_of_the_library_exist() -> None:
    names = {Path(one).stem for one in emulator_library.KERNELS}
    assert names >= {"pinv", "window_softmax", "window_nystrom", "window_nystromformer"}
