"""A tiny classifier as a file and as a network of the registry, and images for it.

Its logits are ten times the mean of red, of green and of blue.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

from nystra.core.ports.preprocessing import Preprocessing, Resize, write_preprocessing
from nystra.models import registry
from nystra.runtime import ImageData, write_image
from toy_network import ATTENTION

COLORS = ("red", "green", "blue")
TOY = Preprocessing(
    Resize((12,), "bicubic"), (8, 8), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), labels=COLORS
)


def save_classifier(
    path: Path,
    preprocessing: Preprocessing | None = TOY,
    size: tuple[int | str, int | str] = (8, 8),
    gain: tuple[float, ...] = (10.0, 10.0, 10.0),
    batch: int | str = "batch",
) -> Path:
    """Write the file; another gain per channel changes its accuracy."""
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["input"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("Mul", ["flat", "gain"], ["logits"]),
        ],
        "classifier",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, *size])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 3])],
        [numpy_helper.from_array(np.float32([gain]), "gain")],
    )
    io = [
        {"name": "input", "role": "image", "layout": "NCHW", "range": [0, 1]},
        {"name": "logits", "role": "logits", "layout": "NK"},
    ]
    metadata = {
        "nystra.version": "0",
        "nystra.task": "classification",
        "nystra.io": json.dumps(io),
        "nystra.precision": "fp32",
    }
    if preprocessing is not None:
        metadata["nystra.preprocessing"] = write_preprocessing(preprocessing)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


def plain(color: str, size: tuple[int, int] = (20, 31)) -> ImageData:
    """Return an image in which one color is the strongest, with a little noise."""
    pixels = np.random.default_rng(len(color)).random((*size, 3), np.float32) * 0.2 + 0.3
    pixels[:, :, COLORS.index(color)] += 0.3
    return ImageData(pixels)


def labeled(folder: Path, each: int = 2) -> Path:
    """Write images in subfolders named after their color, and return the folder."""
    for color in COLORS:
        (folder / color).mkdir(parents=True)
        for number in range(each):
            write_image(folder / color / f"{number}.png", plain(color, (14 + number, 20)))
    return folder


FOLDER = {
    "__init__.py": '"""A toy classifier."""\n',
    "network.py": f'''"""Patches, attention in windows, their mean, and logits."""

from __future__ import annotations

from torch import Tensor, nn

{ATTENTION}

class Toy(nn.Module):
    """(B, 3, 8, 8) to (B, 3)."""

    def __init__(self, *, width: int = 4) -> None:
        """Build the layers."""
        super().__init__()
        self.class_patches = nn.Conv2d(3, width, 2, 2)
        self.attention = Attention(width)
        self.class_head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of x."""
        whole = self.class_patches(x).permute(0, 2, 3, 1)
        return self.class_head((whole + self.attention(whole)).mean((1, 2)))
''',
    "checkpoint.py": '''"""Loading the toy."""

from __future__ import annotations

from classifier_models import TOY
from nystra.models.architecture import Architecture, BuiltNetwork, PrecisionPolicy, Request, State
from nystra.models.checkpoints.construction import construct, shape_of, merge_hyper
from nystra.models.facts import Facts
from nystra.core.ports.port import LOGITS_AXES, Port

from .network import Toy


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = merge_hyper({"width": shape_of(state, "class_patches.weight", 4)[0]}, request)
    network = construct(Toy, hyper, state, request.source)
    facts = Facts(
        architecture="toy_classifier",
        task="classification",
        inputs=(Port("input", "image", lengths={"channels": 3, "height": 8, "width": 8}),),
        outputs=(Port("logits", "logits", LOGITS_AXES, {"classes": 3}, range=None),),
        tiling="internal",
        license=request.license,
        preprocessing=TOY,
    )
    return BuiltNetwork(network, facts, hyper)


ARCHITECTURE = Architecture(load, PrecisionPolicy())
''',
}


def add_toy_classifier(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the folder of the network, add its row, and return a checkpoint of it."""
    package = folder / "nystra_toy_classifier"
    package.mkdir()
    for name, content in FOLDER.items():
        (package / name).write_text(content)
    monkeypatch.syspath_prepend(str(folder))
    keys = ("class_patches.weight", "class_head.weight")
    row = registry.RegistryRow("toy_classifier", keys, f"{package.name}.checkpoint")
    monkeypatch.setattr(registry, "ARCHITECTURES", (*registry.ARCHITECTURES, row))
    from nystra_toy_classifier.network import Toy

    torch.manual_seed(0)
    save_file(Toy().state_dict(), folder / "toy.safetensors")
    return folder / "toy.safetensors"
