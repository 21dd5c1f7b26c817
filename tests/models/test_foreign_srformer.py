"""SRFormer's attention to cells of tokens as a site, compared with its formula token by token."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.attention.site import find_sites
from nystra.models.loading import load
from nystra.models.spandrel.adapters.srformer import PermutedAttention, adapt
from nystra.runtime.session import Session

HEADS, DIM, SIDE, SMALLER = 2, 8, 8, 4


def foreign_block(shift: int) -> SimpleNamespace:
    """Return the adapter's reading of a block: windows of 4, so 2x2 cells."""
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn((2 * 2 - 1) ** 2, HEADS))
    own = SimpleNamespace(
        q=nn.Linear(DIM, DIM),
        kv=nn.Linear(DIM, DIM // 2),
        proj=nn.Linear(DIM, DIM),
        scale=0.7,
        relative_position_bias_table=table,
    )
    return SimpleNamespace(
        dim=DIM, num_heads=HEADS, window_size=SMALLER, shift_size=shift, attn=own
    )


def region(place: int, shift: int) -> int:
    """Return the region of a shifted side that contains a position."""
    return 0 if shift == 0 else (place >= SIDE - SMALLER) + (place >= SIDE - shift)


def by_hand(block: SimpleNamespace, x: torch.Tensor) -> torch.Tensor:
    """Return the attention of a map (SIDE, SIDE, DIM) before its projection."""
    shift, own, head_dim = block.shift_size, block.attn, DIM // HEADS
    rolled = torch.roll(x, (-shift, -shift), (0, 1))
    query = own.q(rolled)
    key, value = own.kv(rolled).chunk(2, -1)  # a quarter of the channels each
    out = torch.zeros_like(rolled)
    for y, x_ in product(range(SIDE), repeat=2):
        top, left = y // SMALLER * SMALLER, x_ // SMALLER * SMALLER
        cells = list(product(range(top, top + SMALLER, 2), range(left, left + SMALLER, 2)))
        for head in range(HEADS):
            channels = slice(head * head_dim, (head + 1) * head_dim)
            scores, values = [], []
            for i, j in cells:
                key_, value_ = (
                    part[i : i + 2, j : j + 2].reshape(-1)[channels] for part in (key, value)
                )
                offset = (y // 2 - i // 2 + 1) * 3 + x_ // 2 - j // 2 + 1
                score = own.scale * (query[y, x_, channels] @ key_)
                score = score + own.relative_position_bias_table[offset, head]
                apart = (region(y, shift), region(x_, shift)) != (
                    region(i, shift),
                    region(j, shift),
                )
                scores.append(score - 100 * apart)
                values.append(value_)
            out[y, x_, channels] = torch.stack(scores).softmax(0) @ torch.stack(values)
    return torch.roll(out, (shift, shift), (0, 1))


@pytest.mark.parametrize("shift", [0, 2])
def test_the_site_is_the_formula(shift: int) -> None:
    block = foreign_block(shift)
    site = PermutedAttention(block)
    maps = torch.randn(2, SIDE, SIDE, DIM)
    with torch.no_grad():
        want = torch.stack([block.attn.proj(by_hand(block, one)) for one in maps])
        got = site(maps)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_a_shift_that_cuts_cells_has_no_site() -> None:
    assert adapt(foreign_block(1), nn.Identity()) is None


@pytest.mark.filterwarnings("ignore")  # of the foreign package
@pytest.mark.parametrize(
    "attention",
    [
        pytest.param("full", marks=pytest.mark.full),
        pytest.param("cluster", marks=pytest.mark.release),
    ],
)
def test_srformer_exports_with_its_windows_as_sites(tmp_path: Path, attention: str) -> None:
    pytest.importorskip("spandrel", reason="the extra spandrel is not installed")
    more = pytest.importorskip(
        "spandrel_extra_arches.architectures.SRFormer", reason="pip install spandrel_extra_arches"
    )
    torch.manual_seed(0)
    own = more.SRFormer(
        img_size=16,
        depths=[2],
        embed_dim=24,
        num_heads=[2],
        window_size=8,
        upscale=2,
        upsampler="pixelshuffledirect",
    ).eval()
    torch.save({"params": own.state_dict()}, tmp_path / "a.pth")
    loaded = load(tmp_path / "a.pth")
    assert len(find_sites(loaded.network)) == 2
    plan = Plan(default=mechanism(attention))
    result = export_model(tmp_path / "a.pth", tmp_path, ExportOptions(plan, speed=False))
    assert any("spandrel_extra_arches" in text for text in result.warnings)
    assert result.validation.passed
    if attention == "full":
        image = np.random.default_rng(0).random((1, 3, 45, 30), np.float32)
        with torch.no_grad():
            want = own(torch.from_numpy(image)).numpy()
        got = Session(result.model, library=None)(image)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)
