"""A backend of numpy alone, and the process that times it: what a new engine has to bring."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nystra.runtime import backends
from nystra.runtime.model.model_ports import TensorInfo
from nystra.runtime.model.onnx_header import OnnxHeader
from nystra.runtime.timing.worker import open_session, serve

ROW = {"toy": ("toy", "ToyBackend")}
HOME = f"{backends.__name__}.toy"
"""Where the file of a real backend lies."""


class ToyBackend:
    """Doubles a picture by repeating its pixels, whatever the file says."""

    device: ClassVar[str] = "cpu"
    engine: ClassVar[str | None] = None
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32"})
    library_name: ClassVar[str | None] = None

    def __init__(
        self, path: Path, header: OnnxHeader, *, threads: int | None, library: str | Path | None
    ) -> None:
        self.inputs = (TensorInfo("input", ("batch", 3, "height", "width"), "float32"),)
        self.outputs = (TensorInfo("output", ("batch", 3, "2*height", "2*width"), "float32"),)
        self.metadata = dict(header.metadata)
        self.library = None
        self.library_reason = "numpy repeats the pixels"

    @staticmethod
    def available() -> tuple[bool, str]:
        return True, "numpy is there"

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        return {"output": np.repeat(np.repeat(feeds["input"], 2, axis=2), 2, axis=3)}


if __name__ == "__main__":
    backends._BACKENDS.update(ROW)
    sys.modules[HOME] = sys.modules["__main__"]
    sys.exit(serve(open_session))
