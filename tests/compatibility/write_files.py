"""Write the model files that later versions of nystra have to read: one of each kind, small.

`python tests/compatibility/write_files.py`, before a version is released: the files go to the
folder of that version, and are never written again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from spandrel.architectures.Swin2SR import Swin2SR
from torch import nn

import nystra
from nystra.cli.main import main
from nystra.export.load.images import photographs
from nystra.models.contextual_attention.network import InpaintingGenerator
from nystra.models.hat.network import HAT
from nystra.models.swinir.network import SwinIR
from nystra.models.vit.network import ViT

_SWINIR = {
    "upscale": 2,
    "window_size": 4,
    "depths": [2],
    "embed_dim": 4,
    "num_heads": [1],
    "mlp_ratio": 2.0,
    "upsampler": "pixelshuffledirect",
}
_HAT = _SWINIR | {"compress_ratio": 2, "squeeze_factor": 2, "conv_scale": 0.5}
_VIT = {
    "image_size": (8, 12),
    "patch_size": 2,
    "hidden_size": 8,
    "intermediate_size": 8,
    "depth": 1,
    "num_heads": 2,
    "num_classes": 5,
}
_LARGE: dict[str, Any] = {"image_size": [64, 64]}  # 1,025 tokens
_VIT_STATED = {"num_heads": 2, "image_size": [8, 12]}


def _swin2sr() -> nn.Module:
    with warnings.catch_warnings():  # of torch.meshgrid
        warnings.simplefilter("ignore", UserWarning)
        return Swin2SR(**_SWINIR | {"num_heads": [2]})


NETWORKS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "hat": (lambda: HAT(**_HAT), {"conv_scale": 0.5}),
    "inpainting": (lambda: InpaintingGenerator(ngf=2), {}),
    "linformer": (lambda: ViT(**_VIT, attention="linformer"), _VIT_STATED),
    "swin2sr": (_swin2sr, {}),
    "swinir": (lambda: SwinIR(**_SWINIR), {}),
    "vit": (lambda: ViT(**_VIT), _VIT_STATED),
    "vit_large": (lambda: ViT(**_VIT | _LARGE), _VIT_STATED | _LARGE),
}
"""Name -> how a network is built, and what its weights do not tell."""

FILES: dict[str, tuple[str, str]] = {
    "full": ("swinir", "--attn full"),
    "nystra": ("swinir", "--attn nystra --landmarks 2x2"),
    "nystromformer": ("swinir", "--attn nystromformer --landmarks 2x2"),
    "cluster": ("swinir", "--attn cluster --clusters 2x2 --block 2"),
    "covariance": ("swinir", "--attn cluster --order 1 --clusters 2x2 --block 2"),
    "overlap": ("hat", "--attn full"),
    "cosine": ("swin2sr", "--attn full"),
    "patches": ("inpainting", "--attn psal --neighbors 2 --search-iterations 2"),
    "tokens": ("vit", "--attn nystromformer --landmarks 2x3"),
    "pinv": ("vit", "--attn nystra --landmarks 2x3"),
    "attention": ("vit_large", "--attn full"),
    "linformer": ("linformer", "--attn linformer"),
    "performer": ("vit", "--attn performer --features 8"),
    "fp16": ("swinir", "--attn full --precision fp16"),
    "bf16": ("swinir", "--attn full --precision bf16"),
    "int8": ("swinir", "--attn full --precision int8"),
    "opset18": ("swinir", "--attn full --opset 18"),
    "opset19": ("swinir", "--attn full --opset 19"),
    "inline": ("swinir", "--attn cluster --clusters 2x2 --block 2 --inline --static 1x3x16x24"),
    "no_bodies": ("swinir", "--attn full --no-functions"),
    "portable": (
        "swinir",
        "--attn cluster --clusters 2x2 --block 2 --target portable --static 1x3x16x24",
    ),
}
"""Model file -> its network and the flags of its export."""


UNRUNNABLE = {"bf16"}
"""Files that no CPU runs: they are only read."""


def write_checkpoint(name: str, path: Path) -> None:
    """Write a network with weights that make attention matter."""
    build, stated = NETWORKS[name]
    torch.manual_seed(0)
    network = build()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    save_file(network.state_dict(), path, {"nystra": json.dumps(stated)})


def write_files(folder: Path, names: Iterable[str] = FILES) -> None:
    """Export the named files, or all, to a new folder."""
    folder, before = folder.resolve(), Path.cwd()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # a manifest names the files of its export: none of them has a folder
        try:
            _export(names)
        finally:
            os.chdir(before)
        folder.mkdir()
        for file in sorted(Path(work).glob("*")):
            if file.suffix in (".onnx", ".json", ".npz"):
                shutil.copy(file, folder)


def _export(names: Iterable[str]) -> None:
    images = Path("images")
    images.mkdir()
    for image in photographs().values():
        shutil.copy(image, images)
    for name in names:
        network, flags = FILES[name]
        checkpoint = Path(f"{network}.safetensors")
        write_checkpoint(network, checkpoint)
        arguments = flags.split()
        if "int8" in arguments:
            arguments += ["--calibrate", str(images)]
        _run("export", str(checkpoint), "-o", f"{name}.onnx", *arguments, "--no-speed")
        if name not in UNRUNNABLE:
            _run("check", f"{name}.onnx", "--baseline", f"{name}.baseline.json", "--update")


def _run(*arguments: str) -> None:
    if code := main(list(arguments)):
        sys.exit(f"{' '.join(arguments)}: exit code {code}")


if __name__ == "__main__":
    write_files(Path(__file__).parent / nystra.__version__)
