"""A tiny SwinIR exported with options."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from exported_files import TINY
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.models.swinir.network import SwinIR

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
