"""A backend with numpy only, whose files are not ONNX, and the process that times it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from nystra.runtime import backends
from nystra.runtime.timing.worker import open_session, serve
from toy_tree import Toy

PROGRAMS = '''"""Programs of numpy in JSON: metadata, inputs, outputs and the steps in between."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core.files.reading import regular_file
from ...core.option import Options, option
from ...core.option_kinds import Number
from ...core.json_text import parse_json
from ..model.model_facts import TensorInfo
from .base import Backend

_STEPS = {"repeat": np.repeat, "mean": lambda array, axis: array.mean(axis, keepdims=True)}


@dataclass(frozen=True)
class ToyOptions(Options):
    """What the values are multiplied by."""

    gain: float = option(Number(1.0, "factor of the outputs", 0))


class ToyBackend(Backend):
    """A program of one input and one output."""

    artifact: ClassVar[str] = "toy"
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "toy"})
    options: ClassVar[type[Options]] = ToyOptions
    measures_memory: ClassVar[bool] = True

    @classmethod
    def available(cls):
        """Return that it is there."""
        return True, "numpy is there"

    def read_metadata(self):
        """Return what the program says of itself."""
        text = regular_file(self.path, "the program").read_text(encoding="utf-8")
        self._program = parse_json(text, f"the program {self.path}")
        return dict(self._program["metadata"])

    def load(self):
        """Take the program for what it says."""
        self.inputs, self.outputs = (
            (TensorInfo(tensor["name"], tuple(tensor["shape"]), "float32"),)
            for tensor in (self._program["input"], self._program["output"])
        )
        self.library_reason = "numpy takes the steps"

    def infer(self, feeds):
        """Take all steps."""
        (array,) = feeds.values()
        for name, *arguments in self._program["steps"]:
            array = _STEPS[name](array, *arguments)
        return {self.outputs[0].name: array * np.float32(self.chosen.gain)}
'''

ROW = {"toy": ("toy", "ToyBackend")}
HOME = f"{backends.__name__}.toy"
"""Where the file of a real backend lies."""

TABLE = "_BACKENDS = {\n"

TOY = Toy(
    "backend",
    "toy",
    {"runtime/backends/<name>.py": PROGRAMS},
    {"runtime/backends/__init__.py": ((TABLE, f'{TABLE}    "toy": {ROW["toy"]},\n'),)},
)


def save_program(path: Path, metadata: Mapping[str, str]) -> Path:
    """Write a program that doubles an image by repeating its pixels."""
    sides = [["batch", 3, "height", "width"], ["batch", 3, "2*height", "2*width"]]
    program = {
        "metadata": dict(metadata),
        "input": {"name": "input", "shape": sides[0]},
        "output": {"name": "output", "shape": sides[1]},
        "steps": [["repeat", 2, 2], ["repeat", 2, 3]],
    }
    path.write_text(json.dumps(program))
    return path


def toy_module() -> ModuleType:
    """Return the author's file as a module."""
    module = ModuleType(HOME)
    module.__package__ = backends.__name__
    sys.modules[HOME] = module  # where dataclasses look for the annotations
    exec(compile(PROGRAMS, HOME, "exec"), module.__dict__)
    return module


if __name__ == "__main__":
    backends._BACKENDS.update(ROW)
    toy_module()
    sys.exit(serve(open_session))
