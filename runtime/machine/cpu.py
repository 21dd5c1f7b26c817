"""What the processor can do."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module


@cache
def has_avx512() -> bool:
    """Return whether the processor has AVX-512, as numpy detected; False if unknown."""
    for package in ("numpy._core", "numpy.core"):  # of numpy 2 and 1
        with suppress(ImportError, AttributeError):
            features = import_module(f"{package}._multiarray_umath").__cpu_features__
            return bool(features.get("AVX512F"))
    return False
