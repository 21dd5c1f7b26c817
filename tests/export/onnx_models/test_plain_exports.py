"""Plain exports of both exporters of PyTorch do what they did, with nystra's nodes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.onnx_models import paying
from nystra.plugins.domain import DOMAIN
from onnx_files import window_attention

FULL = ExportOptions(plan=Plan(mechanism("full")), speed=False)
SIZES = [(32, 32), (24, 40), (48, 16)]


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every replacement be measured as fast."""
    monkeypatch.setattr(paying, "_interleaved", lambda *_: [[2.0], [1.0]])


def network(name: str) -> nn.Module:
    """A small network of spandrel whose attention matters to its output."""
    spandrel = pytest.importorskip(f"spandrel.architectures.{name}", reason="spandrel is absent")
    torch.manual_seed(0)
    built: nn.Module = getattr(spandrel, name)(
        img_size=16,
        depths=[2],
        embed_dim=24,
        num_heads=[2],
        window_size=8,
        upscale=2,
        upsampler="pixelshuffledirect" if name != "HAT" else "pixelshuffle",
        **({"compress_ratio": 3, "squeeze_factor": 4, "num_feat": 16} if name == "HAT" else {}),
    )
    for key, tensor in built.named_parameters():
        if "table" in key or "qkv" in key:
            nn.init.normal_(tensor, std=0.5)
    return built.eval()


def written(name: str, exporter: str, opset: int, sizes: str, path: Path) -> Path:
    """Write a network as PyTorch does."""
    more: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
    if exporter == "dynamo":
        free = torch.export.Dim.DYNAMIC
        shapes = ({2: free, 3: free},) if sizes == "free" else None
        more |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False}
    else:
        more |= {"dynamo": False}
        if sizes == "free":
            more |= {"dynamic_axes": {"x": {2: "h", 3: "w"}, "y": {2: "H", 3: "W"}}}
    torch.onnx.export(network(name), (torch.rand(1, 3, 32, 32),), path, verbose=False, **more)
    return path


def difference(first: Path, second: Path, *size: int) -> float:
    """The largest difference of two files in plain onnxruntime, of the largest value."""
    image = np.random.default_rng(0).random((1, 3, *size)).astype(np.float32)
    one, other = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
            None, {"x": image}
        )[0]
        for path in (first, second)
    )
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sizes", ["free", "fixed"])
@pytest.mark.parametrize(
    ("exporter", "opset"), [("script", 13), ("script", 17), ("dynamo", 18), ("dynamo", 20)]
)
@pytest.mark.parametrize(("name", "nodes"), [("SwinIR", 2), ("HAT", 3), ("Swin2SR", 2)])
def test_a_plain_export_does_what_it_did(
    name: str, nodes: int, exporter: str, opset: int, sizes: str, tmp_path: Path
) -> None:
    plain = written(name, exporter, opset, sizes, tmp_path / "theirs.onnx")
    result = export_model(plain, tmp_path / "ours.onnx", FULL)
    assert sum(node.domain == DOMAIN for node in onnx.load(result.model).graph.node) == nodes
    for size in SIZES if sizes == "free" else SIZES[:1]:
        assert difference(result.model, plain, *size) < 1e-5


@pytest.mark.full
def test_a_file_with_weights_of_half_precision_does_what_it_did(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        casts = []
        for tensor in model.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.float32:
                name = tensor.name
                half = numpy_helper.from_array(array.astype(np.float16), f"{name}_half")
                tensor.CopyFrom(half)
                casts.append(helper.make_node("Cast", [half.name], [name], to=1))
        nodes = [*casts, *model.graph.node]
        del model.graph.node[:]
        model.graph.node.extend(nodes)

    plain = window_attention(tmp_path / "theirs.onnx", change=change)
    result = export_model(plain, tmp_path / "ours.onnx", FULL)
    assert any(node.domain == DOMAIN for node in onnx.load(result.model).graph.node)
    assert all(difference(result.model, plain, *size) < 1e-5 for size in SIZES)
