"""Common functions for tests of a network as a model file: a checkpoint with effective weights, its
export, and the two comparisons that every network has to pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from nystra.export import ExportOptions, ExportResult, Plan, export_model, mechanism
from nystra.models import load
from nystra.runtime import Session


def save_generated(network: nn.Module, path: Path, gain: float, **metadata: Any) -> Path:
    """Write a network with normal weights as a checkpoint; return the path.

    Args:
        network: Its weights are changed; those of norms stay.
        path: A safetensors file.
        gain: Standard deviation of a weight, times the root of the number of inputs of an output.
            **said: Hyper-parameters in the file.
    """
    torch.manual_seed(0)
    for name, parameter in network.named_parameters():
        if "norm" not in name:
            fan = parameter[0].numel() if parameter.dim() > 1 else 25
            nn.init.normal_(parameter, std=gain * fan**-0.5)
    save_file(network.state_dict(), path, {"nystra": json.dumps(metadata)})
    return path


def exported(checkpoint: Path, folder: Path, attention: str, **more: Any) -> ExportResult:
    """Return the export of a checkpoint with a mechanism at every site."""
    parameters = {"landmarks": (2, 2)} if attention.startswith("nystr") else {}
    plan = Plan(default=mechanism(attention, **parameters))
    return export_model(
        checkpoint, folder / "m.onnx", ExportOptions(plan=plan, speed=False, **more)
    )


def assert_is_the_network(
    model: Path, checkpoint: Path, shape: tuple[int, ...], library: str = "auto"
) -> None:
    """Compare a file with the network on an image, and check that the network changes it."""
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    with torch.no_grad():
        expected = load(checkpoint).network(torch.from_numpy(image)).numpy()
    same = np.resize(image, expected.shape)
    assert np.abs(expected - same).max() > 0.01
    np.testing.assert_allclose(Session(model, library=library)(image), expected, atol=2e-5, rtol=0)


def assert_two_exports_are_equal(checkpoint: Path, folder: Path, shape: tuple[int, ...]) -> None:
    """Export twice at one size and compare the bytes."""
    models = []
    for name in ("a", "b"):
        (folder / name).mkdir()
        models.append(exported(checkpoint, folder / name, "full", static=shape).model)
    assert models[0].read_bytes() == models[1].read_bytes()
