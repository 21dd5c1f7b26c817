"""onnxruntime on an ONNX file, alone or with the execution provider of a plug-in."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.engines.workers.protocol import Request, Run, serve


def open_engine(request: Request) -> Run:
    """Open the file; ``provider`` names a package of a plug-in."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    plugin = request.get("provider")
    if plugin is None:
        session = ort.InferenceSession(request["path"], options, providers=["CPUExecutionProvider"])
    else:
        session = _with_plugin(ort, plugin, request["path"], options)
    name = session.get_inputs()[0].name

    def run(image: np.ndarray) -> np.ndarray:
        output: np.ndarray = session.run(None, {name: image})[0]
        return output

    return run


def _with_plugin(ort: Any, package: str, path: str, options: Any) -> Any:
    """Return a session on the CPU device of a plug-in.

    Raises:
        RuntimeError: It offers no device here.
    """
    plugin = __import__(package)
    ort.register_execution_provider_library(package, plugin.get_library_path())
    names = set(plugin.get_ep_names())
    devices = [device for device in ort.get_ep_devices() if device.ep_name in names]
    if not devices:
        raise RuntimeError(f"{package} offers no device on this processor")
    options.add_provider_for_devices(devices[:1], {})
    return ort.InferenceSession(path, options)


if __name__ == "__main__":
    serve("onnxruntime", open_engine)
