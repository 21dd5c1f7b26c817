"""The tables and figures of the paper: the matrices are those of the mechanisms."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nystra.core.errors import BackendUnavailableError
from nystra.export.attention.implementation import implement
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite
from nystra.models.swinir.network import SwinIR
from nystra.plugins.library import library_path
from nystra.plugins.operators.windows_torch import merge, partition
from nystra.runtime.images.images import read_image

pytest.importorskip("matplotlib")  # the extra nystra[report]

from studies.paper import __main__ as paper
from studies.paper import times as paper_times
from studies.paper.matrices import EXACT, Seen
from studies.quality.tables import cluster, nystra, nystromformer, published

GEOMETRY = WindowGeometry(2, 3, 5, window=(4, 8), shift=(2, 4), masked=True, scale=0.7)


PUBLISHED = published(4).for_network("uformer", {})
"""One start of the pseudoinverse for all windows and heads: they are computed together."""


@pytest.fixture(scope="module")
def site() -> Seen:
    generator = torch.Generator().manual_seed(0)
    module = WindowSite(GEOMETRY)
    table = torch.randn((7 * 15, GEOMETRY.heads), generator=generator)
    module.relative_position_bias_table = torch.nn.Parameter(table, requires_grad=False)
    return Seen("here", module, torch.randn((1, 8, 16, GEOMETRY.channels), generator=generator))


@pytest.mark.parametrize(
    "plan", [EXACT, nystra(4), PUBLISHED, nystromformer(4), cluster(4)], ids=str
)
def test_the_matrices_times_the_values_are_the_attention(site: Seen, plan: object) -> None:
    _, _, values = partition(site.qkv, GEOMETRY)
    heads = site.matrices(plan) @ values[0].transpose(0, 1)  # type: ignore[arg-type]
    got = merge(heads.transpose(0, 1)[None], site.qkv.shape[1:3], GEOMETRY)
    compute = implement(plan.at(GEOMETRY), site.site, "plain")  # type: ignore[attr-defined]
    expected = compute(site.qkv, site.site.relative_position_bias_table, GEOMETRY)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_the_exact_matrix_keeps_to_regions_and_can_leave_the_bias_out(site: Seen) -> None:
    exact = site.matrices(EXACT)[1]
    torch.testing.assert_close(exact.sum(-1), torch.ones(4, 32))
    assert exact[0].min() > 0
    assert (exact[3] < 1e-20).float().mean() == 0.75  # four regions of a quarter
    q, k, _ = partition(site.qkv, GEOMETRY)
    plain = (GEOMETRY.scale * q[0, 0, 1] @ k[0, 0, 1].T).softmax(-1)
    torch.testing.assert_close(site.matrices(EXACT, bias=False)[1, 0], plain)
    assert (exact[0] - plain).abs().max() > 0.01


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((36, 34)).save(folder / "a.png")
    return folder


@pytest.mark.full
def test_errors_and_figures_of_a_shipped_network(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = tmp_path / "noisy"
    paper.main(["noisy", str(inputs), "--out", str(noisy)])
    clean, made = (read_image(path / "a.png").pixels for path in (inputs, noisy))
    assert 15 < 255 * (made - clean).std() < 30
    paper.main(["reduced", str(inputs), "--out", str(tmp_path / "small")])
    small = read_image(tmp_path / "small" / "a.png").pixels
    assert small.shape == (4, 4, 3)
    assert abs(small.mean() - clean[:32, :32].mean()) < 0.05
    on = ["--on", "swinir_x2_w16", str(noisy), "--side", "16"]
    paper.main(["errors", *on])
    printed = capsys.readouterr()
    assert "swinir_x2_w16: image 1/1, site 1/6 " in printed.err
    head, _, *lines = printed.out.strip().splitlines()
    assert head.count("|") == 11
    assert len(lines) == 7
    means = [float(cell) for cell in lines[-1].split("|")[4:-1]]
    square, uniform, linear, _, _, _, clustered = means
    assert clustered < linear < square
    assert uniform < square
    for command in ("spectrum", "maps"):
        out = tmp_path / f"{command}.png"
        paper.main([command, *on, "--out", str(out)])
        assert read_image(out).pixels.shape[1] > 400
    assert "swinir_x2_w16, without its bias" in capsys.readouterr().out


@pytest.mark.full
def test_times_are_ratios_to_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        library_path()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    out = tmp_path / "5.png"
    paper.main(["scaling", "--rounds", "1", "--sides", "8", "--out", str(out)])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1:3] for line in lines[2:6:3]] == [
        [" 64 ", " full "],
        [" 64 ", " cluster "],
    ]
    assert out.exists()
    rows = paper_times.network_rows(1, paper_times.Case("tiny", small, small, 16))
    assert [row["plan"] for row in rows][-2:] == [paper_times.MATRIX, paper_times.PUBLISHED]
    assert rows[0]["ratio"] == 1
    assert all(row["ms"] > 0 for row in rows)


def small() -> SwinIR:
    return SwinIR(
        upscale=2,
        embed_dim=8,
        depths=[2],
        num_heads=[2],
        window_size=8,
        upsampler="pixelshuffledirect",
        position_bias=False,
        mask=False,
    ).eval()
