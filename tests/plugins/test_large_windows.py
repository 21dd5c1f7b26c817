"""Windows of 96, the largest that networks are trained with: kernels and plain functions."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from nystra.plugins import native
from nystra.plugins.operators import find_schema
from nystra.plugins.operators.window_cluster.torch_op import window_cluster
from nystra.plugins.operators.window_nystrom.torch_op import window_nystrom
from nystra.plugins.operators.window_nystromformer.torch_op import window_nystromformer
from nystra.plugins.operators.window_softmax.torch_op import window_softmax

SIDE = 96
SCORES = SIDE**4 * 4 >> 20  # MiB of one head's, were they ever held as a whole
GEOMETRY = {"heads": 1, "head_dim": 12, "value_dim": 4, "window_h": SIDE, "window_w": SIDE}
LANDMARKS = {"landmark_rows": 4, "landmark_cols": 4}
CLUSTERS = {"cluster_rows": 8, "cluster_cols": 8}
FORMS: list[tuple[str, Callable[..., torch.Tensor], dict[str, Any]]] = [
    ("NystraWindowSoftmax", window_softmax, {"bias": 0}),
    ("NystraWindowNystrom", window_nystrom, LANDMARKS),
    ("NystraWindowNystromformer", window_nystromformer, LANDMARKS),
    ("NystraWindowCluster", window_cluster, {**CLUSTERS, "bias": 1, "bias_block": 4}),
    ("NystraWindowCluster", window_cluster, {**CLUSTERS, "bias": 0, "bias_block": SIDE}),
]

kernels = pytest.mark.skipif(not native.available(), reason="libnystra_cpu.so is not built")


def inputs(name: str, bias: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    qkv = random.standard_normal((1, SIDE, SIDE, 28), dtype=np.float32)
    if "bias_table" not in find_schema(name).inputs:
        return [qkv]
    entries = (2 * SIDE - 1) ** 2 if bias else 1
    return [qkv, random.standard_normal((entries, 1), dtype=np.float32)]


def run_kernel(name: str, rest: dict[str, Any]) -> np.ndarray:
    attributes = find_schema(name).validate({**GEOMETRY, "scale": 0.3, **rest})
    (got,) = native.run(name, inputs(name, rest.get("bias", 0)), attributes, 2)
    return got


@kernels
@pytest.mark.full
@pytest.mark.parametrize(("name", "plain", "rest"), FORMS)
def test_kernels(name: str, plain: Callable[..., torch.Tensor], rest: dict[str, Any]) -> None:
    exact = [torch.from_numpy(array).double() for array in inputs(name, rest.get("bias", 0))]
    with torch.no_grad():
        expected = plain(*exact, **GEOMETRY, scale=0.3, **rest).numpy()
    np.testing.assert_allclose(run_kernel(name, rest), expected, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("what", [pytest.param("kernels", marks=kernels), "body", "torch"])
def test_no_scores_of_a_window_are_held_without_need(what: str) -> None:
    """Not by kernels, not by bodies in onnxruntime, opened or run, and not by PyTorch."""
    command = [sys.executable, __file__, what]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=paths)
    assert int(done.stdout) < SCORES / 4, f"{done.stdout} MiB; the scores have {SCORES}"


def _run_kernels() -> Callable[[], object]:
    arrays = [inputs(name, 1) for name, _, _ in FORMS]  # read before the measurement
    return lambda: (arrays, [run_kernel(name, rest) for name, _, rest in FORMS])


def _run_body() -> Callable[[], object]:
    from conformance_models import node_model, run_poisoned, session
    from window_case import window_row

    def run(side: int) -> None:
        row = window_row(FORMS[0][0], (1, side, side), (1, 12, 4), (side, side), biased=True)
        model = node_model(row, dtype="float32")
        run_poisoned(session(model), row.inputs("float32"), row.output_shapes())

    run(32)
    return lambda: run(SIDE)


def _run_plain() -> Callable[[], object]:
    name, plain, rest = FORMS[0]
    qkv, table = map(torch.from_numpy, inputs(name, 0))
    plain(qkv[:, :8, :8], table, **GEOMETRY | {"window_h": 8, "window_w": 8}, scale=0.3, **rest)
    return lambda: plain(qkv, table, **GEOMETRY, scale=0.3, **rest)


def _grown(what: str) -> int:
    """Return by how many MiB something grows the memory of this process."""
    act = {"kernels": _run_kernels, "body": _run_body, "torch": _run_plain}[what]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    act()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10


if __name__ == "__main__":
    sys.stdout.write(str(_grown(sys.argv[1])))
