"""The features of this machine's processor, from Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

_FLAGS = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx512_bf16": {"avx512_bf16"},
    "amx": {"amx_tile", "amx_bf16"},
}
"""What each instruction set of the kernels wants besides those before it."""


def best_instruction_set(tiles: bool = True) -> str:
    """Return the best set of this processor, or skip the test; not ``tiles``: AMX is left out."""
    cpu = Path("/proc/cpuinfo")
    if not cpu.is_file():
        pytest.skip("no /proc/cpuinfo on this system")
    flags, best = set(cpu.read_text().split()), "generic"
    for name, wanted in _FLAGS.items():
        if not wanted <= flags or (name == "amx" and not tiles):
            break
        best = name
    return best


def require_exact_int8() -> None:
    """Skip the test where onnxruntime's sums of 8-bit products saturate: x86 without VNNI."""
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file() and "avx2" in (flags := cpu.read_text()) and "vnni" not in flags:
        pytest.skip("onnxruntime's int8 saturates on this CPU, which has no VNNI")
