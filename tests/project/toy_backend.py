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
from toy_tree import Toy

ROW = {"toy": ("toy", "ToyBackend")}
HOME = f"{backends.__name__}.toy"
"""Where the file of a real backend lies."""


class ToyBackend:
    """Doubles a picture by repeating its pixels, whatever the file says."""

    device: ClassVar[str] = "cpu"
    engine: ClassVar[str | None] = None
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32"})
    library_name: ClassVar[str | None] = None
    bodies: ClassVar[bool] = False

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


EVALUATOR = '''"""The evaluator of the onnx package: slow, and not onnxruntime."""

from typing import ClassVar

import numpy as np

from ...plugins.ports.port import Port
from ..model.model_ports import TensorInfo
from ..model.onnx_tensors import read_inputs


class ToyBackend:
    """One float32 file, one picture in and one out."""

    device: ClassVar[str] = "cpu"
    engine: ClassVar[str | None] = None
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "toy"})
    library_name: ClassVar[str | None] = None
    bodies: ClassVar[bool] = False

    def __init__(self, path, header, *, threads, library) -> None:
        """Read the file."""
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(str(path))
        self.inputs = tuple(read_inputs(path))
        self.outputs = (TensorInfo.of(Port("output", "picture")),)
        self.metadata = dict(header.metadata)
        self.library = None
        self.library_reason = "the onnx package evaluates"

    @staticmethod
    def available() -> tuple[bool, str]:
        """Return that it is there."""
        return True, "onnx is there"

    def run(self, feeds):
        """Run the file once."""
        return {"output": np.asarray(self._evaluator.run(None, dict(feeds))[0])}
'''

TABLE = "_BACKENDS = {\n"

TOY = Toy(
    "backend",
    "toy",
    {"runtime/backends/<name>.py": EVALUATOR},
    {"runtime/backends/__init__.py": ((TABLE, f'{TABLE}    "toy": {ROW["toy"]},\n'),)},
)


if __name__ == "__main__":
    backends._BACKENDS.update(ROW)
    sys.modules[HOME] = sys.modules["__main__"]
    sys.exit(serve(open_session))
