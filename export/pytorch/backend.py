"""The backends ``torch-cpu``, ``torch-cuda``, ...: the checkpoint of a model file, in PyTorch.

They compute the plain network with the file's plan. `register_torch` registers them with the
runtime, which never imports PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError
from ...runtime.backends import backend_names, find_backend, register_backend
from ...runtime.backends.base import Backend
from ...runtime.model.model_facts import TensorInfo

TORCH_BACKENDS: dict[str, dict[str, Any]] = {
    "torch-cpu": {"device": "cpu"},
    "torch-cuda": {"device": "cuda"},
    "torch-cuda-fp16": {"device": "cuda", "half": True},
    "torch-cuda-compile": {"device": "cuda", "half": True, "compiled": True},
}
"""Name -> attributes of its `TorchBackend`."""


def register_torch(checkpoint: Path | None, hyper: Mapping[str, Any]) -> None:
    """Register the backends of PyTorch for a checkpoint.

    Args:
        checkpoint: The checkpoint of the model files, or None: then they cannot run.
        hyper: Hyper-parameters that the checkpoint does not state.
    """
    precisions = [find_backend(name).precisions for name in backend_names()]
    every = frozenset().union(*precisions)
    for name, way in TORCH_BACKENDS.items():
        facts = {"checkpoint": checkpoint, "hyper": dict(hyper), **way}
        attributes = {**facts, "precisions": every}
        register_backend(name, type(name, (TorchBackend,), attributes))


class TorchBackend(Backend):
    """The plain network with the plan of a model file.

    Attributes:
        checkpoint: The checkpoint of the file, or None.
        hyper: Hyper-parameters that the checkpoint does not state.
        half: Compute in float16.
        compiled: Run the network with ``torch.compile``.
    """

    checkpoint: ClassVar[Path | None] = None
    hyper: ClassVar[dict[str, Any]] = {}
    half: ClassVar[bool] = False
    compiled: ClassVar[bool] = False

    def load(self) -> None:
        """Load the checkpoint with the plan of a model file exported from it.

        Raises:
            NystraError: The file has no plan, or was exported from another checkpoint.
            BackendUnavailableError: There is no checkpoint to run.
        """
        import torch

        from ..load.source import load_source
        from .network_session import NetworkSession

        if self.checkpoint is None:
            raise BackendUnavailableError("it runs the checkpoint of the model: give `checkpoint`")
        source = load_source(self.path, self.metadata, self.checkpoint, self.hyper)
        if self.spec.threads is not None:
            torch.set_num_threads(self.spec.threads)
        facts = source.loaded.facts
        network = source.with_plan()
        names = [port.name for port in facts.outputs]
        dtype = torch.float16 if self.half else torch.float32
        self._network = NetworkSession(
            network, dtype, self.device, outputs=names, compiled=self.compiled
        )
        self.inputs = tuple(TensorInfo.of(port) for port in facts.inputs)
        self.outputs = tuple(TensorInfo.of(port) for port in facts.outputs)
        where = "the CPU"
        if self.device == "cuda":
            where = _gpu()
        how = ("compiled" if self.compiled else "eager") + (", float16" if self.half else "")
        self.library_reason = f"PyTorch {torch.__version__}, the plain network, {how}, on {where}"

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether there is a checkpoint and, for CUDA backends, a GPU."""
        if cls.checkpoint is None:
            return False, "it runs the checkpoint of the model: give `checkpoint`"
        try:
            return True, "PyTorch on " + (_gpu() if cls.device == "cuda" else "the CPU")
        except BackendUnavailableError as error:
            return False, str(error)

    def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the network once."""
        named = {tensor.name: feeds[tensor.name] for tensor in self.inputs}
        return self._network.run(named)

    def time_on_device(self, feeds: Mapping[str, Array]) -> float | None:
        """Run the network once; return the seconds between events around it, or None on a CPU."""
        named = {tensor.name: feeds[tensor.name] for tensor in self.inputs}
        return self._network.device_seconds(named)


def _gpu() -> str:
    """Return the name of PyTorch's first GPU, and turn TF32 off for full float32 precision."""
    import torch

    if not torch.cuda.is_available():
        built = "has no CUDA"
        if torch.version.cuda:
            built = f"is built for CUDA {torch.version.cuda}"
        raise BackendUnavailableError(
            f"PyTorch {torch.__version__} {built} and finds no GPU: it needs a build with CUDA and "
            "an NVIDIA driver"
        )
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.cuda.get_device_name(0)
