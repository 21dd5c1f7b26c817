"""Maps of more than 2^31 elements on the emulated CUDA kernels: the last block of each launch.

A map is address space: only the pages that a block reads or writes become memory. The last window
of a large map has to come out as that of a small one with the same tokens, to the bit.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import emulated_device
import emulator_build
from nystra.plugins import native_cuda
from nystra.plugins.library import LIBRARY_DIR_VARIABLE
from studies.device import big_maps

pytestmark = pytest.mark.full

SIDE, SMALL, WINDOW, HEADS, DIM = 4096, 16, 8, 6, 30
CHANNELS = 3 * HEADS * DIM
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux

SIZES = {"heads": HEADS, "head_dim": DIM, "value_dim": DIM, "scale": DIM**-0.5}
SIZES |= {"window_h": WINDOW, "window_w": WINDOW}
SHIFTED = {**SIZES, "shift_h": WINDOW // 2, "shift_w": WINDOW // 2, "mask": 1}
LANDMARKS = {**SHIFTED, "landmark_rows": 4, "landmark_cols": 4}
OPERATORS: dict[str, dict[str, Any]] = {
    "NystraWindowSoftmax": {**SHIFTED, "bias": 1},
    "NystraWindowOverlap": {**SIZES, "margin_h": 4, "margin_w": 4, "bias": 1},
    "NystraWindowNystrom": LANDMARKS,
    "NystraWindowNystromformer": LANDMARKS,
    "NystraWindowCluster": {**SHIFTED, "cluster_rows": 4, "cluster_cols": 4, "bias": 1},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ctypes.CDLL]:
    """The folder of ``libnystra_cuda.so``, and the emulated kernels that it calls."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("emulated")
    return folder, ctypes.CDLL(str(emulated_device.build_cuda(folder)))


@pytest.fixture(autouse=True)
def last_blocks(built: tuple[Path, ctypes.CDLL], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches of more than 4,096 blocks run their last one only."""
    folder, kernels = built
    monkeypatch.setenv(LIBRARY_DIR_VARIABLE, str(folder))
    native_cuda._library.cache_clear()
    kernels.emulator_most_blocks(ctypes.c_uint64(4096))
    yield
    kernels.emulator_most_blocks(ctypes.c_uint64(2**64 - 1))
    native_cuda._library.cache_clear()


def sparse(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros that take memory only where they are written."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype).reshape(shape)


def run(operator: str, values: dict[str, Any], inputs: list[np.ndarray], out: np.ndarray) -> None:
    """Run on host arrays as device memory."""
    scratch: list[np.ndarray] = []

    def allocate(size: int) -> int:
        scratch.append(np.empty(size + 256, np.uint8))
        return -(-scratch[0].ctypes.data // 256) * 256

    tensors = [(array.ctypes.data, array.shape, array.dtype.name) for array in inputs]
    native_cuda.run(
        operator, tensors, values, [(out.ctypes.data, out.shape, out.dtype.name)], allocate, 0
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_last_window_of_a_big_map(operator: str, dtype: str) -> None:
    values = OPERATORS[operator]
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((1, SMALL, SMALL, CHANNELS)).astype(dtype)
    side = 2 * (WINDOW + values.get("margin_h", 0)) - 1
    table = rng.standard_normal((side * side, HEADS)).astype(dtype)
    others = [table] if values.get("bias") else []
    small = np.zeros((1, SMALL, SMALL, HEADS * DIM), dtype)
    run(operator, values, [tokens, *others], small)
    # A shifted window wraps around: the small map's first half is the large one's beginning.
    places = np.arange(SMALL) + (SIDE - SMALL)
    if values.get("shift_h"):
        places[: SMALL // 2] = np.arange(SMALL // 2)
    corner = np.ix_([0], places, places)
    qkv = sparse((1, SIDE, SIDE, CHANNELS), dtype)
    assert qkv.size > 2**33
    qkv[corner] = tokens
    out = sparse((1, SIDE, SIDE, HEADS * DIM), dtype)
    out[corner] = np.nan
    run(operator, values, [qkv, *others], out)
    shift = values.get("shift_h", 0)
    window = (np.arange(WINDOW) + SMALL - WINDOW + shift) % SMALL
    last = slice((HEADS - 1) * DIM, None)
    got = out[corner][0][np.ix_(window, window)]
    want = small[0][np.ix_(window, window)]
    np.testing.assert_array_equal(got[..., last], want[..., last])
    assert np.isnan(got[..., : last.start]).all(), "one block alone ran"


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_last_matrices_of_a_big_batch(dtype: str) -> None:
    matrices = np.random.default_rng(0).random((4, 16, 16)).astype(dtype)
    small = np.zeros_like(matrices)
    run("NystraPinv", {"iterations": 6}, [matrices], small)
    a, z = (sparse((2**23 + 4, 16, 16), dtype) for _ in range(2))
    assert a.size > 2**31
    a[-4:] = matrices
    z[-4:] = np.nan
    run("NystraPinv", {"iterations": 6}, [a], z)
    np.testing.assert_array_equal(z[-4:], small)


def test_the_check_for_a_gpu_runs_on_small_maps(
    built: tuple[Path, ctypes.CDLL], tmp_path: Path
) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "studies.device.big_maps", str(found), "--small"]
    environment = {**os.environ, LIBRARY_DIR_VARIABLE: str(built[0])}
    done = subprocess.run(
        command,
        cwd=emulator_build.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(found.read_text())
    assert len(outcomes) == 2 * len(big_maps.WINDOWS) + 6
    assert all(text.endswith("elements: right") for text in outcomes.values())


def test_the_check_for_a_gpu_sees_a_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    right = big_maps.run

    def wrong(operator: str, values: Any, inputs: Any, outputs: list[torch.Tensor]) -> None:
        right(operator, values, inputs, outputs)
        if inputs[0].shape[0 if operator == "NystraPinv" else 1] > 16 or len(outputs) == 2:
            outputs[-1].flatten()[-1:] += 1

    monkeypatch.setattr(big_maps, "run", wrong)
    with pytest.raises(RuntimeError, match="rows 16 to 32 differ"):
        big_maps.check_windows("NystraWindowSoftmax", torch.float32, 32, "cpu")
    with pytest.raises(RuntimeError, match="the last matrices differ"):
        big_maps.check_inverses(torch.float32, 20, "cpu")
    with pytest.raises(RuntimeError, match="scores of the last pixels are wrong"):
        big_maps.check_search("key", torch.float16, 32, 5, "cpu")
