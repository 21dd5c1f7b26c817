"""A tiny SwinIR exported with options."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from exported_files import TINY
from nystra.export import ExportOptions, Plan, export_model, export_module, mechanism
from nystra.models.swinir.network import SwinIR
from nystra.runtime import Session

NYSTRA = Plan(mechanism("nystra", landmarks=(2, 2)))


def checkpoint(folder: Path, **more: Any) -> Path:
    torch.manual_seed(3)
    path = folder / "tiny.safetensors"
    metadata = {"nystra": json.dumps(more.pop("stored", {}))}
    save_file(SwinIR(**TINY | more).state_dict(), path, metadata)
    return path


def export(folder: Path, options: ExportOptions, **more: Any) -> Path:
    path = checkpoint(folder, **more)
    return export_model(path, folder / "m.onnx", replace(options, speed=False)).model


def export_session(network: nn.Module, folder: Path, **more: Any) -> Session:
    """Export a module without timing, and return a session of its file."""
    options = ExportOptions(speed=False, **more)
    return Session(export_module(network.eval(), folder / "m.onnx", options).model)
