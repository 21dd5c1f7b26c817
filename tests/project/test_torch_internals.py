"""Parts of PyTorch without a public name are imported by few files, which say what for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared import ROOT

FOLDERS = ("core", "cli", "export", "runtime", "plugins", "models", "deploy")
HOMES = {
    "models/torch_internals.py",
    "export/tracing/torch_sizes.py",
    "export/tracing/shortcuts.py",
}


def internals(source: str) -> Iterator[str]:
    """Yield the names of private or experimental parts of torch in a source."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "torch" and any(
                part == "experimental" or (part.startswith("_") and not part.startswith("__"))
                for part in parts
            ):
                yield name


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch._ops import OpOverload",
        "from torch.fx.experimental import proxy_tensor",
        "from torch.onnx import _internal",
        "torch._C._functorch",
    ],
)
def test_an_internal_part_is_seen(source: str) -> None:
    assert list(internals(source))


def test_a_public_part_is_none() -> None:
    assert not list(internals("from torch.export import Dim\ntorch.__version__\nself._torch._x"))


@pytest.mark.full
def test_internal_parts_are_in_their_homes() -> None:
    found = {}
    for file in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        names = set(internals(file.read_text(encoding="utf-8")))
        if names and path not in HOMES:
            found[path] = names
    assert not found


@pytest.mark.parametrize("home", sorted(HOMES))
def test_a_home_has_some(home: str) -> None:
    assert list(internals(Path(ROOT / home).read_text(encoding="utf-8")))
