"""Mechanism ``cluster``: its choice of blocks, and its form for lists of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from nystra.core.errors import NystraError
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.implementation import implement
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import resolve
from nystra.models.geometry import TokenGeometry, WindowGeometry
from nystra.models.sites import TokenSite, WindowSite, exact_tokens
from nystra.models.swinir.network import SwinIR
from nystra.plugins.operators.cluster_torch import key_clusters
from nystra.plugins.operators.window_cluster.schema import SCHEMA
from small_swinir import tiny


def geometry(window: int, shift: int = 0, masked: bool = True) -> WindowGeometry:
    return WindowGeometry(2, 5, 5, (window, window), (shift, shift), masked, 0.4)


@pytest.mark.parametrize(
    ("block", "window", "shift", "taken"),
    [(4, 16, 8, 4), (8, 16, 8, 8), (4, 7, 3, 4), (8, 14, 7, 7), (6, 16, 8, 4), (4, 10, 5, 0),
     (5, 10, 5, 5)],
)  # fmt: skip
def test_the_largest_block_that_no_border_cuts(
    block: int, window: int, shift: int, taken: int
) -> None:
    asked = Cluster(block=block)
    reason = asked.fits(geometry(window, shift))
    if not taken:
        assert f"cuts every block of 2 to {block} (window {window} x {window}" in reason
        return
    assert reason == ""
    fitting = asked.at(geometry(window, shift))
    assert fitting.block == taken
    assert asked.attributes(geometry(window, shift), True)["block"] == taken
    assert asked.at(geometry(window, shift, masked=False)).block == block


@pytest.mark.parametrize(
    ("clusters", "window", "taken"),
    [((8, 8), (3, 48), (3, 21)), ((6, 6), (3, 48), (3, 12)), ((8, 8), (48, 3), (21, 3)),
     ((8, 8), (2, 4), (2, 4)), ((4, 4), (8, 32), (4, 4)), ((2, 8), (4, 4), (4, 4)),
     ((1, 64), (1, 144), (1, 64))],
)  # fmt: skip
def test_no_two_clusters_start_at_one_token(
    clusters: tuple[int, int], window: tuple[int, int], taken: tuple[int, int]
) -> None:
    """Centers of two would be equal, and every engine's rounding would choose between them."""
    strip = WindowGeometry(2, 5, 5, window, (0, 0), False, 0.4)
    asked = Cluster(clusters, 2)
    fitting = asked.at(strip)
    assert fitting.clusters == taken
    assert fitting.at(strip) == fitting
    attributes = asked.attributes(strip, False)
    assert (attributes["cluster_rows"], attributes["cluster_cols"]) == taken


def test_windows_of_frames_are_refused_with_a_reason() -> None:
    frames = WindowGeometry(2, 8, 8, (2, 8, 8), (0, 0, 0), False, 1.0)
    assert "not of (2, 8, 8)" in Cluster().fits(frames)
    assert Cluster((2, 2), 4).at(frames).clusters == (2, 2)


def test_repeated_seeds_have_no_members() -> None:
    keys = torch.randn(1, 2, 12, 4, generator=torch.Generator().manual_seed(0))
    seeds, repeated = torch.tensor([1, 1, 5, 9, 9]), torch.tensor([False, True, False, False, True])
    members, centers = key_clusters(keys, seeds, 2, repeated)
    distinct, their_centers = key_clusters(keys, seeds[~repeated], 2)
    assert torch.equal(members[..., ~repeated], distinct)
    assert torch.equal(centers[..., ~repeated, :], their_centers)
    assert not members[..., repeated].any()


def test_a_window_whose_every_block_is_cut_keeps_exact_attention() -> None:
    network = SwinIR(**tiny(window_size=10))
    whole, cut = resolve(Plan(Cluster()), network).values()
    assert (whole.name, cut.name) == ("cluster", "full")
    assert cut.reason.startswith("a region border cuts every block of 2 to 4 (window 10 x 10, sh")
    asked = Cluster().attributes(geometry(10, 0), False) | {
        "shift_h": 5,
        "mask": 1,
        "bias_block": 4,
    }
    with pytest.raises(NystraError, match="border at 5 of 10 rows cuts a block of bias_block 4"):
        SCHEMA.validate(asked)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("block", range(2, 9))
def test_the_operator_takes_what_the_mechanism_says(block: int, bias: bool) -> None:
    """At every window and shift that the mechanism accepts."""
    served = 0
    for window in (1, 2, 5, 7, 8, 12, 16, 24, 30, 32, 64, 100, 256):
        for shift in {0, window // 2, window // 3}:
            place = geometry(window, shift)
            if not Cluster(block=block).fits(place):
                checked = SCHEMA.validate(Cluster(block=block).attributes(place, bias))
                served += 1
                assert checked["bias_block"] % checked["block"] == 0
    assert served > 20


@pytest.mark.parametrize(
    ("window", "shift", "bias", "side"),
    [(16, 8, True, 4), (32, 16, True, 8), (64, 0, True, 8), (24, 12, True, 4), (32, 16, False, 16),
     (32, 0, False, 32), (14, 0, False, 16)],
)  # fmt: skip
def test_blocks_of_the_coarse_bias(window: int, shift: int, bias: bool, side: int) -> None:
    assert Cluster().attributes(geometry(window, shift), bias)["bias_block"] == side
    given = Cluster(bias_block=4).attributes(geometry(window, shift), bias)
    assert given["bias_block"] == 4
    assert "bias_block 6 is not a multiple" in Cluster(bias_block=6).fits(geometry(window, shift))


def test_a_map_of_free_sides_with_covariance_is_a_window() -> None:
    """Class tokens aside; its last blocks extend beyond the map."""
    place = WindowGeometry(2, 5, 4, (9, 13), (0, 0), False, 0.4)
    q, k, v = lists(1, 117, 117)
    packed = torch.cat([part.transpose(1, 2).flatten(2) for part in (q, k, v)], -1)
    mechanism = Cluster((2, 2), 4, order=1)
    windows: Any = implement(mechanism, WindowSite(place), "plain")
    got = windows(packed.view(1, 9, 13, -1), None, place)
    free = TokenGeometry((9, 13), (9, 13), 0.4, before=(0, 0))
    listed = tokens(free, clusters=(2, 2), block=4, order=1)(q, k, v, None, free)
    expected = listed.transpose(1, 2).reshape(1, 9, 13, -1)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


def test_covariances_have_fewer_clusters() -> None:
    assert Cluster(order=1).at(geometry(32)).clusters == (2, 2)
    assert "64 clusters; order 1 has at most 16" in Cluster((8, 8), order=1).fits(geometry(32))


@pytest.mark.parametrize(
    ("place", "setting", "reason"),
    [
        (geometry(4), {}, "one block of cluster has all 16 keys"),
        (geometry(8), {"block": 8}, "one block of cluster has all 64 keys"),
        (geometry(8), {"clusters": (8, 8), "block": 4}, "cluster has 64 clusters for 64 keys"),
        (geometry(8), {}, ""),
        (geometry(8, shift=4), {"block": 8}, ""),
        (TokenGeometry((8, 8), (4, 4), 1.0), {}, "cluster has 16 clusters for 16 keys"),
        (TokenGeometry((1, 16), (1, 32), 1.0), {}, "one block of cluster has all 32 keys"),
        (TokenGeometry((1, 17), (1, 32), 1.0), {}, ""),
        (TokenGeometry((2, 2), (2, 2), 1.0, before=(0, 0)), {}, ""),
        (None, {}, ""),
    ],
)
def test_few_keys_keep_exact_attention(place: Any, setting: dict[str, Any], reason: str) -> None:
    """A query would have as many logits as keys; the sides of a map may be larger elsewhere."""
    expected = reason and f"{reason}, and exact attention is faster"
    assert Cluster(**setting).slower_than_exact(place) == expected


def test_where_it_cannot_pay() -> None:
    assert Cluster().why_not_faster(64) == "64 tokens, 16 clusters and blocks of 16"
    assert Cluster().why_not_faster(256) == ""


@pytest.mark.parametrize(
    ("window", "clusters", "block"),
    [(16, (4, 4), 4), (24, (4, 4), 4), (32, (4, 4), 8), (48, (8, 8), 8), (96, (8, 8), 8)],
)
def test_large_windows_have_more_clusters_and_larger_blocks(
    window: int, clusters: tuple[int, int], block: int
) -> None:
    """Given values are kept; a plan records the chosen ones."""
    place = geometry(window, window // 2)
    chosen = Cluster().at(place)
    assert (chosen.clusters, chosen.block) == (clusters, block)
    assert chosen.as_dict()["clusters"] == list(clusters)
    found = Cluster().attributes(place, False)
    assert (found["cluster_rows"], found["cluster_cols"], found["block"]) == (*clusters, block)
    given = Cluster((2, 4), 4).at(place)
    assert (given.clusters, given.block) == ((2, 4), 4)
    assert chosen == chosen.at(place)


def test_lists_of_tokens_have_the_clusters_of_small_windows() -> None:
    chosen = Cluster().at(TokenGeometry((64, 64), (64, 64), 1.0))
    assert (chosen.clusters, chosen.block) == ((4, 4), 4)


def lists(batch: int, queries: int, keys: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    return (
        torch.randn(batch, 2, queries, 5, dtype=torch.float64),
        torch.randn(batch, 2, keys, 5, dtype=torch.float64),
        torch.randn(batch, 2, keys, 4, dtype=torch.float64),
    )


def tokens(place: TokenGeometry, **parameters: Any) -> Any:
    return implement(Cluster(**parameters), TokenSite(place), "plain")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("query_grid", "key_grid", "before"),
    [((3, 4), (3, 4), 0), ((3, 4), (3, 4), 2), ((2, 3, 4), (2, 3, 4), 1), ((4, 6), (2, 3), 0),
     ((1, 7), (1, 5), 0), ((5, 5), (3, 4), 1)],
)  # fmt: skip
def test_one_block_is_exact(
    query_grid: tuple[int, ...], key_grid: tuple[int, ...], before: int, biased: bool
) -> None:
    """Class tokens, grids of three sides, other key counts: one block needs no clusters."""
    place = TokenGeometry(query_grid, key_grid, 0.7)
    queries, keys = (int(np.prod(grid)) + before for grid in (query_grid, key_grid))
    q, k, v = lists(2, queries, keys)
    bias = torch.randn(1, 2, queries, keys, dtype=torch.float64) if biased else None
    got = tokens(place, block=8)(q, k, v, bias, place)
    torch.testing.assert_close(got, exact_tokens(q, k, v, bias, place), atol=1e-12, rtol=0)


@pytest.mark.parametrize("biased", [False, True])
def test_tokens_with_as_many_clusters_as_keys_are_exact(biased: bool) -> None:
    """Each key is a cluster of its own; a bias that is the same in a block averages to itself."""
    place = TokenGeometry((4, 8), (4, 8), 0.7)
    q, k, v = lists(2, 33, 33)
    bias = None
    if biased:
        coarse = torch.randn(1, 2, 8, 8, dtype=torch.float64)
        row = torch.arange(32) // 16 * 4 + torch.arange(32) % 8 // 2
        bias = torch.zeros(1, 2, 33, 33, dtype=torch.float64)
        bias[:, :, 1:, 1:] = coarse[:, :, row][..., row]
    got = tokens(place, clusters=(4, 8), block=2)(q, k, v, bias, place)
    torch.testing.assert_close(got, exact_tokens(q, k, v, bias, place), atol=1e-12, rtol=0)


@pytest.mark.parametrize("order", [0, 1])
def test_a_window_with_a_bias_is_a_list_of_tokens(order: int) -> None:
    from nystra.plugins.operators.window_softmax.torch_op import relative_position_bias

    place = WindowGeometry(2, 5, 4, (8, 12), (0, 0), False, 0.4)
    q, k, v = lists(1, 96, 96)
    packed = torch.cat([part.transpose(1, 2).flatten(2) for part in (q, k, v)], -1)
    table = torch.randn(15 * 23, 2, dtype=torch.float64)
    mechanism = Cluster(bias_block=4, order=order)
    windows: Any = implement(mechanism, WindowSite(place), "plain")
    got = windows(packed.view(1, 8, 12, -1), table, place)
    grids = TokenGeometry((8, 12), (8, 12), 0.4)
    bias = relative_position_bias(table, 8, 12).unsqueeze(0)
    listed = tokens(grids, order=order)(q, k, v, bias, grids)
    expected = listed.transpose(1, 2).reshape(1, 8, 12, -1)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = TokenGeometry((6, 8), (3, 4), 0.5)
        self.attend = tokens(self.place, clusters=(2, 2), block=4)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = self.attend(q, k, v, None, self.place)
        return out


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:# The axis name")
def test_tokens_export_with_an_open_batch(tmp_path: Any) -> None:
    inputs = tuple(part.float() for part in lists(2, 49, 14))
    open_batch = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    file = tmp_path / "tokens.onnx"
    torch.onnx.export(
        _Attention().eval(), inputs, file, dynamo=True, dynamic_shapes=open_batch, verbose=False
    )
    session = ort.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    others = tuple(part.float() for part in lists(3, 49, 14, seed=1))
    feeds = {
        info.name: part.numpy() for info, part in zip(session.get_inputs(), others, strict=True)
    }
    expected = _Attention()(*others).numpy()
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, atol=2e-6)


def test_a_plan_refuses_what_is_no_cluster() -> None:
    with pytest.raises(NystraError, match=r"`clusters` is 9x8, 72 clusters; at most 64"):
        Cluster(clusters=(9, 8))
    with pytest.raises(NystraError, match="`block` is 9, expected a whole number from 2 to 8"):
        Cluster(block=9)
