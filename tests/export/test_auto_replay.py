"""A run that starts at the changed site gives the output of the whole network."""

from __future__ import annotations

import numpy as np
import torch

from nystra.export import mechanism
from nystra.export.attention.site import find_sites, neutral, swap
from nystra.export.auto.replay import Replay
from nystra.export.pytorch.network_session import NetworkSession
from nystra.models.swinir.network import SwinIR
from small_swinir import tiny


def test_a_replay_is_the_network_with_one_site_replaced() -> None:
    torch.manual_seed(1)
    shape = {"depths": [2, 1], "num_heads": [2, 2], "resi_connection": "3conv"}
    network = SwinIR(**tiny(**shape)).eval().requires_grad_(requires_grad=False)
    feeds = {"input": np.random.default_rng(0).random((1, 3, 9, 14), dtype=np.float32)}
    other = mechanism("nystra", landmarks=(2, 2))
    for base in (neutral(network), dict.fromkeys(neutral(network), other)):
        replay = Replay(network, base, feeds)
        for site in find_sites(network):
            for planned in (other, mechanism("full"), mechanism("nystromformer", landmarks=(2, 2))):
                plan = base | {site.path: planned}
                expected = NetworkSession(swap(network, plan, "operator"))(feeds["input"])
                assert np.array_equal(replay.replaced(site.path, planned).numpy(), expected)


def test_a_replay_of_modules_that_run_twice() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = SwinIR(**tiny(upscale=1, upsampler=""))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            once: torch.Tensor = self.body(x)
            return self.body(once)

    torch.manual_seed(1)
    network = Twice().eval().requires_grad_(requires_grad=False)
    feeds = {"input": np.random.default_rng(0).random((1, 3, 8, 8), dtype=np.float32)}
    planned, base = mechanism("nystra", landmarks=(2, 2)), neutral(network)
    replay = Replay(network, base, feeds)
    for path in base:
        expected = NetworkSession(swap(network, base | {path: planned}, "operator"))(feeds["input"])
        assert np.array_equal(replay.replaced(path, planned).numpy(), expected)
