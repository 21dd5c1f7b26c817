"""The backends of Triton that a folder is written for, and what a folder depends on."""

from __future__ import annotations

from dataclasses import dataclass

_PARSED = (
    "nystra's tests parse this configuration with Triton's own protobufs. **No server has run it "
    "yet**: the first start is the test."
)


@dataclass(frozen=True)
class TritonBackend:
    """A backend of Triton.

    Attributes:
        files: It takes image files, which nystra in the server's Python restores; else tensors.
        engine: It runs an engine of ``nystra build``, on a GPU.
        chooses_gpu: It runs on the CPU or, if requested, on a GPU.
        libraries: It loads the library of operators by an entry of the configuration.
        operators: It runs files with operators of nystra.
        default_file: Triton finds the model file without an entry of the configuration.
        variable: The environment variable that the server is started with.
        proof: What was tested, in Markdown.
    """

    files: bool = False
    engine: bool = False
    chooses_gpu: bool = True
    libraries: bool = False
    operators: bool = True
    default_file: bool = True
    variable: str = ""
    proof: str = _PARSED


BACKENDS = {
    "python": TritonBackend(
        files=True, proof="nystra's tests run this backend in a real Triton server, on a CPU."
    ),
    "onnxruntime": TritonBackend(libraries=True, variable="ORT_DISABLE_TELEMETRY=1"),
    "tensorrt": TritonBackend(engine=True),
    "openvino": TritonBackend(chooses_gpu=False, operators=False, default_file=False),
}
