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


def part_of(page: str, begin: str) -> str:
    """Return a page from some words on, without its bold type."""
    text = (ROOT / "studies" / "measurements" / f"{page}.md").read_text(encoding="utf-8")
    return text[text.index(begin) :].replace("**", "")


WHOLE_ROW = "| {plan} | {psnr} | {ssim} | {against} |"
PLANS = "'nystra 16, 6 it' 'cluster 16, block 4'"
PUBLISHED = "'nystra-published 16, 2 it' 'nystra-published 16, 6 it'"


@pytest.mark.parametrize(
    ("options", "page", "begin", "row"),
    [
        (f"swinir_x2_w16 --only {PLANS}", "quality_tables", "`swinir_x2_w16`:", WHOLE_ROW),
        (
            f"swinir_x2_w32_nobias --only {PLANS}",
            "quality_tables",
            "`swinir_x2_w32_nobias`:",
            WHOLE_ROW,
        ),
        (
            f"hat_x2_w16 --partial --only {PLANS} 'nystromformer 16'",
            "quality",
            "| `hat_x2_w16` |",
            "| {plan} | {psnr} | {against} |",
        ),
        (
            f"swinir_x2_w16 --window 32 --channel rgb --only {PLANS} {PUBLISHED}",
            "paper",
            "| `swinir_x2_w16`, window 32 |",
            "| {psnr} |",
        ),
        (
            f"uformer_denoise25_w16 --channel rgb --only {PLANS} 'nystromformer 16'",
            "paper",
            "## Landmarks and iterations",
            "{lost}",
        ),
    ],
)
def test_accuracies_on_set5_are_those_of_the_page(
    options: str, page: str, begin: str, row: str, tmp_path: Path
) -> None:
    """Of the first set of the page; ``lost`` is what a plan loses of PSNR / SSIM."""
    truth = shared_path("data", "set5", "HR")
    small = shared_path("data", "set5", "LR_bicubic", "X2")
    if "denoise" in options:
        run(f"studies.paper noisy {truth} --out noisy", tmp_path)
        small = tmp_path / "noisy"
    study = "studies.quality --tables plans --engine kernels --threads 1 --model"
    printed = run(f"{study} {options} --set Set5 {small} {truth}", tmp_path)
    part = part_of(page, begin)
    rows = [re.split(r" *\| *", line)[1:5] for line in printed.splitlines() if "| " in line][2:]
    assert len(rows) > 3
    ssim_of_full = float(rows[0][2])
    for plan, psnr, ssim, against in rows:
        loss = re.search(r"\(-([\d.]+)\)", psnr)
        lost = f"{loss[1]} / {ssim_of_full - float(ssim):.4f}" if loss else ""
        if "no guard" not in plan or row == WHOLE_ROW:
            expected = row.format(plan=plan, psnr=psnr, ssim=ssim, against=against, lost=lost)
            assert expected in part, expected


def test_reconstruction_has_the_errors_of_the_page(tmp_path: Path) -> None:
    pair = [str(shared_path("data", "psal_pair", f"img{n}_512.png")) for n in (1, 2)]
    options = "--temperature 0.3 --sides 64"
    printed = run(f"studies.psal.reconstruction {' '.join(pair)} {options}", tmp_path)
    errors: dict[str, list[float]] = {}
    for name, error in re.findall(r"^  (.*?)(?:, seed \d)? +([\d.]+)$", printed, re.MULTILINE):
        errors.setdefault(name, []).append(float(error))
    part = part_of("psal", "| frame B itself")
    of_page = {
        "frame B itself": "frame B itself",
        "full, l2": "full, stride 1",
        "local, l2, 6x6": "local",
        "linear": "linear",
        "Performer": "performer",
        "Reformer": "reformer",
        "exhaustive, 3 best keys": "exhaustive 3",
        "PSAL 3": "PSAL 3",
        "PSAL 3 aggregated": "PSAL 3 aggregated",
        "PSAL 3 by algorithm 1 as written": "PSAL 3, search as published",
    }
    for row, name in of_page.items():
        assert f"| {row} | {np.mean(errors[name]):.5f} " in part, row


def test_psal_1_trains_badly_as_the_page_says(tmp_path: Path) -> None:
    """Table 4: an error 8.6 times that of PSAL 3 there, of two seeds."""
    train, test = (shared_path("data", "bsds500", name) for name in ("train", "val"))
    study = f"studies.psal.colorization --train {train} --test {test} --separate --side 24"
    run(f"{study} --steps 2000 --seeds 0 --output color --only psal1 --only psal3", tmp_path)
    printed = run(f"{study} --output color --table", tmp_path)
    (gray,) = re.findall(r"gray, without any color: ([\d.]+)", printed)
    assert f"(gray, no color at all) | | {gray} |" in part_of("psal", "| trained with")
    one, three = (
        float(re.findall(rf"trained {name} +tested {name} +([\d.]+)", printed)[0])
        for name in ("psal1", "psal3")
    )
    assert one > 4 * three


def test_samples_differ_as_the_page_says(tmp_path: Path) -> None:
    differences = re.findall(r"apart ([^)]*)", run("studies.rvrt.costs --samples", tmp_path))
    part = part_of("rvrt", "| warping 4 frames").splitlines()
    of_page = [line.split("|")[-2] for line in part[:3]]
    assert [float(text) for text in of_page] == [float(text) for text in differences]


def test_memory_grows_as_the_page_says(tmp_path: Path) -> None:
    printed = run("studies.paper memory --sides 32", tmp_path)
    matrix, *kernels = [float(cell) for cell in printed.splitlines()[-1].split("|")[2:-1]]
    (of_page,) = re.findall(
        r"in PyTorch \| [\d.]+ \| (\d+) \|", part_of("paper", "Memory against N")
    )
    assert matrix == pytest.approx(float(of_page), rel=0.1)
    assert max(kernels) < 1


def test_windows_are_faster_as_the_page_says(tmp_path: Path) -> None:
    """Within a factor of two: the page is of another machine."""
    printed = run("studies.paper windows --windows 32 --rounds 3", tmp_path)
    ratios = [float(text) for text in re.findall(r"\| ([\d.]+)x \(", printed)]
    (row,) = re.findall(r"^\| 32 \| .*", part_of("paper", "| window | full |"), re.MULTILINE)[:1]
    of_page = [1.0, *(float(text) for text in re.findall(r"\(([\d.]+)x,", row))]
    assert len(ratios) == 4
    for ratio, expected in zip(ratios, of_page, strict=True):
        assert expected / 2 < ratio < 2 * expected


def test_accuracies_on_cifar10_are_those_of_the_page(folder: Path) -> None:
    bundle = shared_path("data", "cifar10", "cifar10_images_jpg.bundle")
    subprocess.run(["git", "clone", "-q", bundle, folder / "cifar10"], check=True)
    study = "studies.vit.study vit.safetensors --images cifar10/test --kept rows.json"
    printed = run(f"{study} --seconds 0.1", folder)
    rows = [line for line in printed.splitlines() if re.match(r"\| .* [\d.]+% \|", line)]
    part = part_of("vit", "## Trained with the same recipe")
    assert len(rows) == 6
    for row in rows:
        assert row[: row.rindex("% |") + 2] in part, row


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
