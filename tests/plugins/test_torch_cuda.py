"""The torch ops on CUDA tensors: registered, kept by compilers, and their kernels as emulated.

No test needs a GPU, and none has one: the library with the kernels is built over the block
emulator, whose device memory is the host's.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import emulated_device
import emulator_build
from native_nodes import NODES, arrays, attributes
from nystra.core.errors import NystraError
from nystra.plugins import c_interface, native_cuda
from nystra.plugins.library import CUDA_KERNELS, LIBRARY_DIR_VARIABLE, library_path
from nystra.plugins.operators import OPERATORS, find_schema, operator_torch
from nystra.plugins.operators.operator_torch import KERNELS_VARIABLE, launch, run_on_cuda
from nystra.plugins.operators.schema import Attributes
from programs import printed_by

CSRC = emulator_build.CSRC
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Of the plain function, relative to the largest output: rounding of the type, where the
conformance table judges the kernels' arithmetic."""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Libraries are searched again, warnings are given again."""
    monkeypatch.delenv(KERNELS_VARIABLE, raising=False)
    caches = (native_cuda._library, native_cuda.missing, operator_torch._warn_once)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``libnystra_cuda.so`` over the emulated kernels."""
    if reason := emulator_build.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("emulated")
    emulated_device.build_cuda(folder)
    return folder


def checked(operator: str) -> Attributes:
    """The attributes of a good node, as an op has them."""
    of = find_schema(operator)
    every = attributes(operator)
    return of.validate({attribute.name: every[attribute.name] for attribute in of.attributes})


def op(operator: str) -> torch._ops.OpOverloadPacket:
    importlib.import_module(f"nystra.plugins.operators.{OPERATORS[operator]}.torch_op")
    found: torch._ops.OpOverloadPacket = getattr(torch.ops.nystra, OPERATORS[operator])
    return found


def call(operator: str, inputs: list[Tensor]) -> list[Tensor]:
    every = checked(operator)
    names = [a.name for a in find_schema(operator).attributes if a.name != "revision"]
    result = op(operator)(*inputs, *(every[name] for name in names))
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("operator", NODES)
def test_every_op_has_a_cuda_kernel(operator: str) -> None:
    name = op(operator).default.name()
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")


@pytest.mark.parametrize("operator", NODES)
def test_fake_cuda_tensors_stay_on_their_device(operator: str) -> None:
    with FakeTensorMode():
        inputs = [torch.empty(a.shape, device="cuda").to(
            torch.int32 if a.dtype == np.int32 else torch.float16
        ) for a in arrays(operator)]  # fmt: skip
        outputs = call(operator, inputs)
    assert {(out.device.type, out.dtype) for out in outputs[-1:]} == {("cuda", torch.float16)}
    assert [out.shape for out in outputs] == [
        out.shape for out in call(operator, [torch.from_numpy(a) for a in arrays(operator)])
    ]


def test_torch_compile_keeps_the_op() -> None:
    seen: list[str] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        seen.extend(str(node.target) for node in module.graph.nodes)
        return module

    pinv = op("NystraPinv")
    compiled = torch.compile(lambda a: pinv(2 * a, 6, 0) + 1, backend=backend, fullgraph=True)
    a = torch.eye(4)[None]
    torch.testing.assert_close(compiled(a), pinv(2 * a, 6, 0) + 1)
    assert seen.count("nystra.pinv") == 1


@pytest.mark.full
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("operator", NODES)
def test_the_emulated_kernel_fills_the_results(
    operator: str, dtype: torch.dtype, emulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIBRARY_DIR_VARIABLE, str(emulated))
    assert native_cuda.missing() is None
    given = [torch.from_numpy(array) for array in arrays(operator)]
    inputs = [t if t.dtype == torch.int32 else t.to(dtype) for t in given]
    monkeypatch.setenv(KERNELS_VARIABLE, "0")
    want = call(operator, inputs)
    got = [torch.full_like(t, -7) for t in want]
    assert launch(find_schema(operator), inputs, checked(operator), got, stream=0)
    for one, other in zip(got[-1:], want[-1:], strict=True):
        largest = float(other.float().abs().max())
        difference = float((one.float() - other.float()).abs().max())
        assert difference <= TOLERANCE[dtype] * largest


@pytest.mark.full
def test_a_search_keeps_its_maps_in_their_own_type(
    emulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workspace is smaller by half of both padded maps; the rest is float32 and integers."""
    monkeypatch.setenv(LIBRARY_DIR_VARIABLE, str(emulated))
    every = checked("NystraPatchMatch")
    given = [torch.from_numpy(array) for array in arrays("NystraPatchMatch")]
    taken: list[Tensor] = []

    def allocate(size: int) -> int:
        taken.append(torch.empty(size, dtype=torch.uint8))
        return taken[-1].data_ptr()

    for dtype in TOLERANCE:
        inputs = [t if t.dtype == torch.int32 else t.to(dtype) for t in given]
        outputs = call("NystraPatchMatch", inputs)
        sources = [operator_torch._address(tensor) for tensor in inputs]
        results = [operator_torch._address(tensor) for tensor in outputs]
        native_cuda.run("NystraPatchMatch", sources, every, results, allocate, 0)
    whole, half, other = (tensor.nbytes for tensor in taken)
    border = int(every["patch_size"]) // 2 * 2
    padded = sum(
        t.shape[0] * -(-t.shape[1] // 4) * 4 * (t.shape[2] + border) * (t.shape[3] + border)
        for t in given[:2]
    )
    assert half == other
    assert abs(whole - half - 2 * padded) <= 2 * 16  # each array begins at a multiple of 16


@pytest.mark.full
def test_maps_that_ints_cannot_count_are_refused_before_a_launch(
    emulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The addresses are invalid: nothing may be read."""
    monkeypatch.setenv(LIBRARY_DIR_VARIABLE, str(emulated))
    every = checked("NystraWindowNystrom")
    height = int(every["window_h"]) << 16
    channels = int(every["heads"]) * (2 * int(every["head_dim"]) + int(every["value_dim"]))
    shape, out = (1, height, height, channels), int(every["heads"]) * int(every["value_dim"])
    with pytest.raises(NystraError, match="sizes that the kernel does not support"):
        native_cuda.run(
            "NystraWindowNystrom",
            [(256, shape, "float16")],
            every,
            [(512, (*shape[:3], out), "float16")],
            lambda size: 1024,
            0,
        )


def test_without_the_library_it_says_so_once_and_runs_plain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(c_interface, "library_path", _no_library)
    inputs, every = [torch.eye(4)[None]], checked("NystraPinv")
    schema = find_schema("NystraPinv")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not run_on_cuda(schema, inputs, every, inputs)
        assert not run_on_cuda(schema, inputs, every, inputs)
    (text,) = (str(one.message) for one in said)
    assert re.search(r"plain PyTorch functions.* no libnystra_cuda\.so in .* where nvcc is", text)
    monkeypatch.setenv(KERNELS_VARIABLE, "0")
    operator_torch._warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not run_on_cuda(schema, inputs, every, inputs)


def _no_library(name: str) -> Path:
    raise FileNotFoundError(f"no lib{name}.so in /nowhere; build it where nvcc is (CUDACXX)")


def test_tensors_of_two_devices_are_refused() -> None:
    inputs = [torch.ones(1, 8, 8, 26), torch.ones(225, 2, device="meta")]
    with pytest.raises(NystraError, match="the inputs are on cpu, meta; expected all on one"):
        run_on_cuda(find_schema("NystraWindowSoftmax"), inputs, {}, inputs)


def test_the_built_library_exports_only_its_functions_and_needs_none_of_cuda() -> None:
    try:
        built = library_path(CUDA_KERNELS)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    lines = printed_by("nm", "-D", "--defined-only", str(built)).splitlines()
    declared = re.findall(r"\b(nystra_cuda_\w+)\(", (CSRC / "nystra_cuda.h").read_text())
    assert {line.split()[-1].partition("@")[0] for line in lines} == set(declared)
    assert len(set(declared)) == 5
    needed = printed_by("readelf", "-d", str(built))
    assert "libcuda" not in needed
    assert "torch" not in needed
