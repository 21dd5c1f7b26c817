"""Networks that take windows out by loops and lay them back: one graph a size, found quickly."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import found_toys as toys
from nystra.export import Plan, mechanism
from nystra.export.attention.site import find_sites
from nystra.export.load import module_sites
from nystra.export.load.network import load_fixed
from nystra.models import loading
from nystra.models.facts import Facts
from nystra.models.own.network import OwnNetwork

SIDE, STEP = 8, 6
FULL = Plan(mechanism("full"))


class Windows(nn.Module):
    """Overlapping windows attend to the most similar one, and are laid back as a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        f = self.stem(x)
        corners = [(y, z) for y in range(0, height - 7, STEP) for z in range(0, width - 7, STEP)]
        cut = torch.stack([f[0, :, y : y + SIDE, z : z + SIDE] for y, z in corners])
        means = cut.mean((2, 3))
        alike = (means @ means.T - 100 * torch.eye(len(cut))).argmax(-1)
        own, other = (t.flatten(2).mT for t in (cut, cut[alike]))
        weights = (self.q(own) @ self.k(other).mT * 0.35).softmax(-1)
        out = (weights @ self.v(other)).mT.unflatten(2, (SIDE, SIDE))
        laid = [
            F.pad(out[at], (z, width - SIDE - z, y, height - SIDE - y))
            for at, (y, z) in enumerate(corners)
        ]
        return x + self.last(torch.stack(laid).sum(0)[None])


@pytest.mark.full
@pytest.mark.parametrize("size", [(1, 3, 96, 96)])
def test_loops_over_windows_are_traced_at_their_size_alone(
    size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch needs longer for any size than anyone waits."""
    traced: list[Any] = []
    own = module_sites.trace_network

    def trace(network: nn.Module, facts: Facts, opset: int, **options: Any) -> Any:
        traced.append(facts.sides)
        return own(network, facts, opset, **options)

    monkeypatch.setattr(module_sites, "trace_network", trace)
    network = OwnNetwork.of(toys.lively(Windows()))
    loaded = load_fixed(network, FULL, {}, size)
    assert traced == [{"height": 96, "width": 96}]
    assert len(find_sites(loaded.network)) == 1
    image = torch.rand(size)
    torch.testing.assert_close(loaded.network(image), toys.lively(Windows())(image))


def test_networks_without_loops_have_a_graph_for_any_size() -> None:
    for network, expected in ((Windows(), True), (nn.Conv2d(3, 3, 3, padding=1), False)):
        loaded = loading.load(OwnNetwork.of(network))
        assert module_sites._has_loops(loaded.network, loaded.facts) == expected


@pytest.mark.full
def test_what_rounding_changes_in_a_network_that_selects_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A difference that is no larger than this is no fault of the graph; a larger one is."""
    changes = iter([3e-4, 2e-4, 1e-4, 2e-4] * 2)
    monkeypatch.setattr(module_sites, "relative_difference", lambda *_: next(changes))
    monkeypatch.setattr(module_sites, "is_continuous", lambda _: False)
    loaded = load_fixed(OwnNetwork.of(toys.lively(Windows())), FULL, {}, (1, 3, 32, 32))
    assert find_sites(loaded.network) == []
    assert "its graph differs by 3e-04 from the network" in loaded.warnings[-1]
    changes = iter([3e-4, 2e-4, 4e-4, 2e-4])
    loaded = load_fixed(OwnNetwork.of(toys.lively(Windows())), FULL, {}, (1, 3, 32, 32))
    assert len(find_sites(loaded.network)) == 1


@pytest.mark.parametrize(("factor", "fits"), [(1.0, True), (1.001, False)])
def test_a_network_that_noise_saturates_is_compared_on_noise_of_little_contrast(
    monkeypatch: pytest.MonkeyPatch, factor: float, *, fits: bool
) -> None:
    """As attention with scores of thousands: rounding decides what it returns for noise."""

    def compute(images: Sequence[Tensor]) -> list[Tensor]:
        return [x + (1e9 * F.relu((x - 0.55).abs() - 0.06)).sin() for x in images]

    source: Any = SimpleNamespace(compute=compute)
    graph: Any = SimpleNamespace(
        with_sites=lambda images: [factor * y for y in compute([x + 1e-7 for x in images])]
    )
    monkeypatch.setattr(module_sites, "is_continuous", lambda _: True)
    difference = module_sites._differ(graph, source, [torch.rand(1, 3, 16, 16)])
    assert (difference < module_sites._ALLOWED) == fits
