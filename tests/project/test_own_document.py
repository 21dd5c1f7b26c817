"""docs/own.md: its network, snippets and commands run word for word, in order."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from nystra.cli.main import export_main, main
from nystra.export.load.images import photographs
from nystra.runtime import Session, read_image
from shared import ROOT

PAGE = (ROOT / "docs/own.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|bash)\n(.*?)^```", PAGE, re.M | re.S)


def operators(model: str) -> list[str]:
    """Return the types of the nystra nodes in a file."""
    return [node.op_type for node in onnx.load(model).graph.node if node.domain == "nystra"]


def test_the_network_is_about_as_long_as_it_says() -> None:
    assert BLOCKS[0][1].startswith("# mynet.py\n")
    lines = [line for line in BLOCKS[0][1].splitlines() if line.strip()]
    assert 50 <= len(lines) <= 70


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder in which the commands of the page run, and its network is a module."""
    shutil.copy(photographs()["chelsea"], tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mynet", raising=False)
    Path("mynet.py").write_text(BLOCKS[0][1])
    yield
    sys.modules.pop("mynet")


def run_blocks(blocks: list[tuple[str, str]]) -> dict[str, object]:
    """Run blocks of the page; return what their Python defines."""
    space: dict[str, object] = {}
    for language, text in blocks:
        if language == "python":
            exec(text, space)
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert (export_main if program == "nystra-export" else main)(arguments) == 0, line
    return space


@pytest.mark.full
@pytest.mark.usefixtures("folder")
def test_the_command_line_of_the_page() -> None:
    run_blocks(BLOCKS[1:3])
    assert read_image("large.png").pixels.shape == (320, 320, 3)


@pytest.mark.release
@pytest.mark.usefixtures("folder")
def test_the_page_runs() -> None:
    space = run_blocks(BLOCKS[1:])
    assert list(space["result"].source.resolved) == [  # type: ignore[attr-defined]
        f"network.blocks.{block}.attn" for block in range(2)
    ]
    image = read_image("photo.png").pixels.transpose(2, 0, 1)[None]
    assert operators("linear.onnx") == ["NystraWindowCluster"] * 2
    assert operators("full.onnx") == ["NystraWindowSoftmax"] * 2
    first, *others = (Session(f"{name}.onnx")(image) for name in ("mynet", "fromhere", "full"))
    for other in others:
        assert abs(first - other).max() < 1e-5
    assert Session("stated.onnx").metadata["license"] == "Apache-2.0"


@pytest.mark.full
def test_nothing_beside_the_file_is_imported(tmp_path: Path) -> None:
    """Started as by a user, in the folder of the file."""
    (tmp_path / "layers.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "net.py").write_text("import layers")
    (tmp_path / "a.pth").write_bytes(b"")
    command = [
        Path(sys.executable).with_name("nystra-export"),
        *("a.pth", "--module", "net.py:Net"),
    ]
    if not command[0].exists():
        pytest.skip("nystra-export is not installed beside this Python")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "error: net.py imports layers, which is in the same folder: only that file is executed"
    )
