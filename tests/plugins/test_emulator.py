"""The block emulator detects each fault of ``emulator/faults.cu``."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import emulator_build

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

Outcomes = tuple[str, dict[str, list[tuple[int, str, list[str]]]]]
"""The build, and its report on each fault in each order of threads."""


@pytest.fixture(scope="module", params=["plain", pytest.param("race", marks=pytest.mark.full)])
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Every fault, run in a process of its own."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    build = request.param
    sources = [emulator_build.ROOT / "tests" / "plugins" / "emulator" / name for name in FILES]
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    emulator_build.compile_library(build, sources, library)
    command = [sys.executable, "-c", SCRIPT, str(library), str(len(FAULTS))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return build, dict(zip(FAULTS, json.loads(done.stdout), strict=True))


FILES = ("faults.cu", "races.cc")


@pytest.mark.full
def test_a_right_kernel_is_right(outcomes: Outcomes) -> None:
    expected = [str(float((i + 1) % 64 + (i + 63) % 64)) for i in range(64)] * 2
    for status, error, out in outcomes[1]["none"]:
        assert (status, error, out) == (0, "", expected)


@pytest.mark.full
def test_a_missing_barrier_is_noticed(outcomes: Outcomes) -> None:
    build, results = outcomes
    right = results["none"][0][2]
    if build == "race":  # in every order; the order says which of the two threads is first
        for fault in ("barrier", "warp", "two blocks"):
            assert all("race: " in error for _, error, _ in results[fault]), results[fault]
    else:
        assert any(out != right for _, _, out in results["barrier"])
        assert any(out != right for _, _, out in results["warp"])


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("divergent", "threads of a block wait for each other: .*left the kernel.*faults.cu:"),
        ("shuffle", "a shuffle reads a lane outside its mask: .*faults.cu:"),
        ("too much", "the shared arrays need more bytes than the launch gave"),
    ],
)
def test_a_launch_fails(outcomes: Outcomes, fault: str, message: str) -> None:
    for status, error, _ in outcomes[1][fault]:
        assert status == 719
        assert re.search(message, error), error


def test_unwritten_shared_memory_is_nan(outcomes: Outcomes) -> None:
    for _, _, out in outcomes[1]["unwritten"]:
        assert [i for i, value in enumerate(out) if "nan" in value] == [4, 6, 68, 70]
