"""Model files with a mask or a reference as a second input."""

import json
from pathlib import Path

import numpy as np
import onnx

from runtime_models import nystra_metadata

HOLE = 0.25


FILLER = """
f (float[b,{c},{h},{w}] input, float[b,1,{h},{w}] mask) => (float[b,{c},{h},{w}] output)
<float half = {{0.5}}, float value = {{0.25}}> {{
  hole = Greater (mask, half)
  output = Where (hole, value, input)
}}
"""


COPIER = """
f (float[b,1,h,w] input, float[b,3,rh,rw] reference) => (float[b,3,h,w] output) {
  color = ReduceMean <keepdims = 1> (reference, axes)
  output = Add (input, color)
}
"""


def save(path: Path, graph: str, role: str, channels: int, **more: str) -> Path:
    """Save a graph with the inputs ``input`` and one named after its role."""
    return save_roles(path, graph, {"input": "image", role: role}, channels, **more)


def save_roles(path: Path, graph: str, roles: dict[str, str], channels: int, **more: str) -> Path:
    """Save a graph with the roles of its inputs by name."""
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]>' + graph)
    if "reference" in roles.values():
        axes = onnx.numpy_helper.from_array(np.array([2, 3], np.int64), "axes")
        model.graph.initializer.append(axes)
    common = {"layout": "NCHW", "range": [0, 1], "dtype": "float32"}
    named = roles | {"output": "picture"}
    io = [{"name": name, "role": role} | common for name, role in named.items()]
    entries = nystra_metadata(1, channels, **{"nystra.io": json.dumps(io), **more})
    onnx.helper.set_model_props(model, entries)
    onnx.save(model, path)
    return path


def make_image(height: int = 8, width: int = 12, channels: int = 3) -> np.ndarray:
    values = np.random.default_rng(width).integers(0, 256, (height, width, channels))
    return values.astype(np.float32) / 255


def hole(height: int = 8, width: int = 12) -> np.ndarray:
    mask = np.zeros((height, width, 1), np.float32)
    mask[2:5, 3:9] = 1
    return mask
