"""The effect of low precision on clusters, compared with that of a wrong kernel.

``pytest -s -m full`` on this file prints figures of studies/measurements/cluster.md.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import resolve, swap
from nystra.export.load.source import Source
from nystra.export.pytorch.network_session import NetworkSession
from nystra.export.validate.fake_quantized import round_network
from nystra.export.validate.references import record_references
from nystra.models import load, pretrained_path
from nystra.plugins.operators.window_cluster import torch_op
from nystra.runtime.images.images import read_image
from nystra.runtime.metrics.measures import ROUNDING
from shared import ROOT
from wrong_clusters import WRONG

pytestmark = pytest.mark.full

FAULTS = {
    "swinir_x2_w16": list(WRONG),
    "swinir_x2_w32_nobias": ["a cluster is dropped"],  # it has neither bias nor regions
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_kernel_is_farther_off_than_a_file_may_be(name: str) -> None:
    photograph = read_image(ROOT / "export" / "photographs" / "coffee.png").pixels
    image = np.moveaxis(photograph[64:128, 64:128], 2, 0)[None].astype(np.float32)
    model = load(pretrained_path(name))
    plain = swap(model.network, resolve(Plan(Cluster()), model.network))
    exact = NetworkSession(plain, torch.float64)(image)

    def off(network: Any) -> float:
        return float(np.abs(NetworkSession(network)(image) - exact).max())

    kinds = ("fp16", "bf16", "bf16-tensorrt")
    rounded = {kind: off(round_network(plain, kind)) for kind in kinds}
    single, faults = off(plain), {}
    for wrong in FAULTS[name]:
        function, instead = WRONG[wrong]
        with patch.object(torch_op, function, instead):
            faults[wrong] = off(plain)
    figures = (f"{kind} {value:.1e}" for kind, value in (rounded | faults).items())
    print(name, f"fp32 {single:.1e}", *figures)  # noqa: T201
    assert single < ROUNDING / 2
    assert min(faults.values()) > 2 * max(rounded["fp16"], rounded["bf16"])


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_kernel_is_farther_off_in_the_mean_than_near_ties_allow(name: str) -> None:
    """The tolerance of the mean difference lets no fault pass."""
    photograph = read_image(ROOT / "export" / "photographs" / "coffee.png").pixels
    pixels = np.round(photograph[64:128, 64:128] * 255.0) / 255.0
    image = np.moveaxis(pixels, 2, 0)[None].astype(np.float32)
    model = load(pretrained_path(name))
    resolved = resolve(Plan(Cluster()), model.network)
    references = record_references(Source(model, resolved), [{"input": image}])
    (limit,) = references.meta["mean_tolerances"]
    expected, plain = references.cases[0].outputs["output"], swap(model.network, resolved)
    assert limit < 2e-5
    for wrong in FAULTS[name]:
        function, instead = WRONG[wrong]
        with patch.object(torch_op, function, instead):
            off = np.abs(NetworkSession(plain)(image) - expected)
        print(name, wrong, f"mean {off.mean():.1e}, allowed {limit:.1e}")  # noqa: T201
        assert off.mean() > 50 * limit
        assert off.max() > references.meta["tolerances"][0]
