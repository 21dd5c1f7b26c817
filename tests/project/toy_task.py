"""A task as CONTRIBUTING says to add one, neither images nor classes: an image to a depth map.

Its output has a role of its own, ``depth``, and is written as an array of 32-bit floats.
"""

from toy_tree import Toy

OPTIONS = '''"""What is asked for of depth maps."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ....core.option import Options, option
from ....core.option_kinds import File, Number
from ...options import OVERWRITE

UNIT = Number(1.0, "what every depth is multiplied by", 0, above=True)


@dataclass(frozen=True)
class DepthOptions(Options):
    """How depth maps are made."""

    overwrite: bool = option(OVERWRITE)
    unit: float = option(UNIT)


@dataclass(frozen=True)
class DepthParameters(Options):
    """What a request may ask for."""

    unit: float = option(UNIT)


@dataclass(frozen=True)
class TruthOptions(Options):
    """Images whose depth is known."""

    depths: str | os.PathLike[str] | None = option(
        File(None, "images, each beside its depth map: a.png, a.npy", metavar="FOLDER")
    )
'''

HANDLER = '''"""One image to its depth map."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.option import Options
from ...images.image_data import ImageData
from ...session import Session
from ..handler import Answer, AnswerTensor, Files, Handler, decode_role
from ..result import UnusableOutputError
from .options import DepthParameters


def depth_of(
    model: Callable[..., Array], image: ImageData, unit: float
) -> npt.NDArray[np.float32]:
    """Return the depth (H, W) of every pixel."""
    depth = model(np.ascontiguousarray(np.moveaxis(image.pixels, 2, 0)[None]))
    if not np.isfinite(depth).all():
        raise UnusableOutputError("the depth holds NaN or infinity")
    return np.float32(depth[0, 0] * unit)


@dataclass(frozen=True)
class DepthHandler(Handler):
    """Answers requests with the content of a ``.npy`` file."""

    route: ClassVar[str] = "toy"
    summary: ClassVar[str] = "The depth of an image"
    parameters: ClassVar[type[Options]] = DepthParameters
    media_types: ClassVar[tuple[str, ...]] = ("application/octet-stream",)
    model: Callable[..., Array]
    output: str

    @classmethod
    def open(cls, session: Session, name: str) -> DepthHandler:
        """Take an open session."""
        return cls(session, session.facts.outputs[0].name)

    @property
    def function(self) -> Callable[..., Array]:
        """The model."""
        return self.model

    def with_function(self, function: Callable[..., Array], images: int) -> DepthHandler:
        """Return it with another function."""
        return replace(self, model=function)

    @property
    def tensors(self) -> tuple[AnswerTensor, ...]:
        """The map itself."""
        return (AnswerTensor(self.output, "float32", (-1, -1)),)

    def __call__(
        self,
        files: Files,
        parameters: DepthParameters,
        check: Callable[[], None] = lambda: None,
        max_pixels: int | None = None,
    ) -> Answer:
        """Return the depth of the image."""
        image = decode_role(files, max_pixels=max_pixels)
        check()
        depth = depth_of(self.model, image, parameters.unit)
        stream = io.BytesIO()
        np.save(stream, depth)
        tensors = {self.output: depth}
        return Answer(stream.getvalue(), self.media_types[0], depth.size, {}, tensors)
'''

RUN = '''"""What ``nystra run`` does: an image in, a ``.npy`` file out."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np

from ....core.errors import NystraError
from ....core.files.writing import atomic_write_bytes
from ...images.images import read_image
from ..result import Result
from .handler import depth_of


def write_depth(session, input, output, options, *, report=None):
    """Write the depth of one image."""
    begin, target = time.perf_counter(), Path(output)
    if target.exists() and not options.overwrite:
        raise NystraError(f"{target} exists: choose another output or give `overwrite`")
    image = read_image(input)
    stream = io.BytesIO()
    np.save(stream, depth_of(session, image, options.unit))
    atomic_write_bytes(target, stream.getvalue())
    height, width = image.size
    seconds = time.perf_counter() - begin
    return [Result(str(input), output=str(target), input_size=(width, height), seconds=seconds)]
'''

QUALITY = '''"""How far depth maps are from the truth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ....core.errors import NystraError
from ...metrics.guarded_figure import GuardedFigure
from ...images.images import read_image
from ..quality import Quality
from .handler import depth_of
from .options import TruthOptions


@dataclass(frozen=True)
class DepthError:
    """The mean absolute difference over all pixels of all images."""

    mean: float
    images: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def figures(self):
        """Return what a baseline guards."""
        return {"depth_error": self.mean}

    def settings(self):
        """Return how it was measured."""
        return {"images": list(self.images)}

    def as_dict(self):
        """Return everything as JSON takes it."""
        return asdict(self)

    def rows(self):
        """Return a table."""
        return [("depth maps", "mean error"), (str(len(self.images)), f"{self.mean:.4g}")]

    def notes(self):
        """Return nothing else."""
        return []


def measure(session, options, progress=lambda text: None, network=None):
    """Measure the images of a folder."""
    images = sorted(Path(options.depths).glob("*.png"))
    if not images:
        raise NystraError(f"the folder {options.depths} holds no images")
    errors = [
        np.abs(depth_of(session, read_image(path), 1.0) - np.load(path.with_suffix(".npy")))
        for path in images
    ]
    mean = float(np.mean([error.mean() for error in errors]))
    return DepthError(mean, tuple(path.name for path in images))


QUALITY = Quality(
    name="depth",
    items={"depth_error": GuardedFigure("mean depth error", "", "growth", 0.01, "`depths`")},
    settings={"images": list},
    options=TruthOptions,
    measure=measure,
)
'''

RESULT = '''"""What became of depth maps, in words."""

from __future__ import annotations


def rows(results):
    """Return a table, its head first."""
    return [("image", "depth"), *((result.input, result.output) for result in results)]


def line(result):
    """Return what became of one image."""
    return f"{result.input} -> {result.output}"


def example(model):
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import Session

depth = Session("{model}")(image)
"""
'''

ROW = """
TASKS = [
    Task(
        names=("toy",),
        example=("photo.png", "depth.png"),
        inputs=("image",),
        optional_inputs=(),
        output="depth",
        run=_part("toy.run", "write_depth"),
        summary=_part("toy.result"),
        options=(_part("toy.options", "DepthOptions"),),
        handler=_part("toy.handler", "DepthHandler"),
        quality=_part("toy.quality", "QUALITY"),
    ),
"""

MEASURE = '''
def depth_figures(got: Array, expected: Array) -> dict[str, float]:
    """Return the norm of the difference over that of the expected depth."""
    _check_shapes(got, expected)
    error = float(np.linalg.norm((got - expected).astype(np.float64)))
    return {"relative_error": error / (float(np.linalg.norm(expected.astype(np.float64))) or 1.0)}


MEASURES = {
    "depth": replace(_LOGITS, figures=depth_figures, few=False),
    "picture": _IMAGE,'''

TOY = Toy(
    "task",
    "toy",
    {
        f"runtime/tasks/<name>/{name}.py": text
        for name, text in (
            ("options", OPTIONS),
            ("handler", HANDLER),
            ("run", RUN),
            ("quality", QUALITY),
            ("result", RESULT),
        )
    },
    {
        "runtime/tasks/registry.py": (("\nTASKS = [\n", ROW),),
        "core/ports/port.py": (('"picture", "logits")', '"picture", "logits", "depth")'),),
        "runtime/metrics/measures.py": (('\nMEASURES = {"picture": _IMAGE,', MEASURE),),
    },
)
