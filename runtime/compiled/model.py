"""The model that an engine is built from, its plugin library, and the input shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.reading import file_sha256
from ...core.option import Options, option
from ...core.option_kinds import Switch
from ...core.ports.input_shapes import InputShapes, Shape
from ...core.ports.port import SIDES, Port
from ...plugins.library import choose_library
from ..model.external_data import external_files
from ..model.onnx_header import read_onnx_header
from ..options import TILE

DEFAULT_TILE = 256
"""Default side of the image that an engine is built for, in pixels."""

ENGINE_TILE = replace(
    TILE,
    default=None,
    minimum=1,
    doc="side of the single input size, if no shapes are given",
    default_text=str(DEFAULT_TILE),
)
REBUILD = Switch("build even if the cache has the engine")

Profile = dict[str, tuple[Shape, Shape, Shape]]
"""Input name -> smallest, best and largest shape; inputs of a fixed shape are left out."""


@dataclass(frozen=True)
class EngineShapes(Options):
    """The requested shapes, in the form of trtexec."""

    min_shapes: Mapping[str, Shape] | None = option(
        InputShapes(None, "smallest shapes", flag="--minShapes")
    )
    opt_shapes: Mapping[str, Shape] | None = option(
        InputShapes(None, "shapes that the engine is optimized for", flag="--optShapes")
    )
    max_shapes: Mapping[str, Shape] | None = option(
        InputShapes(None, "largest shapes", flag="--maxShapes")
    )


def make_profile(
    inputs: Sequence[Port], shapes: EngineShapes | None = None, tile: int | None = None
) -> Profile:
    """Return the profile of a model with these inputs.

    Without shapes it is one tile of batch 1. Of the three, missing ones are those of the best or
    the largest one.

    Raises:
        NystraError: A shape has an unknown name, another rank or another fixed size, the three
            are not in order, or an input has free sizes and no shape is requested.
    """
    dynamic = {port.name: port for port in inputs if port.free_axes()}
    if shapes is None or not shapes.list_changes():
        side = DEFAULT_TILE if tile is None else tile
        return {name: (_tile_shape(port, side),) * 3 for name, port in dynamic.items()}
    if tile is not None:
        raise NystraError(
            "`tile` and `min_shapes`, `opt_shapes`, `max_shapes` exclude each other: give one "
            "of the two"
        )
    best = shapes.opt_shapes or shapes.max_shapes or shapes.min_shapes or {}
    triple = (shapes.min_shapes or best, best, shapes.max_shapes or best)
    if wrong := sorted(set().union(*triple) - {port.name for port in inputs}):
        names = ", ".join(port.name for port in inputs)
        raise NystraError(f"the model has no input {', '.join(wrong)}; its inputs are {names}")
    rows = {}
    for name, port in dynamic.items():
        rows[name] = _row(port, [shapes.get(name) for shapes in triple])
    return rows


def _tile_shape(port: Port, side: int) -> Shape:
    if not set(SIDES) <= set(port.axes):
        raise NystraError(f"{_open(port)}: set it with `opt_shapes`")
    return port.shape(dict.fromkeys(SIDES, side) | dict(port.lengths))


def _row(port: Port, shapes: Sequence[Shape | None]) -> tuple[Shape, Shape, Shape]:
    minimum, best, largest = shapes
    if minimum is None or best is None or largest is None:
        raise NystraError(f"{_open(port)}: give its shapes")
    for shape in (minimum, best, largest):
        fixed = [port.lengths.get(axis) for axis in port.axes]
        if len(shape) != len(fixed) or any(
            length not in (None, side) for length, side in zip(fixed, shape, strict=True)
        ):
            raise NystraError(
                f"the shape {shape} does not fit the input {port.name!r}, {_shape_text(port)}"
            )
    if not all(a <= b <= c for a, b, c in zip(minimum, best, largest, strict=True)):
        raise NystraError(
            f"the shapes of {port.name!r} are not in order: smallest {minimum}, best {best}, "
            f"largest {largest}"
        )
    return minimum, best, largest


def _open(port: Port) -> str:
    return f"the input {port.name!r} has the open shape {_shape_text(port)}"


def _shape_text(port: Port) -> str:
    return f"({', '.join(str(port.lengths.get(axis, axis)) for axis in port.axes)})"


LIBRARY = "nystra_trt"
"""The plugin library, as `library_path` names it."""


@dataclass(frozen=True)
class EngineModel:
    """A model file and the plugins it is built with.

    Attributes:
        path: The ONNX file.
        library: The plugin library, or None: the operators' bodies are compiled.
        library_reason: One sentence that explains the choice of the library.
    """

    path: Path
    library: Path | None
    library_reason: str

    @classmethod
    def open(cls, path: str | os.PathLike[str], library: str | Path | None = "auto") -> EngineModel:
        """Find a model and its plugins: ``auto``, ``none`` or the path of a libnystra_trt.

        Raises:
            NystraError: The file is missing or not ONNX, or the library given is not a file.
        """
        needed = read_onnx_header(path).has_operators
        choice = choose_library(library, needed=needed, name=LIBRARY, what="plugin library")
        reason = choice.reason + ("; the operators' bodies are compiled" if choice.missing else "")
        return cls(Path(path).absolute(), choice.path, reason)

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of all that an engine is built from, as `EngineRecord.hashes`.

        Raises:
            NystraError: A file cannot be read, or the model refers to one outside its folder.
        """
        files = {"model": self.path}
        files |= {f"data {name}": file for name, file in external_files(self.path).items()}
        if self.library is not None:
            files["library"] = self.library
        return {name: file_sha256(file) for name, file in files.items()}
