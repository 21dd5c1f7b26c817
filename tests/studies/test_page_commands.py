"""The commands of the studies' pages run: exact figures are those of the page, others are reduced.

Commands that train, and tables of quality, run reduced in the other files of this folder.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from runtime_models import nystra_metadata, save_upscaler
from shared import ROOT, shared_path

pytestmark = pytest.mark.release


CASES = ("swinir", "uformer64", "uformer32", "dehazeformer")
QUALITY = "--tables plans --engine kernels --threads 1 --only 'nystra 16, 6 it' --set a LR HR"
VIT = ROOT / "models" / "pretrained" / "vit_cifar10_p4.safetensors"


def run(command: str, folder: Path) -> str:
    """Return what a study prints, which runs in a folder."""
    ended = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with images ``a.png`` and ``b.png`` of two sizes, as sets have them, and classes."""
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        noise = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        for place, size in (("HR", (128, 96)), ("LR", (64, 48)), (f"classes/{name}", (32, 32))):
            (tmp_path / place).mkdir(parents=True, exist_ok=True)
            noise.resize(size, Image.Resampling.BICUBIC).save(tmp_path / place / f"{name}.png")
    shutil.copy(VIT, tmp_path / "vit.safetensors")
    save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata())
    row = {"trained": "full", "runs": "psal", "top1": 0.5, "onnxruntime": 1.0}
    (tmp_path / "rows_of_page.json").write_text(json.dumps([row]))
    (tmp_path / "table.json").write_text(json.dumps({"psal3": {"psal3": [0.01, 0.02]}}))
    return tmp_path


@pytest.mark.parametrize("command", ["studies.vit.costs count", "studies.vit.published --rounds 0"])
def test_exact_figures_are_those_of_the_page(command: str, tmp_path: Path) -> None:
    """The page may have further columns: latency."""
    page = (ROOT / "studies" / "measurements" / "vit.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in run(command, tmp_path).splitlines() if line.startswith("| ")]
    assert len(rows) > 15
    for row in rows:
        assert any(line.startswith(row.removesuffix(" |")) for line in page), row


@pytest.mark.parametrize("model", ["swinir_x2_w16", "swinir_x2_w32_nobias"])
def test_accuracies_on_set5_are_those_of_the_page(model: str, tmp_path: Path) -> None:
    """Set5 is the first set of the page: its figures begin the rows."""
    small, truth = (
        shared_path("data", "set5", "LR_bicubic", "X2"),
        shared_path("data", "set5", "HR"),
    )
    plans = "--only cluster 'nystra 16, 6 it'"
    choice = f"--model {model} --tables plans --engine kernels --threads 1 {plans}"
    printed = run(f"studies.quality {choice} --set Set5 {small} {truth}", tmp_path)
    rows = [line for line in printed.splitlines() if re.match(r"\| (full|nystra|cluster)", line)]
    page = (ROOT / "studies" / "measurements" / "quality_tables.md").read_text(encoding="utf-8")
    part = page.split(f"`{model}`:")[1]
    assert len(rows) > 3
    for row in rows:
        assert row.removesuffix("|") in part, row


@pytest.mark.parametrize(
    "command",
    [
        "studies.paper memory --sides 8",
        *(f"studies.paper {kind} HR --out made" for kind in ("noisy", "blurred", "reduced")),
        *(f"studies.paper networks --case {case} --rounds 1 --plans nystra" for case in CASES),
        "studies.paper windows --windows 8 --rounds 1",
        "studies.psal.colorization --train HR --test HR --steps 1 --images 1 --only psal3",
        "studies.psal.costs_figure table.json 5.png",
        "studies.psal.inpainting HR/a.png --height 64 --width 64 --hole 16",
        "studies.psal.memory --sides 64",
        "studies.psal.reconstruction HR/a.png HR/b.png --sides 64 --temperature 0.3 --seeds 0",
        "studies.quality.auto_plans --folder auto --model hat_x2_w16 --budgets 50 --set a LR HR",
        f"studies.quality --model hat_x2_w16 --partial {QUALITY}",  # a site keeps full attention
        f"studies.quality --model swinir_x2_w16 --window 32 --channel rgb {QUALITY}",
        "studies.quality.sheet --out sheet.png swinir_x2_w16:LR/a.png:HR/a.png",
        "studies.rvrt.costs --frames 2 --size 16x16 --form 'full, window 8, as published'",
        "studies.rvrt.costs --samples",
        "studies.rvrt.export --network 001 --save rvrt.safetensors",
        "studies.performance.opening m.onnx --seconds 30 --only 'as they are'",
        "studies.vit.costs memory --sides 64 --engines PyTorch",
        "studies.vit.costs time --seconds 0.1 --sides 64 --engines PyTorch",
        "studies.vit.token_merging vit.safetensors classes --seconds 0.1",
        "studies.vit.study vit.safetensors --images classes --seconds 0.1 --kept rows.json",
        "studies.vit.study --plot vit.png --kept rows_of_page.json",
    ],
)
def test_a_command_runs(command: str, folder: Path) -> None:
    if "costs_figure" in command or "--plot" in command:
        pytest.importorskip("matplotlib")
    run(command, folder)
