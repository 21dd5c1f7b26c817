"""The child process of a benchmark that runs PyTorch: the plain network with a file's plan."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..plugins.errors import NystraError
from ..runtime.bench_worker import Feeds, Opened, example_input, example_mask, serve
from ..runtime.facts import TensorInfo
from ..runtime.onnx_header import read_onnx_header


def open_network(request: Mapping[str, Any]) -> Opened:
    """Load a checkpoint with the plan of a model file exported from it.

    Keys: ``model``, ``checkpoint``, ``hyper`` (what the checkpoint does not tell), ``threads``.

    Raises:
        NystraError: The file carries no plan, or was exported from another checkpoint.
    """
    import torch

    from .attention.plan import parse_plan
    from .attention.site import resolve, swap
    from .pipeline import load_for
    from .torch_backend import TorchBackend

    metadata = read_onnx_header(request["model"]).metadata
    if "nystra.attention" not in metadata:
        raise NystraError(
            f"{request['model']} carries no plan: it was not written by nystra-export"
        )
    if request.get("threads"):
        torch.set_num_threads(request["threads"])
    plan = parse_plan(json.loads(metadata["nystra.attention"]))
    loaded, plan = load_for(Path(request["checkpoint"]), plan, dict(request.get("hyper") or {}))
    if plan.source_sha256 != loaded.checkpoint.sha256:
        raise NystraError(
            f"{request['model']} was exported from another checkpoint than {request['checkpoint']}"
        )
    backend = TorchBackend(swap(loaded.network, resolve(plan, loaded.network)))
    channels = loaded.facts.input_channels
    image = TensorInfo("input", (None, channels, None, None), "float32")

    def feeds(height: int, width: int) -> Feeds:
        made = {"input": example_input(image, height, width, channels)}
        for one in loaded.facts.extra_inputs:
            tensor = TensorInfo(one.name, (None, one.channels, None, None), "float32")
            made[one.name] = (
                example_mask(height, width)
                if one.role == "mask"
                else example_input(tensor, height, width, one.channels)
            )
        return made

    return Opened(
        backend.run,
        feeds,
        {"library_reason": f"PyTorch {torch.__version__}, the plain network"},
    )


if __name__ == "__main__":
    sys.exit(serve(open_network))
