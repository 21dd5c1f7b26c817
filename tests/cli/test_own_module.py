"""``--module FILE.py:CALLABLE``: the user's own network on the command line."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nystra.cli.main import export_main, main
from nystra.runtime import Session
from own_code import SITES, WINDOWS, network, written
from toy_network import add_toy_network


def saved(folder: Path, text: str, name: str = "net") -> tuple[str, str]:
    """Return a checkpoint, and the file of its code."""
    torch.save({"params": network(text).state_dict()}, folder / f"{name}.pth")
    return str(folder / f"{name}.pth"), str(written(folder, text, f"{name}.py"))


@pytest.mark.full
def test_a_network_is_exported_and_validated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, code = saved(tmp_path, WINDOWS)
    model = str(tmp_path / "m.onnx")
    module = ["--module", f"{code}:build", "--set", "dim=8"]
    assert export_main([checkpoint, *module, "-o", model, "--no-speed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["against_torch"]["passed"]
    metadata = Session(model).metadata
    assert (metadata["architecture"], metadata["scale"]) == ("own:Net", "2")
    assert main(["validate", model, "--checkpoint", checkpoint, *module, "--quiet"]) == 0
    image = np.random.default_rng(0).random((3, 3, 9, 14), np.float32)
    with torch.no_grad():
        want = network(WINDOWS)(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(Session(model)(image), want, atol=1e-5)


@pytest.mark.full
def test_the_attention_of_a_network_is_found_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, code = saved(tmp_path, WINDOWS)
    assert main(["inspect", checkpoint, "--module", f"{code}:Net", "--attn", "cluster"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("own:Net, 2x, 3 channels")
    assert lines[2].split()[:2] == ["network", "16"]


@pytest.mark.full
def test_sites_of_the_author_are_replaced_and_validated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, code = saved(tmp_path, SITES, "sites")
    model = str(tmp_path / "m.onnx")
    module = ["--module", f"{code}:Net"]
    assert main(["inspect", checkpoint, *module, "--attn", "cluster"]) == 0
    assert "network.attention  16" in capsys.readouterr().out
    assert export_main([checkpoint, *module, "--attn", "full", "-o", model, "--no-speed"]) == 0
    # The plan of the file states the window, which this network does not take as an argument.
    assert main(["validate", model, "--checkpoint", checkpoint, *module]) == 0
    assert main(["validate", model, "--module", f"{code}:Net"]) == 2
    assert "error: --module is the code of --checkpoint: give both" in capsys.readouterr().err


def test_a_plan_of_another_window_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, code = saved(tmp_path, SITES, "sites")
    (tmp_path / "plan.json").write_text('{"schema_version": 1, "window": [8, 8]}')
    plan = ["--plan", str(tmp_path / "plan.json")]
    assert main(["inspect", checkpoint, "--module", f"{code}:Net", *plan]) == 2
    assert "the plan is for the window 8x8, the network has 4x4" in capsys.readouterr().err


@pytest.mark.full
def test_a_network_without_the_argument_is_validated_at_the_window_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = str(add_toy_network(tmp_path, monkeypatch))
    model = str(tmp_path / "toy.onnx")
    assert export_main([checkpoint, "--attn", "full", "-o", model, "--no-speed", "--quiet"]) == 0
    assert main(["validate", model, "--checkpoint", checkpoint, "--quiet"]) == 0


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("def build(:\n", "build", "bad.py, line 1: "),
        ("x = 1\nraise ValueError('no')", "build", "bad.py raised ValueError: no (line 2)"),
        ("class E(BaseException): ...\nraise E('no')", "build", "bad.py raised E: no (line 2)"),
        ("raise SystemExit(3)", "build", "bad.py raised SystemExit: 3"),
        ("def other(): pass", "build", "bad.py has no build; it has other"),
        ("build = 3", "build", "bad.py:build is of the type int, expected a class or a function"),
        ("def build(): return {}", "build", "bad.py:build() returned the type dict, expected a"),
        ("def build(): 1 / 0", "build", "bad.py:build() raised ZeroDivisionError: division by"),
        ("def build(dim): pass", "build", "bad.py:build() raised TypeError: build() missing 1"),
        ("import absent_of_all", "build", "imports absent_of_all, which is not installed"),
        ("import torch.absent", "build", "imports torch.absent, which is not installed"),
        ("from torch import absent", "build", "bad.py cannot import: cannot import name 'absent'"),
        (
            "import beside",
            "build",
            "bad.py imports beside, which is in the same folder: only that file",
        ),
        ("from .beside import x", "build", "bad.py imports by a relative import, but only that"),
        ("from torch import nn\nbuild = nn.Conv2d(3, 3, 1)", "build", "1 surplus: a"),
        ("from torch import nn\nbuild = nn.Identity()", "", "expected FILE.py:CALLABLE"),
    ],
)
def test_bad_code_ends_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, name: str, message: str
) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.pth")
    written(tmp_path, "x = 1", "beside.py")
    code = f"{written(tmp_path, text, 'bad.py')}:{name}"
    assert export_main([str(tmp_path / "a.pth"), "--module", code, "-o", str(tmp_path)]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 + ("load" in error)
    assert error[-1].startswith("error: ")
    assert message in error[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth", "bad.py", "beside.py"]


REPOSITORY = {
    "archs_of_a_test/__init__.py": "",
    "archs_of_a_test/blocks.py": "from torch import nn\nLayer = nn.Conv2d",
    "archs_of_a_test/absolute.py": "from archs_of_a_test.blocks import Layer",
    "archs_of_a_test/relative.py": "from .blocks import Layer",
}
BUILD = "\ndef build():\n    return Layer(3, 3, 1)\n"


@pytest.mark.parametrize("form", ["absolute", "relative"])
def test_neighbors_of_a_cloned_repository(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    form: str,
) -> None:
    """The message says which folder to name; with it, the network is found."""
    root = tmp_path / "a repository"
    for name, text in REPOSITORY.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + BUILD if path.stem == form else text)
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.zeros(3, 3, 1, 1), "bias": torch.zeros(3)}, "a.pth")
    command = ["inspect", "a.pth", "--module"]
    assert main([*command, f"a repository/archs_of_a_test/{form}.py:build"]) == 2
    error = capsys.readouterr().err
    assert "PYTHONPATH='a repository' nystra-export" in error
    file = f"a repository/archs_of_a_test/{form}.py"
    if form == "relative":
        line = re.search("'(from .*) import NAME'", error)
        assert line is not None
        file = "one_line.py"
        Path(file).write_text(f"{line[1]} import build")
    monkeypatch.syspath_prepend(str(root))
    assert main([*command, f"{file}:build"]) == 0
    for name in [name for name in sys.modules if name.startswith("archs_of_a_test")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise RuntimeError('never')", "the network fails for (1, 3, 64, 64): never"),
        ("return image if image.mean() > 0.4 else -image", "branches on the values of a tensor"),
    ],
)
def test_a_network_that_fails_or_cannot_be_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, message: str
) -> None:
    text = (
        "from torch import nn\n\nclass Net(nn.Conv2d):\n    def __init__(self):\n"
        f"        super().__init__(3, 3, 1)\n\n    def forward(self, image):\n        {body}\n"
    )
    checkpoint, code = saved(tmp_path, text)
    command = [checkpoint, "--module", f"{code}:Net", "-o", str(tmp_path / "m.onnx"), "--quiet"]
    assert export_main(command) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert message in line


def test_the_file_and_the_checkpoint_are_looked_at_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, code = saved(tmp_path, WINDOWS)
    assert export_main([checkpoint, "--module", str(tmp_path / "absent.py:build")]) == 2
    assert "cannot read the code" in capsys.readouterr().err
    assert export_main([checkpoint, "--module", "net.pth:build"]) == 2
    assert "--module is 'net.pth:build', expected FILE.py:CALLABLE" in capsys.readouterr().err
    assert export_main([str(tmp_path / "no.pth"), "--module", f"{code}:Net"]) == 2
    assert "cannot read the checkpoint" in capsys.readouterr().err
