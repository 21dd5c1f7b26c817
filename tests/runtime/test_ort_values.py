"""Values of onnxruntime are made and read in one file, which copies."""

import ast
import weakref

import numpy as np
import pytest

from nystra.runtime.ort_values import copy_from_ort, copy_to_ort
from shared import PACKAGES, ROOT

HOME = ROOT / "runtime/ort_values.py"
ALLOWED = {
    HOME,
    ROOT / "tests/helpers/freed_memory.py",  # makes values whose memory is overwritten
    ROOT / "tests/runtime/test_ort_cuda_backend.py",  # a stand-in for onnxruntime-gpu
    ROOT / "tests/runtime/test_ort_values.py",
}


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.float64, np.int64, np.uint8, np.bool_]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_both_ways_copy(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.random.default_rng(0).random(shape) * 4).astype(dtype)
    expected = array.copy()
    value = copy_to_ort(array)
    array[...] = 1
    first, second = copy_from_ort(value), copy_from_ort(value)
    assert first.dtype == array.dtype
    assert value.shape() == list(shape)
    np.testing.assert_array_equal(first, expected)
    assert not np.shares_memory(first, second)
    first[...] = 1
    np.testing.assert_array_equal(copy_from_ort(value), expected)


def test_an_array_of_another_order_is_the_same() -> None:
    array = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    np.testing.assert_array_equal(copy_from_ort(copy_to_ort(array[::-1])), array[::-1])


def test_a_type_that_numpy_does_not_know() -> None:
    value = copy_to_ort(np.array([0x3F80, 0x4000], np.uint16), 16)
    assert (value.element_type(), value.shape()) == (16, [2])


def test_what_is_read_outlives_its_value() -> None:
    """An array of the value itself does not: the reason for this file."""
    value = copy_to_ort(np.full(1000, 7, np.float32))
    owner = weakref.ref(value._numpy_obj)  # type: ignore[attr-defined]
    bare, copied = value.numpy(), copy_from_ort(value)  # type: ignore[attr-defined]
    assert bare.base is not owner()
    del value
    assert owner() is None  # bare shows freed memory
    np.testing.assert_array_equal(copied, 7)


def bare_uses(source: str) -> list[int]:
    """Return the lines that name onnxruntime's type of values or make one."""
    names = {"OrtValue", "ortvalue_from_numpy", "ortvalue_from_numpy_with_onnx_type"}
    lines = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            used = {node.attr}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onnxruntime"):
            used = {name.name for name in node.names}
        else:
            continue
        if names & used:
            lines.add(node.lineno)
    return sorted(lines)


@pytest.mark.full
def test_no_other_file_makes_a_value() -> None:
    """And none reads one: `OrtValue` of that file has no method ``numpy``, so mypy refuses it."""
    folders = [ROOT / name for name in (*PACKAGES, "studies", "tests")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert HOME in files
    assert bare_uses(HOME.read_text())
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted({*files} - ALLOWED)
        for line in bare_uses(path.read_text())
    ]
    assert not found, f"expected copy_to_ort and copy_from_ort of {HOME.relative_to(ROOT)}"


@pytest.mark.parametrize(
    "source",
    [
        "ort.OrtValue.ortvalue_from_numpy(a)",
        "from onnxruntime import OrtValue",
        "def f(a: onnxruntime.OrtValue): ...",
        "make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type",
    ],
)
def test_bare_uses_are_found(source: str) -> None:
    assert bare_uses(source) == [1]
