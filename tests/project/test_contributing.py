"""The recipes of CONTRIBUTING: a toy of each kind is added with only the files of its table.

The toys are added to a copy of the package and used there together; `test_toy_operator` does so
with the operator, `test_toy_transform` with a transform that is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import toy_backend
import toy_mechanism
import toy_network
import toy_operator
import toy_pass
import toy_rule
import toy_target
import toy_task
import toy_transform
from toy_tree import NYSTRA, Toy, planted, run_in, table

TOYS = [
    module.TOY
    for module in (
        toy_operator,
        toy_network,
        toy_rule,
        toy_mechanism,
        toy_pass,
        toy_backend,
        toy_task,
        toy_transform,
        toy_target,
    )
]


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.kind)
def test_a_toy_is_the_files_of_its_table(toy: Toy) -> None:
    rows = table(toy.kind, toy.has_tests)
    assert len(rows) == len(set(rows))
    folders = tuple(row for row in rows if row.endswith("/"))
    used = {next((row for row in folders if path.startswith(row)), path) for path in toy.paths}
    assert used == set(rows)


USE = """
import json
from nystra.cli.main import main
import numpy as np
from nystra.runtime import ImageData, Session, write_image

write_image("in.png", ImageData(np.random.default_rng(0).random((9, 6, 3), np.float32)))

def nystra(*arguments):
    code = main([*map(str, arguments)])
    assert code == 0, (arguments, code)
nystra("export", "toy.safetensors", "--attn", "toy", "--share", "0.25", "--precision",
       "toy:steps=128",
       "-o", "toy.onnx", "--no-speed", "--json")
nystra("validate", "toy.onnx", "-q")
session = Session("toy.onnx")
program = {
    "metadata": session.metadata,
    "input": {"name": "input", "shape": ["batch", 3, "height", "width"]},
    "output": {"name": "output", "shape": ["batch", 3, "height", "width"]},
    "steps": [],
}
open("same.toy", "w").write(json.dumps(program))
for model in ("toy.onnx", "same.toy"):
    nystra("run", model, "-i", "in.png", "-o", model + ".npy", "-q")
assert Session("same.toy").backend == "toy"
"""


@pytest.mark.full
def test_one_of_each_together(tmp_path: Path) -> None:
    """Network, mechanism and transform export a file; the task and the backend run it."""
    tree = planted(tmp_path, *(toy for toy in TOYS if toy not in (toy_operator.TOY, toy_rule.TOY)))
    checkpoint = tree / "models" / "toy" / "checkpoint.py"
    text = checkpoint.read_text().replace('task="restoration"', 'task="toy"')
    checkpoint.write_text(text.replace('Port("output", "picture"', 'Port("output", "depth"'))
    done = run_in(tree, toy_network.SAVE + USE)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["sites"] == {"attention": {"mechanism": "toy", "share": 0.25}}
    assert report["precision"] == "toy"
    assert report["against_torch"]["passed"]
    assert {"ort-cpu", "twin"} <= report["against_torch"]["backends"].keys()
    assert set(report["against_torch"]["allowed_for"]) == {"twice the error of toy"}
    model = onnx.load(str(tmp_path / "toy.onnx"))
    weights = [onnx.numpy_helper.to_array(weight) for weight in model.graph.initializer]
    steps = [weight * 128 for weight in weights if weight.dtype == np.float32 and weight.ndim > 1]
    assert steps
    assert all((weight == np.round(weight)).all() for weight in steps)
    assert not all((weight / 2 == np.round(weight / 2)).all() for weight in steps)
    assert model.graph.doc_string == "signed"
    assert "a toy signed it" in report["warnings"]
    stated = {entry.key: entry.value for entry in model.metadata_props}
    assert stated["nystra.precision_parameters"] == "steps=128"
    for name in ("toy.onnx.npy", "same.toy.npy"):
        assert np.load(tmp_path / name).shape == (9, 6)
    usage = run_in(tree, NYSTRA, "export", "--help").stdout
    assert "toy: every token gets a share of the mean" in " ".join(usage.split())
