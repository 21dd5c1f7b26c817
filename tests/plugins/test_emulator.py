"""The block emulator detects each fault of ``emulator/faults.cu``."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
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
a, b = ((ctypes.c_float * len(one))(*one) for one in json.loads(sys.argv[3]))
products = []
for fault in range(5):
    out = (ctypes.c_float * 128)()
    status = library.emulated_product(fault, a, b, out)
    products.append([status, library.emulator_error().decode(), list(out)])
tiles = []
for dtype, words in enumerate(json.loads(sys.argv[4])):
    a, b = ((ctypes.c_uint16 * len(one))(*one) for one in words)
    tiles.append([])
    for fault in range(8):
        out = (ctypes.c_float * 128)()
        status = library.emulated_tile(fault, dtype, a, b, out)
        tiles[-1].append([status, library.emulator_error().decode(), [str(x) for x in out]])
print(json.dumps([outcomes, products, tiles]))
"""

RNG = np.random.default_rng(7)
LEFT = RNG.standard_normal((16, 8)).astype(np.float32)
RIGHT = RNG.standard_normal((8, 8)).astype(np.float16).astype(np.float32)

TILE = (RNG.standard_normal((16, 16)), RNG.standard_normal((16, 8)))
TILES = {
    "float16": [one.astype(np.float16) for one in TILE],
    "bfloat16": [one.astype(ml_dtypes.bfloat16) for one in TILE],
}
"""Left and right factor of a product of 16 bits an entry."""


@pytest.fixture(scope="module", params=["plain", pytest.param("race", marks=pytest.mark.full)])
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[
    str,
    list[list[tuple[int, str, list[str]]]],
    list[tuple[int, str, list[float]]],
    list[list[tuple[int, str, list[str]]]],
]:
    """The build, and its report on faults, products and tiles."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    build = request.param
    sources = [emulator_build.ROOT / "tests" / "plugins" / "emulator" / name for name in FILES]
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    emulator_build.compile_library(build, sources, library)
    factors = json.dumps([LEFT.ravel().tolist(), RIGHT.ravel().tolist()])
    words = json.dumps([[x.view(np.uint16).ravel().tolist() for x in of] for of in TILES.values()])
    command = [sys.executable, "-c", SCRIPT, str(library), str(len(FAULTS)), factors, words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return build, *json.loads(done.stdout)


@pytest.fixture
def outcomes(reports) -> tuple[str, dict[str, list[tuple[int, str, list[str]]]]]:  # type: ignore[no-untyped-def]
    """The build, and its report on each fault in each order of threads."""
    return reports[0], dict(zip(FAULTS, reports[1], strict=True))


FILES = ("faults.cu", "races.cc")


@pytest.mark.full
def test_a_right_kernel_is_right(outcomes) -> None:  # type: ignore[no-untyped-def]
    expected = [str(float((i + 1) % 64 + (i + 63) % 64)) for i in range(64)] * 2
    for status, error, out in outcomes[1]["none"]:
        assert (status, error, out) == (0, "", expected)


def test_a_missing_barrier_is_noticed(outcomes) -> None:  # type: ignore[no-untyped-def]
    build, results = outcomes
    right = results["none"][0][2]
    if build == "race":  # in every order; the order says which of the two threads is first
        for fault in ("barrier", "warp", "two blocks"):
            assert all("race: " in error for _, error, _ in results[fault]), results[fault]
    else:
        assert any(out != right for _, _, out in results["barrier"])
        assert any(out != right for _, _, out in results["warp"])


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
        assert re.search(message, error), error


def test_unwritten_shared_memory_is_nan(outcomes) -> None:  # type: ignore[no-untyped-def]
    for _, _, out in outcomes[1]["unwritten"]:
        assert [i for i, value in enumerate(out) if "nan" in value] == [4, 6, 68, 70]


def test_a_product_on_tensor_cores(reports) -> None:  # type: ignore[no-untyped-def]
    """The emulation has the documented layout; a wrong position or a lost part is seen."""
    want = LEFT.astype(np.float64) @ RIGHT.astype(np.float64)
    scale = np.abs(LEFT).astype(np.float64) @ np.abs(RIGHT).astype(np.float64)
    right, swapped, no_low, extra_bits, half_a_warp = reports[2]

    def error(product: tuple[int, str, list[float]]) -> float:
        assert product[:2] == [0, ""]
        got = np.array(product[2]).reshape(16, 8)
        return float((np.abs(got - want) / scale).max())

    assert error(right) < 2**-20
    assert error(swapped) > 0.1
    assert 2**-13 < error(no_low) < 2**-10
    assert extra_bits[0] == 719
    assert "bits that tf32 does not have" in extra_bits[1]
    assert half_a_warp[0] == 719
    assert "left the kernel" in half_a_warp[1]


@pytest.mark.parametrize("dtype", list(TILES))
def test_copies_and_products_of_16_bits(reports, dtype: str) -> None:  # type: ignore[no-untyped-def]
    """cp.async, ldmatrix and mma.m16n8k16 as documented; each misuse is reported."""
    build, tiles = reports[0], reports[3][list(TILES).index(dtype)]
    left, right = (one.astype(np.float64) for one in TILES[dtype])
    want, scale = left @ right, np.abs(left) @ np.abs(right)
    good, no_wait, no_barrier, left_over, lanes, straight, words, misaligned = tiles

    def error(tile: tuple[int, str, list[str]]) -> float:
        assert tile[:2] == [0, ""]
        got = np.array([float(x) for x in tile[2]]).reshape(16, 8)
        return float((np.abs(got - want) / scale).max())

    assert error(good) < 2**-20
    assert left_over[0] == 719
    assert "copies that it never waited for" in left_over[1]
    assert misaligned[0] == 719
    assert re.search("ldmatrix is not aligned to 16 bytes: .*", misaligned[1])
    for wrong in (lanes, straight, words):
        assert error(wrong) > 0.1
    if build == "race":
        assert "race: " in no_barrier[1]
    else:
        assert np.isnan(error(no_wait))
        assert np.isnan(error(no_barrier))
