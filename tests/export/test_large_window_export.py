"""SST, ESC and DehazeFormer as model files: every mechanism, size and batch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from network_exports import assert_is_the_network, exported, save_generated
from nystra.export import ExportOptions, export_model
from nystra.export.auto_options import AutoOptions
from nystra.export.load.images import photographs
from nystra.models.dehazeformer.network import DehazeFormer
from nystra.models.esc.network import ESC, ESCFP, ESCRIB
from nystra.models.esc.real import ESCReal
from nystra.models.sst.network import SST
from nystra.runtime import Session, psnr, read_image
from nystra.runtime.metrics.measures import PSNR_CEILING
from nystra.runtime.tasks.restoration.restorer import restorer_for

pytestmark = pytest.mark.full

_ESC: dict[str, Any] = {"dim": 8, "pdim": 4, "conv_blocks": 1, "window_size": 8, "num_heads": 2}
_SST: dict[str, Any] = {"dim": 8, "n_blocks": 1, "rib_hidden_dim": 4, "rib_n_freqs": 2}
NETWORKS: dict[str, Any] = {
    "sst": lambda: SST(window_sizes=(4, 12), num_heads=(2, 1), ranks=(2, 3), **_SST),
    "sst_wide": lambda: SST(window_sizes=(24, 48, 96), num_heads=(1,) * 3, ranks=(2,) * 3, **_SST),
    "sst_shifted": lambda: SST(window_sizes=(8, 8), num_heads=(2, 1), ranks=(2, 3), **_SST),
    "esc": lambda: ESC(n_blocks=5, **_ESC),
    "esc_fp": lambda: ESCFP(n_blocks=1, **_ESC),
    "esc_real": lambda: ESCReal(n_blocks=1, **_ESC),
    "esc_rib": lambda: ESCRIB(n_blocks=1, rank=3, gate_type="DWC", **_ESC),
    "dehazeformer": lambda: DehazeFormer(
        embed_dims=(4, 8, 12, 8, 4),
        depths=(1, 2, 3, 1, 1),
        num_heads=(1, 2, 3, 1, 1),
        attn_ratio=(0, 0.5, 0.75, 0, 0),
    ),
}
_TOLD = {
    "sst": {"window_sizes": [4, 12]},
    "sst_wide": {"window_sizes": [24, 48, 96]},
    "sst_shifted": {"window_sizes": [8, 8]},
    "esc_rib": {"window_size": 8},
    "dehazeformer": {"window_size": 8},
}
MORE = [(name, "full") for name in NETWORKS if name != "dehazeformer"]
MORE += [
    (name, mechanism)
    for name in ("sst", "sst_shifted", "sst_wide", "esc_rib")
    for mechanism in ("cluster", "nystra", "nystromformer")
]
FEW = {("sst", "cluster"), ("sst_shifted", "full"), ("esc_rib", "nystra"), ("esc_fp", "full")}
ROWS = [
    ("dehazeformer", "full"),
    *(row if row in FEW else pytest.param(*row, marks=pytest.mark.release) for row in MORE),
]


def tiles_of(model: Path) -> dict[int, float]:
    """Return the PSNR of tiles on the photograph of the file, as it is recorded."""
    restorer = replace(restorer_for(Session(model)), tiling="supported")
    pixels = read_image(next(iter(photographs().values()))).pixels
    whole, count = restorer(pixels, tile=max(pixels.shape))
    assert count == 1
    return {
        side: min(psnr(restorer(pixels, tile=side)[0].clip(0, 1), whole.clip(0, 1)), PSNR_CEILING)
        for side in (64, 128)
    }


@pytest.mark.parametrize(("name", "mechanism"), ROWS)
def test_export(tmp_path: Path, name: str, mechanism: str) -> None:
    told = _TOLD.get(name, {})
    checkpoint = save_generated(NETWORKS[name](), tmp_path / "c.safetensors", 0.5, **told)
    result = exported(checkpoint, tmp_path, mechanism)
    assert result.validation.passed
    tiling = {"esc": "discouraged", "deh": "internal"}.get(name[:3], "supported")
    facts = Session(result.model).facts
    assert facts.tiling == tiling
    if tiling != "supported":
        assert dict(facts.tile_psnr) == pytest.approx(tiles_of(result.model), abs=0.1)
    if mechanism == "full":
        assert_is_the_network(result.model, checkpoint, (2, 3, 13, 21))


@pytest.mark.release
def test_a_plan_for_every_window_is_chosen(tmp_path: Path) -> None:
    checkpoint = save_generated(
        NETWORKS["sst_wide"](), tmp_path / "c.safetensors", 0.5, **_TOLD["sst_wide"]
    )
    result = export_model(checkpoint, tmp_path, ExportOptions(AutoOptions(), speed=False))
    assert result.validation.passed
    chosen = {path.name for path in result.source.resolved.values()}
    assert chosen & {"cluster", "nystra", "nystromformer"}
