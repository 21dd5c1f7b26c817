"""The network of an ONNX file, with a reference to the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from ...runtime.model.onnx_header import read_onnx_header
from .graph import read_graph
from .network import OnnxNetwork
from .operators.sizes import TYPES
from .reading import read_model


@dataclass(frozen=True)
class SourceFile:
    """The file that a network was read from; copies of the network share it.

    Attributes:
        path: The file.
        model: The whole model.
        notes: What was changed to read it, one sentence each.
    """

    path: Path
    model: onnx.ModelProto
    notes: tuple[str, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> SourceFile:
        """Return the same object."""
        return self


class FileNetwork(OnnxNetwork):
    """The network of a file.

    Attributes:
        source: The file.
        left: Why sites with exact attention keep the file's nodes, by path.
        pieces: Traced pieces by their mechanisms, so that the timed pieces are also those written.
    """

    def __init__(self, source: SourceFile) -> None:
        """Read the file's graph.

        Raises:
            UnsupportedModelError: A node has an attribute that is not read.
        """
        graph = source.model.graph
        declared = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        read = read_graph(graph)
        super().__init__(read, [TYPES[declared[name]] for name in read.inputs])
        self.source = source
        self.left: dict[str, str] = {}
        self.pieces: dict[str, onnx.ModelProto] = {}

    @property
    def replaces(self) -> bool:
        """Whether some of the file's nodes are replaced."""
        return any(path not in self.left for cut in self.cuts.values() for path in cut.sites)


def read_file(path: Path) -> FileNetwork:
    """Return the network of a file, without sites.

    Raises:
        NystraError: The file is damaged or hostile.
        UnsupportedModelError: A part of it is not supported.
    """
    read_onnx_header(path)
    network = FileNetwork(SourceFile(path, *read_model(path)))
    return network.eval().requires_grad_(requires_grad=False)
