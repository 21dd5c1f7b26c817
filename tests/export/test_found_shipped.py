"""Shipped networks, passed as modules of code that nystra does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nystra.export import ExportOptions, Plan, export_model, export_module, mechanism
from nystra.export.attention.site import find_sites
from nystra.export.load.module_sites import with_found_sites
from nystra.models import load, pretrained_path
from nystra.models.loading import load as load_network
from nystra.models.own.network import OwnNetwork
from plain_onnxruntime import in_onnxruntime

LINEAR = ExportOptions(Plan(mechanism("cluster")), speed=False)


def swinir(settings: dict[str, Any]) -> nn.Module:
    kind = pytest.importorskip("spandrel.architectures.SwinIR", reason="spandrel is absent")
    network: nn.Module = kind.SwinIR(**settings, img_size=32)
    return network


def hat(settings: dict[str, Any]) -> nn.Module:
    """spandrel's HAT differs from the shipped one in its last layer."""
    kind = pytest.importorskip("spandrel.architectures.HAT", reason="spandrel is absent")

    class Direct(kind.HAT):  # type: ignore[misc, name-defined]
        def forward(self, x: Tensor) -> Tensor:
            rows, columns = x.shape[2:]
            self.mean = self.mean.type_as(x)
            x = self.conv_first(self.check_image_size(x) - self.mean)
            x = self.upsample(self.conv_after_body(self.forward_features(x)) + x)
            return x[:, :, : 2 * rows, : 2 * columns] + self.mean

    settings.pop("upsampler")
    network: nn.Module = Direct(**settings, img_size=32)
    network.upsample = nn.Sequential(nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2))
    del network.conv_before_upsample, network.conv_last
    return network


NETWORKS = {"swinir_x2_w16": swinir, "hat_x2_w16": hat}


def unknown(name: str) -> nn.Module:
    """Return a shipped network in spandrel's code, which is not identified."""
    shipped = load(pretrained_path(name))
    settings = dict(shipped.checkpoint.hyper)
    for key in ("architecture", "license", "mask", "position_bias"):
        settings.pop(key)
    network = NETWORKS[name](settings)
    missing, surplus = network.load_state_dict(shipped.network.state_dict(), strict=False)
    assert not surplus
    assert all("relative_position_index" in key or "attn_mask" in key for key in missing)
    return network.eval()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", ["swinir_x2_w16", pytest.param("hat_x2_w16", marks=pytest.mark.release)]
)
def test_sites_that_are_found_are_the_hand_written_ones(name: str) -> None:
    shipped = load(pretrained_path(name)).network
    found = with_found_sites(load_network(OwnNetwork.of(unknown(name)))).network
    by_hand, by_graph = find_sites(shipped), find_sites(found)
    assert len(by_graph) == len(by_hand)
    for one, other in zip(by_graph, by_hand, strict=True):
        assert one.module.geometry.window == other.module.geometry.window
        assert one.module.geometry.shift == other.module.geometry.shift
        assert one.module.geometry.margin == other.module.geometry.margin
        assert torch.equal(one.module.bias_table(), other.module.bias_table())
    image = torch.rand(1, 3, 40, 33)
    with torch.no_grad():
        torch.testing.assert_close(found(image), shipped(image), rtol=0, atol=1e-5)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETWORKS)
def test_files_and_figures_of_found_sites_are_those_of_hand_written_ones(
    name: str, tmp_path: Path
) -> None:
    shipped = export_model(pretrained_path(name), tmp_path / "shipped.onnx", LINEAR)
    found = export_module(unknown(name), tmp_path / "found.onnx", LINEAR)
    assert [site.name for site in found.source.resolved.values()] == [
        site.name for site in shipped.source.resolved.values()
    ]
    assert found.fidelity.mean == pytest.approx(shipped.fidelity.mean, abs=0.01)  # dB
    assert found.fidelity.plan == pytest.approx(shipped.fidelity.plan, abs=0.01)
    image = np.random.default_rng(0).random((1, 3, 48, 40)).astype(np.float32)
    difference = in_onnxruntime(found.model, image) - in_onnxruntime(shipped.model, image)
    assert np.abs(difference).max() < 1e-5


@pytest.mark.release
@pytest.mark.filterwarnings("ignore")
def test_another_plan_has_other_figures(tmp_path: Path) -> None:
    """Negative control: the figures depend on the mechanism."""
    shipped = export_model(pretrained_path("swinir_x2_w16"), tmp_path / "shipped.onnx", LINEAR)
    other = ExportOptions(Plan(mechanism("cluster", clusters=(2, 2))), speed=False)
    found = export_module(unknown("swinir_x2_w16"), tmp_path / "found.onnx", other)
    assert abs(found.fidelity.mean - shipped.fidelity.mean) > 0.5
