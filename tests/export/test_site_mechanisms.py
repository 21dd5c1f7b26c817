"""Sites with a mechanism of the network: trained tensors, modules, windows of three sides."""

import copy
import importlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nystra.export.attention.full.parameters import Full
from nystra.export.attention.implementation import implement
from nystra.export.attention.landmark_tokens import make_pooling
from nystra.export.attention.registry import MECHANISMS, mechanism
from nystra.export.attention.site import neutral, swap
from nystra.models.geometry import TokenGeometry, WindowGeometry
from nystra.models.sites import MapSite, TokenSite, WindowSite, exact_tokens, exact_windows
from nystra.plugins.operators.attention_torch import nystrom_attention, nystromformer_attention
from nystra.plugins.operators.windows_torch import merge, partition


class Linformer(TokenSite):
    """Attention to keys and values that trained matrices project to a few tokens."""

    def __init__(self, tokens: int, few: int) -> None:
        super().__init__(TokenGeometry((1, tokens), (1, tokens), 0.5))
        self.shorten_key = nn.Parameter(torch.randn(few, tokens))
        self.shorten_value = nn.Parameter(torch.randn(few, tokens))
        self.implementation = self.project

    def project(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the attention; shapes as ``TokenSite`` says."""
        return exact_tokens(q, self.shorten_key @ k, self.shorten_value @ v, bias, geometry)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x, x)


def test_trained_tensors_belong_to_the_site() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(Linformer(6, 2))
    assert list(network.state_dict()) == ["0.shorten_key", "0.shorten_value"]
    x = torch.randn(1, 2, 6, 3)
    as_trained = swap(network, neutral(network))
    torch.testing.assert_close(as_trained(x), network(x), rtol=0, atol=0)
    assert (
        as_trained[0].implementation.__self__ is as_trained[0]
    )  # reads its own copy of the tensors
    full = swap(network, {"0": Full()})
    torch.testing.assert_close(full(x), exact_tokens(x, x, x, None, network[0].geometry))
    assert not torch.allclose(full(x), network(x))
    assert full.state_dict().keys() == network.state_dict().keys()


class Scaled(nn.Module):
    """A mechanism that is a module with a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(3.0))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        return self.factor * exact_tokens(q, k, v, bias, geometry)


def test_a_module_may_be_the_implementation_and_be_exchanged() -> None:
    site = TokenSite(TokenGeometry((1, 4), (1, 4), 1.0))
    assert not site.state_dict()
    x = torch.randn(1, 1, 4, 2)
    exact = site.attend(x, x, x)
    site.implementation = Scaled()
    assert list(site.state_dict()) == ["implementation.factor"]
    torch.testing.assert_close(copy.deepcopy(site).attend(x, x, x), 3 * exact)
    site.implementation = exact_tokens
    assert not site.state_dict()
    torch.testing.assert_close(site.attend(x, x, x), exact)


@pytest.mark.parametrize("bias", [False, True])
def test_windows_of_frames_rows_and_columns(bias: bool) -> None:
    """A window over all frames is ordinary attention over its tokens."""
    torch.manual_seed(1)
    geometry = WindowGeometry(2, 3, 3, (2, 2, 4), (0, 0, 0), scale=0.7)
    table = torch.randn(3 * 3 * 7, 2) if bias else None
    qkv = torch.randn(1, 2, 2, 4, geometry.channels)
    got = exact_windows(qkv, table, geometry)
    q, k, v = qkv.reshape(1, 16, 3, 2, 3).permute(2, 0, 3, 1, 4)
    logits = 0.7 * q @ k.transpose(-1, -2)
    if table is not None:
        places = torch.cartesian_prod(*map(torch.arange, geometry.window))
        away = places[:, None] - places[None, :] + torch.tensor([1, 1, 3])
        logits = logits + table.view(3, 3, 7, 2)[away.unbind(-1)].permute(2, 0, 1)
    want = (logits.softmax(-1) @ v).transpose(1, 2).reshape(1, 2, 2, 4, 6)
    torch.testing.assert_close(got, want)


def test_a_shifted_window_of_a_video_keeps_its_regions_apart() -> None:
    geometry = WindowGeometry(1, 2, 2, (2, 2), (1, 1), masked=True)
    flat = torch.randn(1, 4, 6, geometry.channels)
    video = WindowGeometry(1, 2, 2, (1, 2, 2), (0, 1, 1), masked=True)
    got = exact_windows(flat.unsqueeze(1), None, video).squeeze(1)
    torch.testing.assert_close(got, exact_windows(flat, None, geometry))


def video(bias: bool, shift: int) -> tuple[WindowGeometry, Tensor, Tensor | None]:
    """Windows of two of four frames, their map, and a bias table."""
    torch.manual_seed(2)
    geometry = WindowGeometry(2, 3, 3, (2, 4, 4), (0, shift, shift), masked=shift > 0, scale=0.7)
    qkv = torch.randn(2, 4, 8, 12, geometry.channels)
    return geometry, qkv, torch.randn(3 * 7 * 7, 2) if bias else None


@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_frames_side_by_side_are_exact_attention(shift: int, bias: bool) -> None:
    geometry, qkv, table = video(bias, shift)
    want = exact_windows(qkv, table, geometry)
    site: Any = WindowSite(geometry)
    for form in ("plain", "operator"):
        torch.testing.assert_close(implement(Full(), site, form)(qkv, table, geometry), want)


@pytest.mark.parametrize("kind", ["nystra", "nystromformer"])
def test_landmarks_of_frames_are_boxes(kind: str) -> None:
    geometry, qkv, table = video(bias=True, shift=0)
    planned = mechanism(kind, landmarks=(2, 4), iterations=2)
    q, k, v = partition(qkv, geometry)
    pool = make_pooling((2, 4, 4), (1, 2, 4), qkv)  # 4 of 8 laid columns: one of each frame
    compute = {"nystra": nystrom_attention, "nystromformer": nystromformer_attention}[kind]
    out = compute(q, k, v, pool @ q, pool @ k, scale=geometry.scale, iterations=2)
    want = merge(out, qkv.shape[1:-1], geometry)
    site: Any = WindowSite(geometry)
    for form in ("plain", "operator"):
        got = implement(planned, site, form)(qkv, table, geometry)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_shifted_window_of_frames_keeps_its_regions_under_landmarks() -> None:
    geometry, qkv, _ = video(bias=False, shift=2)
    planned = mechanism("nystra", landmarks=(2, 2), iterations=2)
    site: Any = WindowSite(geometry)
    before = implement(planned, site, "plain")(qkv, None, geometry)
    qkv[:, :, :2] += 1  # rows that only the shift made neighbors of the last ones
    after = implement(planned, site, "plain")(qkv, None, geometry)
    torch.testing.assert_close(after[:, :, 6:], before[:, :, 6:])
    assert not torch.allclose(after[:, :, :2], before[:, :, :2])


def test_windows_shifted_along_frames_have_no_landmarks() -> None:
    geometry = WindowGeometry(1, 2, 2, (2, 4, 4), (1, 2, 2))
    assert "shifted along the frames, by 1" in mechanism("nystra").fits(geometry)
    assert "needs windows of rows and columns" in mechanism("psal").fits(geometry)


def test_windows_may_differ_from_site_to_site() -> None:
    sides = [WindowSite(WindowGeometry(1, 1, 1, side, (0, 0))) for side in ((2, 2), (4, 2))]
    assert [site.geometry.tokens for site in sides] == [4, 8]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("full", {}),
        ("nystra", {"landmarks": (3, 5)}),
        ("nystromformer", {"landmarks": (3, 5)}),
        ("cluster", {"clusters": (2, 3), "block": 4}),
    ],
)
@pytest.mark.parametrize("sides", [(10, 15), (8, 8), (3, 5)])
def test_a_whole_map_is_a_grid_of_tokens(
    name: str, settings: dict[str, Any], sides: tuple[int, int]
) -> None:
    chosen, geometry = mechanism(name, **settings), TokenGeometry(sides, sides, 0.5)
    q, k, v = (torch.randn(2, 4, *sides) for _ in range(3))
    got = implement(chosen, MapSite(0.5), "plain")(q, k, v, 0.5)
    tokens = implement(chosen, TokenSite(geometry), "plain")
    lists = [part.flatten(2).mT.unsqueeze(1) for part in (q, k, v)]
    expected = tokens(*lists, None, geometry)[:, 0].mT.unflatten(2, sides)
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=2e-5)


def test_a_line_has_all_landmarks_and_clusters_along_it() -> None:
    geometry = TokenGeometry((1, 64), (1, 64), 0.5)
    q, k, v = (torch.randn(1, 2, 64, 4) for _ in range(3))
    square, line = (
        implement(mechanism("nystra", landmarks=sides), TokenSite(geometry), "plain")
        for sides in ((2, 4), (1, 8))
    )
    torch.testing.assert_close(
        square(q, k, v, None, geometry), line(q, k, v, None, geometry), atol=0, rtol=0
    )
    one = TokenGeometry((1, 16), (1, 16), 0.5)  # a block of 4x4 holds them all
    cluster = implement(mechanism("cluster", block=4), TokenSite(one), "plain")
    parts = [part[:, :, :16] for part in (q, k, v)]
    torch.testing.assert_close(
        cluster(*parts, None, one), exact_tokens(*parts, None, one), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", sorted(MECHANISMS.keys() - {"as_trained"}))
def test_a_mechanism_names_the_classes_of_its_sites(name: str) -> None:
    sites = importlib.import_module(f"nystra.export.attention.{name}.sites")
    kinds = {"Windows", "Overlaps", "Tokens", "Patches", "Maps"}
    assert kinds & vars(sites).keys() == set(mechanism(name).site_classes)
