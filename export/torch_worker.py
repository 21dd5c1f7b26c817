"""The child process of a benchmark that runs PyTorch: the plain network with a file's plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..plugins.errors import BackendUnavailableError, NystraError
from ..runtime.model.onnx_header import read_onnx_header
from ..runtime.timing.worker import Opened, serve


def open_network(request: Mapping[str, Any]) -> Opened:
    """Load a checkpoint with the plan of a model file exported from it.

    Keys: ``model``, ``checkpoint`` (or None), ``hyper`` (what the checkpoint does not tell),
    ``threads``, and ``device``: on the first GPU, in eager mode and without TF32, as the file's
    precision is float32's.

    Raises:
        NystraError: The file carries no plan, or was exported from another checkpoint.
        BackendUnavailableError: There is no checkpoint to run, or PyTorch finds no GPU.
    """
    if request["checkpoint"] is None:
        raise BackendUnavailableError("it runs the checkpoint of the model: give --checkpoint")
    import torch

    from .attention.plan import decode_plan
    from .attention.site import resolve, swap
    from .stages.preparing import load_for
    from .torch_backend import TorchBackend

    metadata = read_onnx_header(request["model"]).metadata
    if "nystra.attention" not in metadata:
        raise NystraError(
            f"{request['model']} carries no plan: it was not written by nystra-export"
        )
    if request.get("threads"):
        torch.set_num_threads(request["threads"])
    where = _gpu() if request.get("device") else "the CPU"
    plan = decode_plan(metadata["nystra.attention"], f"the plan in {request['model']}")
    loaded = load_for(Path(request["checkpoint"]), plan, dict(request.get("hyper") or {}))
    if plan.source_sha256 != loaded.checkpoint.sha256:
        raise NystraError(
            f"{request['model']} was exported from another checkpoint than {request['checkpoint']}"
        )
    device = "cuda" if request.get("device") else "cpu"
    backend = TorchBackend(swap(loaded.network, resolve(plan, loaded.network)), device=device)
    reason = f"PyTorch {torch.__version__}, the plain network, eager, on {where}"
    return Opened(backend.run, loaded.facts.inputs, {"library_reason": reason})


def _gpu() -> str:
    """Return the name of PyTorch's first GPU, with TF32 switched off."""
    import torch

    if not torch.cuda.is_available():
        built = f"is built for CUDA {torch.version.cuda}" if torch.version.cuda else "has no CUDA"
        raise BackendUnavailableError(
            f"PyTorch {torch.__version__} {built} and finds no GPU: it needs a build with CUDA and "
            "an NVIDIA driver"
        )
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.cuda.get_device_name(0)


if __name__ == "__main__":
    sys.exit(serve(open_network))
