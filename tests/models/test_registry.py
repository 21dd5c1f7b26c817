"""The table of networks: imported on use, and a row is enough."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nystra.core.errors import UnsupportedModelError
from nystra.models.architecture import Architecture
from nystra.models.registry import ARCHITECTURES, find_architecture, find_missing


def test_reading_the_table_imports_no_network_and_no_torch() -> None:
    code = (
        "import sys, nystra.models.registry as registry\n"
        "registry.find_architecture({'embed.weight': 0, 'embed_color.weight': 0,"
        " 'project.weight': 0})\n"
        "heavy = [name for name in sys.modules if name == 'torch' or name.endswith('.network')]\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_network_depends_on_training() -> None:
    folder = Path(__file__).parents[2] / "models"
    for path in folder.rglob("*.py"):
        if path.parent.name != "training":
            assert "training" not in "".join(
                line for line in path.read_text().splitlines() if "import" in line
            ), path


def test_every_row_leads_to_an_architecture() -> None:
    for row in ARCHITECTURES:
        assert isinstance(row.architecture(), Architecture)


def test_patterns() -> None:
    keys = {"a.0.weight", "b.bias"}
    assert find_missing(("a.*.weight", "b.bias|c.bias", "c.bias"), keys) == ["c.bias"]


def test_a_row_without_keys_asks_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from nystra.models.colorization import checkpoint

    def by_shape(state: Mapping[str, Tensor]) -> bool:
        return any(value.shape == (7, 7) for value in state.values())

    foreign = Architecture(checkpoint.load, recognizes=by_shape)
    monkeypatch.setattr(checkpoint, "ARCHITECTURE", foreign)
    row = type(ARCHITECTURES[0])("foreign", (), ".colorization.checkpoint")
    monkeypatch.setattr("nystra.models.registry.ARCHITECTURES", (*ARCHITECTURES, row))
    assert find_architecture({"any.key": torch.zeros(7, 7)}) is row
    with pytest.raises(UnsupportedModelError, match="no known architecture"):
        find_architecture({"any.key": torch.zeros(6, 7)})


def test_the_generic_loader_knows_no_network() -> None:
    folder = Path(__file__).parents[2] / "models"
    names = {row.name for row in ARCHITECTURES}
    files = [folder / "loading.py", folder / "architecture.py", *folder.glob("checkpoints/*.py")]
    assert len(files) > 5
    for file in files:
        words = set(re.findall(r"\w+", file.read_text().lower()))
        assert not names & words, file
