"""The tolerance of a column against the float64 reference, and its reason.

A row's own difficulty is measured: the error of the plain torch function in float32 (rounded to
the row's type at the end), against float64. A result may be ``factor`` times as far off, and is
always allowed ``floor`` of the largest value. A row whose tolerance reaches a tenth of its largest
value would say nothing: that is an error of the table.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from conformance_case import Case, Outputs
from conformance_cases import CASES, expected
from conformance_fields import compare as compare_fields
from conformance_store import stored
from operators.patch_match import PatchMatchCase

if TYPE_CHECKING:
    import torch


class Tolerance(NamedTuple):
    factor: float
    floor: float
    reason: str


TOLERANCES: dict[tuple[str, str], Tolerance] = {
    ("torch", "float32"): Tolerance(2, 1e-6, "the plain function itself, other batching"),
    ("torch", "float16"): Tolerance(2, 2**-11, "float32 inside, rounded once: half a unit"),
    ("body", "float32"): Tolerance(8, 2e-6, "other order of sums, through a pseudoinverse"),
    ("body", "float16"): Tolerance(2, 2**-11, "float32 inside, rounded once: half a unit"),
    ("cpu", "float32"): Tolerance(8, 2e-6, "other order of sums and exp, through a pseudoinverse"),
    ("cpu", "float16"): Tolerance(2, 2**-11, "float32 inside, rounded once: half a unit"),
    ("cpu", "bfloat16"): Tolerance(2, 2**-8, "float32 inside, rounded once: half a unit"),
    ("emulator", "float32"): Tolerance(4, 2e-6, "other order of sums, through a pseudoinverse"),
    ("emulator", "float16"): Tolerance(2, 2**-11, "float32 inside, rounded once: half a unit"),
    ("emulator", "bfloat16"): Tolerance(2, 2**-8, "float32 inside, rounded once: half a unit"),
}


def plain(case: Case, dtype: str, arithmetic: torch.dtype) -> Outputs:
    """The plain torch function on the row, computed in ``arithmetic``."""
    import torch  # not where a device's results are judged

    module = importlib.import_module(f"nystra.plugins.operators.{case.folder}.torch_op")
    arrays = case.inputs(dtype)
    if dtype == "bfloat16":  # which torch does not take from numpy
        arrays = [
            array if array.dtype == np.int32 else array.astype(np.float32) for array in arrays
        ]
    tensors = [torch.from_numpy(array) for array in arrays]
    tensors = [
        tensor.to(arithmetic) if tensor.is_floating_point() else tensor for tensor in tensors
    ]
    attributes = {k: v for k, v in case.all_attributes().items() if k != "revision"}
    result = getattr(module, case.folder)(*tensors, **attributes)
    if isinstance(result, tuple):
        return tuple(array.numpy() for array in result)
    output: np.ndarray = result.numpy()
    return output


@functools.cache
def difficulty(row: int, dtype: str) -> float:
    """The error of the plain function in float32 on the row."""
    measured = stored(f"{row}.{dtype}.difficulty", lambda: _error_of_plain(CASES[row], dtype))
    assert isinstance(measured, np.ndarray)
    return float(measured)


def _error_of_plain(case: Case, dtype: str) -> np.ndarray:
    import torch

    result, want = plain(case, dtype, torch.float32), expected(case, dtype)
    assert isinstance(result, np.ndarray), case.id
    assert isinstance(want, np.ndarray), case.id
    rounded = result.astype(dtype).astype(np.float64)
    return np.array(np.nanmax(np.abs(rounded - want), initial=0.0))


def allowed(case: Case, dtype: str, family: str) -> float:
    """The largest error a column of that family may have in this row."""
    tolerance = TOLERANCES[family, dtype]
    want = expected(case, dtype)
    assert isinstance(want, np.ndarray), case.id
    largest = float(np.nanmax(np.abs(want), initial=0.0))
    bound = max(tolerance.factor * difficulty(CASES.index(case), dtype), tolerance.floor * largest)
    assert bound <= 0.1 * largest, f"{case.id}: tolerance {bound} of {largest} says nothing"
    return bound


def compare(case: Case, dtype: str, family: str, got: Outputs) -> None:
    """Compare the output of a column for a row with the reference, by the rule of the row."""
    want = expected(case, dtype)
    if isinstance(case, PatchMatchCase):
        assert isinstance(got, tuple), type(got)
        compare_fields(case, got, want, dtype)
        return
    assert isinstance(got, np.ndarray), type(got)
    assert isinstance(want, np.ndarray), type(want)
    assert got.dtype == dtype
    check(got, want, allowed(case, dtype, family))


def check(got: np.ndarray, want: np.ndarray, bound: float) -> None:
    """Compare; a failure prints the largest error, the mean, the position and a histogram."""
    assert got.shape == want.shape, f"shape {got.shape}; expected {want.shape}"
    nan = np.isnan(want)
    misplaced = np.argwhere(np.isnan(got) != nan)
    assert not len(misplaced), f"{len(misplaced)} NaN misplaced, the first at {misplaced[0]}"
    error = np.where(nan, 0.0, np.abs(got.astype(np.float64) - want))
    if error.size and not error.max() <= bound:
        worst = np.unravel_index(error.argmax(), error.shape)
        counts, edges = np.histogram(np.log10(np.maximum(error, 1e-300)), bins=range(-12, 5))
        histogram = {f"1e{int(e)}": int(n) for e, n in zip(edges, counts, strict=False) if n}
        place = tuple(map(int, worst))
        raise AssertionError(
            f"max error {error.max():.3g} of at most {bound:.3g}, mean {error.mean():.3g}, "
            f"at {place}: got {got[worst]}, expected {want[worst]}; histogram {histogram}"
        )
