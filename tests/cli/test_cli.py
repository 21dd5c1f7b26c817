"""The commands: time of --help, exit codes, and errors that leave no files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from exported_files import swinir_files
from nystra.cli.main import export_main, main
from small_swinir import state_of

ONE_SIZE = ["--static", "1x3x16x16"]
"""Of tests that ask what an export does beside tracing: free sides take twice the time."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an export, and what the command wrote and printed."""
    return swinir_files(tmp_path_factory) / "model.onnx"


@pytest.fixture(scope="module")
def checkpoint(exported: Path) -> Path:
    return exported.with_name("tiny.safetensors")


@pytest.fixture(scope="module")
def one_block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of half the layers, for exports that are not written."""
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.safetensors"
    save_file(state_of(window_size=8, depths=[1]), path)
    return path


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["export", "--help"], ["run", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = run_python(
        "import sys\n"
        "from nystra.cli.main import main\n"
        f"code = main({arguments})\n"
        "heavy = {'torch', 'onnxruntime', 'onnx', 'numpy', 'PIL'} & set(sys.modules)\n"
        "sys.exit(code or (str(heavy) if heavy else 0))"
    )
    assert done.returncode == 0, done.stderr
    assert "usage: nystra" in done.stdout


def test_help_is_instant() -> None:
    bare = min(seconds_of("pass") for _ in range(3))
    code = "from nystra.cli.main import main; main(['--help'])"
    assert min(seconds_of(code) for _ in range(5)) - bare < 0.3


def seconds_of(code: str) -> float:
    """Processor seconds of the code in a separate process."""
    before = os.times()
    run_python(code)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def test_bad_usage_is_exit_code_2_and_writes_nothing(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"schema_version": 1, "sites": {"layers.9.attn": {"mechanism": "nystra"}}}')
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema_version": 1, "color": 3}')
    text = tmp_path / "text.pth"
    text.write_text("not a checkpoint")
    before = sorted(tmp_path.iterdir())
    cases: list[tuple[list[str], str]] = [
        ([str(tmp_path / "none.pth")], "No such file"),
        ([str(text)], "not a checkpoint"),
        ([str(checkpoint), "--attn", "magic"], "'magic' is unknown; known are full, nystra"),
        ([str(checkpoint), "--attn", "atuo"], "nystra-published, and for nystra-export auto"),
        (
            [str(checkpoint), "--landmarks", "16"],
            "--landmarks does not apply to --attn full: it is for --attn nystra or nystro",
        ),
        (
            [str(checkpoint), "--attn", "nystra", "--landmarks", "many"],
            "--landmarks is 'many', expected rows and columns",
        ),
        (
            [str(checkpoint), "--attn", "nystra", "--iterations", "9"],
            "--iterations is 9, expected a whole number from 1 to 8",
        ),
        ([str(checkpoint), "--plan", str(plan), "--attn", "nystra"], "contradict each other"),
        ([str(checkpoint), "--plan", str(plan)], "sites that the network does not have"),
        ([str(checkpoint), "--plan", str(broken)], "unknown keys ['color']"),
        ([str(checkpoint), "--set", "window"], "is not KEY=VALUE"),
        ([str(checkpoint), "--window", "8", "--set", "window_size=8"], "contradict each other"),
        ([str(checkpoint), "--static", "64xa"], "expected lengths of 1 or more, such as 1x3x64x64"),
        ([str(checkpoint), "--static", "64x64"], "has 2 numbers, expected 4: batch, channels"),
        ([str(checkpoint), "--static", "1x1x64x64"], "has 1 channels, the network 3"),
        (
            [str(checkpoint), "--opset", "12"],
            "--opset is 12, expected a whole number from 18 to 25",
        ),
        ([str(checkpoint), "-o", str(checkpoint / "a.onnx")], "is a file, expected a folder"),
        (
            [str(checkpoint), "-o", str(tmp_path / "a.txt")],
            "ends in .txt, expected a .onnx file",
        ),
        ([str(checkpoint), "--calibrate", str(tmp_path / "no")], "is not a folder"),
        ([str(checkpoint), "--no-functions", "--inline"], "not allowed with"),
    ]
    for arguments, message in cases:
        if "-o" not in arguments:
            arguments = [*arguments, "-o", str(tmp_path)]
        assert export_main([*arguments, "--no-speed"]) == 2, arguments
        assert message in capsys.readouterr().err, arguments
    assert sorted(tmp_path.iterdir()) == before


def test_missing_library_is_exit_code_3(
    one_block: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(tmp_path))
    monkeypatch.setattr("nystra.export.validate.model_file.library_path", _no_library)
    monkeypatch.setattr("nystra.plugins.library.library_path", _no_library)
    arguments = ["-o", str(tmp_path / "a.onnx"), "--no-functions", "-q", *ONE_SIZE]
    assert export_main([str(one_block), *arguments]) == 3
    assert list(tmp_path.iterdir()) == []


def _no_library(*_: str) -> Path:
    raise FileNotFoundError("not built")


def test_export_run_validate_inspect(
    checkpoint: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(exported.with_name("said.json").read_text())
    assert said["against_torch"]["passed"]
    assert len(said["sites"]) == 2
    names = sorted(path.name for path in exported.parent.glob("model*"))
    assert names == ["model.json", "model.npz", "model.onnx", "model.plan.json"]

    model = exported
    assert main(["validate", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    assert main(["validate", str(model), "--checkpoint", str(checkpoint), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]

    assert main(["inspect", str(model), "--json", "--library", "none"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert {node["path"] for node in nodes} == {"body"}
    assert nodes[0]["name"] == "layers.0.residual_group.blocks.0.attn"
    assert main(["inspect", str(checkpoint), "--attn", "nystra", "--json"]) == 0
    sites = json.loads(capsys.readouterr().out)["sites"]
    assert 0 < sites[0]["flops_share"] < 1
    assert sites[0]["error"] > 0

    from PIL import Image

    Image.fromarray(np.full((5, 7, 3), 99, np.uint8)).save(tmp_path / "in.png")
    restored = tmp_path / "out.png"
    assert main(["run", str(model), "-i", str(tmp_path / "in.png"), "-o", str(restored)]) == 0
    with Image.open(restored) as image:
        assert image.size == (14, 10)


def test_a_wrong_file_is_exit_code_1(
    one_block: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nystra.export.tracing.site_graph import SiteGraph

    honest = SiteGraph.write_mechanisms

    def spoiled(graph: Any, resolved: Any) -> Any:
        with torch.no_grad():
            graph.network.norm.weight.mul_(1.01)
        try:
            return honest(graph, resolved)
        finally:
            with torch.no_grad():
                graph.network.norm.weight.div_(1.01)

    monkeypatch.setattr(SiteGraph, "write_mechanisms", spoiled)
    model = tmp_path / "a.onnx"
    model.write_bytes(b"what was there before")
    arguments = [str(one_block), "-o", str(model), "-q", "--overwrite", "--no-speed", *ONE_SIZE]
    assert export_main(arguments) == 1
    assert model.read_bytes() == b"what was there before"
    failed = json.loads((tmp_path / "a.failed.json").read_text())
    assert failed["validation"]["failures"]
    assert not (tmp_path / "a.failed.onnx").exists()
    assert export_main([*arguments, "--keep"]) == 1
    assert (tmp_path / "a.failed.onnx").exists()


@pytest.mark.full
def test_min_psnr_fails_the_export(one_block: Path, tmp_path: Path) -> None:
    model = tmp_path / "a.onnx"
    arguments = ["--attn", "nystra", "--min-psnr", "200", "-o", str(model), "-q", "--no-speed"]
    assert export_main([str(one_block), *arguments, *ONE_SIZE]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.failed.json"]


@pytest.mark.full
def test_two_exports_are_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        arguments = ["--attn", "nystra", "-o", str(tmp_path / name / "m.onnx"), "-q", "--no-speed"]
        assert export_main([str(checkpoint), *arguments]) == 0
    for name in ("m.onnx", "m.npz", "m.plan.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize("package", ["numpy", "lazy_loader"])
def test_what_every_command_needs_is_named_with_its_installation(package: str) -> None:
    done = run_python(
        f"import sys; sys.modules[{package!r}] = None\n"
        "from nystra.cli.main import main\n"
        "sys.exit(main(['check', 'a.onnx', '--baseline', 'a.json']))"
    )
    assert done.returncode == 3
    assert re.fullmatch(
        f"error: {package}, which this command needs, is not installed: pip install .*'numpy>=.*\n",
        done.stderr,
    )


def test_run_and_validate_without_torch_and_onnx(exported: Path, tmp_path: Path) -> None:
    done = run_python(
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnxscript', 'safetensors'): sys.modules[name] = None\n"
        "from nystra.cli.main import main\n"
        "import numpy as np\n"
        "from PIL import Image\n"
        f"folder = {str(tmp_path)!r}\n"
        "Image.fromarray(np.full((5, 7, 3), 99, np.uint8)).save(folder + '/in.png')\n"
        f"model, source = {str(exported)!r}, folder + '/in.png'\n"
        "run = ['run', model, '-i', source, '-o', folder + '/out.png']\n"
        "validate = ['validate', model, '--sheet', folder + '/sheet.png']\n"
        "codes = [main(run)]\n"
        "count = sum(name.startswith('nystra') for name in sys.modules)\n"
        "assert count <= 87, count\n"
        "codes += [main(validate)]\n"
        "codes += [main(['inspect', model]), main(['export', 'x.pth'])]\n"
        "sys.exit(0 if codes == [0, 0, 0, 3] else str(codes))"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sheet.png").exists()
    assert re.search(
        "which this command needs, is not installed: pip install .*'torch>=", done.stderr
    )
