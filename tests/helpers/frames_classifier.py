"""A model file with a task of its own: several frames in, logits out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from nystra.core.ports.port import FRAMES_AXES, LOGITS_AXES, Port
from nystra.export.graph.metadata import describe, write_metadata
from nystra.export.tracing.site_graph import trace_network
from nystra.models.facts import Facts


class Judge(nn.Module):
    """Logits of a short video: sums over frames and pixels."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Return (B, 3)."""
        return frames.sum((1, 3, 4))


FRAMES = Port("frames", "frames", FRAMES_AXES, {"channels": 3}, multiple=4)


LOGITS = Port("logits", "logits", LOGITS_AXES, {"classes": 3}, range=None)


COMMON: dict[str, Any] = {"architecture": "toy", "tiling": "internal", "license": "CC0-1.0"}


JUDGE = Facts(task="toy", inputs=(FRAMES,), outputs=(LOGITS,), **COMMON)


def save(network: nn.Module, facts: Facts, path: Path) -> Path:
    model = trace_network(network.eval(), facts, 20).write_mechanisms({})
    write_metadata(model, replace(describe(facts), version="0"))
    onnx.save(model, path)
    return path
