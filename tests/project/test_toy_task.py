"""A task for depth maps, added with the files of CONTRIBUTING only."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import toy_task
from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata
from toy_tree import planted, run_in

GRAPH = """
<ir_version: 10, opset_import: ["" : 20]>
f (float[b,3,h,w] input) => (float[b,1,h,w] output) {
  output = ReduceMean <keepdims = 1> (input, axes)
}
"""

USE = """
import io
import json
import numpy as np
from pathlib import Path
from nystra.cli.main import main
from nystra.runtime import Session

def nystra(*arguments, code=0):
    assert main([*map(str, arguments), "--threads", "1", "-q"]) == code, arguments

nystra("run", "m.onnx", "-i", "set/a.png", "-o", "a.npy", "--unit", "2.0")
nystra("run", "m.onnx", "-i", "set/a.png", "-o", "a.npy", code=2)
nystra("run", "m.onnx", "-i", "set/a.png", "-o", "b.npy", "--top", "3", code=2)
nystra("run", "m.onnx", "-i", "set/a.png", "-o", "b.npy", "--ray", "local", code=2)

from nystra.runtime.model.references import References, ReferenceCase, write_references
session = Session("m.onnx", threads=1)
image = np.random.default_rng(1).random((1, 3, 6, 5), np.float32)
case = ReferenceCase({"input": image}, session.run({"input": image}))
write_references("m.npz", [case], {"roles": {"output": "depth"}})
nystra("validate", "m.onnx", "--depths", "set")
nystra("validate", "m.onnx", "--images", "set", "--truth", "set", code=2)
check = ["check", "m.onnx", "--baseline", "b.json"]
nystra(*check, "--depths", "set", "--update")
nystra(*check, "--depths", "set")
nystra(*check, code=2)
items = json.loads(Path("b.json").read_text())["items"]
assert {"relative_error", "depth_error"} < items.keys(), items
truth = np.load("set/a.npy")
np.save("set/a.npy", truth + np.float32(0.1))
nystra(*check, "--depths", "set", code=1)

from nystra.deploy import write_repository
folder = write_repository("m.onnx", "repository")
config = (folder / "config.pbtxt").read_text()
assert "TYPE_FP32" in config and "[-1, -1]" in config, config

from nystra.runtime.serving.limits import Limits
from nystra.runtime.serving.served_model import open_models
from nystra.runtime.serving.request_queue import Work
models = open_models([session.spec], Limits())
model = models.find("toy", None)
files = {"image": Path("set/a.png").read_bytes()}
parameters = model.handler.parameters(unit=2.0)
assert model.cost(files, parameters) > 0
answer = model.answer(files, parameters, Work(lambda work: None))
np.testing.assert_array_equal(np.load(io.BytesIO(answer.content)), np.load("a.npy"))
assert answer.media_type in model.handler.media_types
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model file, an image and its depth map."""
    model = onnx.parser.parse_model(GRAPH)
    axes = onnx.numpy_helper.from_array(np.array([1], np.int64), "axes")
    model.graph.initializer.append(axes)
    common = {"layout": "NCHW", "dtype": "float32"}
    io = [
        {"name": "input", "role": "image", "range": [0, 1]} | common,
        {"name": "output", "role": "depth"} | common,
    ]
    stated = nystra_metadata(1, 3, **{"nystra.io": json.dumps(io), "nystra.task": "toy"})
    stated.pop("output_channels", None)
    onnx.helper.set_model_props(model, stated)
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "set").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3)).astype(np.float32) / 255
    write_image(tmp_path / "set" / "a.png", ImageData(pixels))
    np.save(tmp_path / "set" / "a.npy", pixels.mean(2))
    return tmp_path


@pytest.mark.full
def test_depth_maps_by_the_table_alone(folder: Path) -> None:
    done = run_in(planted(folder, toy_task.TOY), USE)
    assert done.returncode == 0, done.stderr
    depth = np.load(folder / "a.npy")
    assert depth.dtype == np.float32
    expected = np.load(folder / "set" / "a.npy") - np.float32(0.1)
    np.testing.assert_allclose(depth, 2 * expected, atol=1e-6)
