"""The export that many tests read, made once per session by the first worker that needs it."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nystra.cli.main import main
from nystra.models.swinir.network import SwinIR

TINY = {
    "upscale": 2,
    "window_size": 8,
    "depths": [2],
    "embed_dim": 8,
    "num_heads": [2],
    "upsampler": "pixelshuffledirect",
}


def tiny_swinir() -> SwinIR:
    """Return the network of the export, with fixed weights."""
    torch.manual_seed(3)
    return SwinIR(**TINY).eval()


def swinir_files(factory: pytest.TempPathFactory) -> Path:
    """Return a folder as ``nystra export tiny.safetensors`` leaves it: read it, or copy it first.

    ``model.onnx`` has `nystra` with 2x2 landmarks at both sites and free sides, beside it the
    checkpoint, and ``said.json``, what the command printed.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # every worker has a folder of its own in there
        folder = folder.parent
    target, unfinished = folder / "tiny_swinir", folder / "tiny_swinir.part"
    with (folder / "tiny_swinir.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _export(unfinished)
            unfinished.rename(target)
    return target


def _export(folder: Path) -> None:
    checkpoint, model = folder / "tiny.safetensors", folder / "model.onnx"
    save_file(tiny_swinir().state_dict(), checkpoint, {"nystra": '{"license": "CC0-1.0"}'})
    options = ["--attn", "nystra", "--landmarks", "2x2", "--no-speed", "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["export", str(checkpoint), "-o", str(model), *options]) == 0
    (folder / "said.json").write_text(json.dumps(json.loads(printed.getvalue())))
