"""Operators that torch.onnx does not translate: shifts by a free size, stable sorts, extremes."""

import numpy as np
import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.core.ports.port import Port
from nystra.export.tracing.site_graph import trace_network
from nystra.models.facts import Facts


class Shifted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, (-3, 2), (2, 3))


class Ordered(nn.Module):
    """Rows sorted by their last digits, many of them equal."""

    def __init__(self, descending: bool) -> None:
        super().__init__()
        self.descending = descending

    def forward(self, x: Tensor) -> Tensor:
        digits = (x * 4).floor().long().flatten(2)
        _, order = torch.sort(digits, dim=-1, stable=True, descending=self.descending)
        return x.flatten(2).gather(2, order).reshape(x.shape)


class Stretched(nn.Module):
    """The extreme values are those of all axes."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.amin()) / torch.amax(x, (), keepdim=True)


class Pooled(nn.Module):
    """The means of parts of which the sides are no multiples."""

    def forward(self, x: Tensor) -> Tensor:
        return x + F.adaptive_avg_pool2d(x, (3, 2)).mean((2, 3), keepdim=True)


NETWORKS = [Shifted(), Ordered(False), Ordered(True), Stretched(), Pooled()]


@pytest.mark.full
@pytest.mark.parametrize("network", NETWORKS)
def test_free_sizes(network: nn.Module) -> None:
    channels = {"channels": 3}
    facts = Facts(
        architecture="test",
        task="restoration",
        inputs=(Port("input", "image", lengths=channels),),
        outputs=(Port("output", "picture", lengths=channels),),
        tiling="supported",
        license="unknown",
    )
    model = trace_network(network, facts, 20).write_mechanisms({})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 5, 9), (2, 3, 12, 4)):
        image = np.random.default_rng(0).random(shape, dtype=np.float32)
        (got,) = session.run(None, {"input": image})
        expected = network(torch.from_numpy(image)).numpy()
        allowed = 1e-6 if isinstance(network, Pooled) else 0.0
        np.testing.assert_allclose(got, expected, rtol=0.0, atol=allowed)
