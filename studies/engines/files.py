"""The files that engines open: what PyTorch exports, and what nystra exports.

Each is made in a process of its own, since exports take memory that stays::

    python -m studies.engines.files swinir_m full build/engines/swinir_m
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies.engines.measuring import FILES
from studies.engines.networks import NETWORKS, Network

CALIBRATED = 4
"""Images that ranges of int8 are measured on."""


def make_image(side: int, which: int = 0) -> np.ndarray:
    """Return the square in the middle of a shipped photograph: (1, 3, side, side) in 0..1."""
    from nystra.export.load.images import photographs
    from nystra.runtime.images.images import read_image

    paths = list(photographs().values())
    pixels = read_image(paths[which % len(paths)]).pixels
    top, left = ((length - side) // 2 for length in pixels.shape[:2])
    square = pixels[top : top + side, left : left + side]
    return np.ascontiguousarray(square.transpose(2, 0, 1)[None], np.float32)


def _reference(network: Network, path: Path) -> None:
    with torch.inference_mode():
        output = network.module()(torch.from_numpy(make_image(network.side)))
    np.save(path, output.numpy())


def _image(network: Network, path: Path) -> None:
    np.save(path, make_image(network.side))


def _calibration(network: Network, path: Path) -> None:
    path.mkdir()
    for which in range(CALIBRATED):
        np.save(path / f"{which}.npy", make_image(network.side, which))


def _checkpoint(network: Network, path: Path) -> None:
    torch.save({"params": network.module().state_dict()}, path)


def _plain(network: Network, path: Path) -> None:
    example = torch.from_numpy(make_image(network.side))
    torch.onnx.export(
        network.module(),
        (example,),
        path,
        dynamo=True,
        opset_version=20,
        external_data=False,
        input_names=["input"],
        output_names=["output"],
        verbose=False,
    )


def _nystra(network: Network, path: Path, attention: str = "full", **more: Any) -> None:
    from nystra.export import ExportOptions, Plan, export_model, mechanism

    checkpoint = network.shipped or path.with_name("network.pth")
    plan, hyper = Plan(mechanism(attention)), dict(network.hyper)
    options = ExportOptions(plan, hyper=hyper, speed=False, overwrite=True, **more)
    export_model(checkpoint, path, options)


def _portable(network: Network, path: Path) -> None:
    _nystra(network, path, static=(1, 3, network.side, network.side), target="portable")


def _int8(network: Network, path: Path) -> None:
    from nystra.export.load.images import photographs

    images = next(iter(photographs().values())).parent
    _nystra(network, path, precision="int8", calibrate=images, min_psnr=1.0)


def _cluster(network: Network, path: Path) -> None:
    _nystra(network, path, "cluster")


FORMS: dict[str, Callable[[Network, Path], None]] = {
    "image": _image,
    "calibration": _calibration,
    "reference": _reference,
    "checkpoint": _checkpoint,
    "plain": _plain,
    "full": _nystra,
    "cluster": _cluster,
    "int8": _int8,
    "portable": _portable,
}
"""What makes each of `measuring.FILES`. A module is built where it is run."""


def main() -> None:
    """Make the file that the command line names."""
    name, form, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    FORMS[form](NETWORKS[name], Path(folder) / FILES[form])


if __name__ == "__main__":
    main()
