"""Which operator library goes into the folder."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import BackendUnavailableError
from ...runtime.engines.record import EngineRecord
from ...runtime.library import choose_library
from ...runtime.model.onnx_header import OnnxHeader
from .options import TritonOptions


def library_for(
    options: TritonOptions, header: OnnxHeader, record: EngineRecord | None
) -> Path | None:
    """Return the library that the server loads with the model, or None.

    The python backend has nystra's own; onnxruntime runs the operators' bodies without one; an
    engine whose plugins are missing cannot be loaded.

    Args:
        options: The options.
        header: Header of the model file.
        record: Record of the engine, for TensorRT.

    Raises:
        NystraError: The path given is not a file.
        BackendUnavailableError: The engine has plugins, and their library is not here.
    """
    if record is not None:
        major = record.version.partition(".")[0]
        name = f"nystra_trt_register{major}"
        choice = choose_library(options.library, needed=bool(record.plugins), name=name)
        if record.plugins and choice.path is None and options.library != "none":
            raise BackendUnavailableError(
                f"the engine has {len(record.plugins)} plugins of nystra, and {choice.reason}. "
                f"Give `library` lib{name}.so, or `library` none to load it on the server yourself"
            )
        return choice.path
    if not options.facts.libraries:
        return None
    name = "nystra_onnxruntime_cuda" if options.gpu else "nystra_onnxruntime"
    return choose_library(options.library, needed=header.has_operators, name=name).path
