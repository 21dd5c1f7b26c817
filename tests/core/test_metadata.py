"""The record of a model file's metadata: what is written is read; no other code spells a key."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from nystra.core.errors import NystraError
from nystra.core.metadata import ModelMetadata, key_of, without_provenance
from nystra.core.ports.port import Port
from nystra.core.ports.preprocessing import Preprocessing, Resize

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "cli", "export", "runtime", "plugins", "models", "deploy")

FULL = ModelMetadata(
    architecture="swinir",
    scale=2,
    input_channels=3,
    output_channels=3,
    license="Apache-2.0",
    io=(Port("input", "image", multiple=8), Port("output", "picture", range=(0.0, 2.0))),
    version="0.1.0",
    task="restoration",
    range=(0.0, 1.0),
    size_multiple=8,
    size_minimum=2,
    tiling="internal",
    window=(8, 8),
    preprocessing=Preprocessing(Resize((8, 8)), mean=(0.5,), std=(0.25,), labels=("cat",)),
    precision="int8",
    precision_parameters="block=32",
    attention='{"sites": {}}',
    exact_layers=("head", "tail.0"),
    tile_psnr=((64, 31.5), (128, 40.0)),
    quadratic_bytes=1234567.0,
    source_sha256="ab",
    psnr_vs_torch="98.4",
)

ENTRIES = {
    "architecture": "swinir",
    "input_channels": "3",
    "license": "Apache-2.0",
    "nystra.attention": '{"sites": {}}',
    "nystra.exact_layers": '["head", "tail.0"]',
    "nystra.io": '[{"dtype": "float32", "layout": "NCHW", "multiple": 8, "name": "input", '
    '"range": [0.0, 1.0], "role": "image"}, {"dtype": "float32", "layout": "NCHW", "multiple": 1, '
    '"name": "output", "range": [0.0, 2.0], "role": "picture"}]',
    "nystra.precision": "int8",
    "nystra.precision_parameters": "block=32",
    "nystra.preprocessing": '{"labels": ["cat"], "mean": [0.5], "resize": {"antialias": true, '
    '"filter": "bilinear", "sides": [8, 8]}, "std": [0.25]}',
    "nystra.psnr_vs_torch": "98.4",
    "nystra.quadratic_bytes": "1.23457e+06",
    "nystra.range": "[0.0, 1.0]",
    "nystra.size_minimum": "2",
    "nystra.size_multiple": "8",
    "nystra.source_sha256": "ab",
    "nystra.task": "restoration",
    "nystra.tile_psnr": "[[64, 31.5], [128, 40.0]]",
    "nystra.tiling": "internal",
    "nystra.version": "0.1.0",
    "nystra.window": "[8, 8]",
    "output_channels": "3",
    "scale": "2",
}


def test_every_field_is_written_in_its_form() -> None:
    assert dict(sorted(FULL.entries().items())) == ENTRIES
    assert len(ENTRIES) == len(fields(ModelMetadata))


def test_what_is_written_is_read() -> None:
    again = ModelMetadata.read(ENTRIES | {"comment": "of another program"})
    assert again.entries() == FULL.entries()
    assert again.io == FULL.io
    assert again.preprocessing == FULL.preprocessing
    assert again.quadratic_bytes == 1.23457e6
    assert again.tile_psnr == FULL.tile_psnr


def test_what_is_not_said_is_not_written() -> None:
    assert ModelMetadata().entries() == {
        "nystra.task": "restoration",
        "nystra.size_minimum": "1",
        "nystra.tiling": "supported",
    }
    assert ModelMetadata.read({}) == ModelMetadata()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("io", "{}"),
        ("scale", "-1"),
        ("output_channels", "many"),
        ("range", "[1, 0]"),
        ("exact_layers", '"head"'),
        ("exact_layers", "[1]"),
        ("preprocessing", '{"blur": 1}'),
        ("window", "[]"),
        ("tile_psnr", "[[64]]"),
        ("tile_psnr", '[[64, "much"]]'),
        ("tile_psnr", "[[0, 31.5]]"),
        ("quadratic_bytes", "-1"),
    ],
)
def test_a_hostile_entry_is_named(name: str, text: str) -> None:
    with pytest.raises(NystraError, match=rf"the metadata entry {key_of(name)}\b"):
        ModelMetadata.read(ENTRIES | {key_of(name): text})


def test_a_plan_is_read_when_it_is_asked_for() -> None:
    assert ModelMetadata().attention_plan() == {}
    assert ModelMetadata.read(ENTRIES).attention_plan() == {"sites": {}}
    hostile = ModelMetadata.read(ENTRIES | {"nystra.attention": "[]"})
    with pytest.raises(
        NystraError, match=r"nystra\.attention is not a plan: export the model again"
    ):
        hostile.attention_plan()


def test_provenance_is_left_out() -> None:
    left_out = ENTRIES.keys() - without_provenance(ENTRIES).keys()
    assert left_out == {"nystra.version", "nystra.source_sha256", "nystra.psnr_vs_torch"}


@pytest.mark.full
def test_no_other_file_spells_a_key() -> None:
    keys = {key_of(each.name) for each in fields(ModelMetadata)}
    prefixed = {key for key in keys if key.startswith("nystra.")}
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path == ROOT / "core" / "metadata.py":
                continue
            for text in _strings(ast.parse(path.read_text(encoding="utf-8"))):
                found += [f"{path.relative_to(ROOT)}: {key}" for key in prefixed if key in text]
    assert not found


def _strings(tree: ast.Module) -> list[str]:
    """Return the strings of a module that are not docstrings."""
    documented = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documented
    ]
