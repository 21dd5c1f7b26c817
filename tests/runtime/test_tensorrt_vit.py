"""Real TensorRT without a GPU accepts vision transformers with every attention, at any batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.runtime.checking.dry_run import dry_run
from nystra.runtime.engines.build import BuildOptions
from nystra.runtime.engines.model import EngineModel
from tensorrt_tools import SDKS, plugins, use_sdk
from vit_tools import SMALL, TOLD, tiny_checkpoint

TRAINED: dict[str, dict[str, Any]] = {
    "full": {},
    "linformer": {"linformer_k": 4},
    "performer": {"rp_dim": 8},
    "nystromformer": {"num_landmarks": 5, "conv_kernel_size": 3},
}
"""What a network is built with; none of them needs a plugin but Nyströmformer's pseudoinverse."""


def _taken(
    sdk: str, checkpoint: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, **told: Any
) -> None:
    backend = use_sdk(sdk, monkeypatch)
    library = plugins()
    options = ExportOptions(plan, TOLD | told, speed=False)
    model = export_model(checkpoint, checkpoint.with_suffix(".onnx"), options).model
    targets = ("sm86",) if backend == "tensorrt-rtx" else ()
    verdict = dry_run(EngineModel.open(model, library), BuildOptions(backend, targets=targets))
    assert verdict.accepted, verdict.refusal
    assert verdict.plugins == verdict.nodes
    batches = {case.inputs["input"][0] for case in verdict.shapes}
    assert len(batches) > 1
    for case in verdict.shapes:
        assert case.engine == case.onnxruntime == [[case.inputs["input"][0], 5]]


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    "attention",
    [
        pytest.param(name, marks=() if name == "nystromformer" else pytest.mark.release)
        for name in TRAINED
    ],
)
def test_as_trained(
    attention: str, sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hyper = TRAINED[attention]
    told = {key: hyper[key] for key in hyper if key == "num_landmarks"}
    checkpoint = tiny_checkpoint(tmp_path, attention=attention, **hyper)
    _taken(sdk, checkpoint, Plan(mechanism("as_trained")), monkeypatch, **told)


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "psal" else pytest.mark.release) for name in SMALL],
)
def test_in_the_place_of_exact_attention(
    name: str, sdk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(mechanism(name, **SMALL[name]))
    _taken(sdk, tiny_checkpoint(tmp_path), plan, monkeypatch)
