"""A network of one folder and one row of the registry, for tests: written, added, loaded."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nystra.models import registry
from toy_tree import Toy as Added

ATTENTION = '''from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite


class Attention(WindowSite):
    """Attention in windows of 4x4, without a position bias."""

    def __init__(self, width: int) -> None:
        """Build the projection."""
        super().__init__(WindowGeometry(1, width, width, (4, 4), (0, 0), scale=width**-0.5))
        self.relative_position_bias_table = None
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the map x (B, H, W, width)."""
        return self.attend(self.qkv(x))
'''

FOLDER = {
    "__init__.py": '"""A toy."""\n',
    "network.py": f'''"""A convolution, attention in windows, a convolution and a skip."""

from __future__ import annotations

from torch import Tensor, nn

from nystra.models.layers.padding import crop, pad_to_multiple
{ATTENTION}

class Toy(nn.Module):
    """(B, 3, H, W) to the same, any H and W."""

    def __init__(self, *, width: int = 4) -> None:
        """Build the layers."""
        super().__init__()
        self.toy_head = nn.Conv2d(3, width, 3, padding=1)
        self.attention = Attention(width)
        self.toy_tail = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x, values 0..1."""
        whole = self.toy_head(pad_to_multiple(x, (4, 4))).permute(0, 2, 3, 1)
        attended = (whole + self.attention(whole)).permute(0, 3, 1, 2)
        return x + crop(self.toy_tail(attended), x.shape[2], x.shape[3])
''',
    "checkpoint.py": '''"""Loading the toy."""

from __future__ import annotations

from nystra.models.architecture import Architecture, BuiltNetwork, PrecisionPolicy, Request, State
from nystra.models.checkpoints.construction import construct, shape_of, merge_hyper
from nystra.models.facts import Facts
from nystra.core.ports.port import Port

from .network import Toy


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = merge_hyper({"width": shape_of(state, "toy_head.weight", 4)[0]}, request)
    network = construct(Toy, hyper, state, request.source)
    facts = Facts(
        architecture="toy",
        task="restoration",
        inputs=(Port("input", "image", lengths={"channels": 3}, multiple=4),),
        outputs=(Port("output", "picture", lengths={"channels": 3}),),
        window=(4, 4),
        tiling="supported",
        license=request.license,
    )
    return BuiltNetwork(network, facts, hyper)


ARCHITECTURE = Architecture(load, PrecisionPolicy())
''',
}
"""File name -> content: what an author of a network writes below ``models/<name>/``."""


KEYS = ("toy_head.weight", "toy_tail.weight")

TOY = Added(
    "network",
    "toy",
    {f"models/<name>/{name}": text for name, text in FOLDER.items()},
    {
        "models/registry.py": (
            (
                "ARCHITECTURES = (\n",
                f'ARCHITECTURES = (\n    RegistryRow("toy", {KEYS}, ".toy.checkpoint"),\n',
            ),
        )
    },
)

SAVE = """
import torch
from nystra.models.toy.network import Toy
from safetensors.torch import save_file

torch.manual_seed(0)
save_file(Toy().state_dict(), "toy.safetensors")
"""
"""A script that saves a checkpoint of it, where the package has it."""


def add_toy_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the folder of the network, add its row, and return a checkpoint of it."""
    package = folder / "nystra_toy_network"
    package.mkdir()
    for name, content in FOLDER.items():
        (package / name).write_text(content)
    monkeypatch.syspath_prepend(str(folder))
    row = registry.RegistryRow("toy", KEYS, f"{package.name}.checkpoint")
    monkeypatch.setattr(registry, "ARCHITECTURES", (*registry.ARCHITECTURES, row))
    from nystra_toy_network.network import Toy

    torch.manual_seed(0)
    save_file(Toy().state_dict(), folder / "toy.safetensors")
    return folder / "toy.safetensors"
