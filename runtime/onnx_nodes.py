"""How many nodes the graph of a model file has, read without onnx or onnxruntime."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from .onnx_header import message_fields, read_onnx_header

_GRAPH, _NODE = 7, 1


def count_nodes(path: str | os.PathLike[str]) -> int:
    """Return the number of nodes in the main graph of a model file.

    Nodes inside function bodies and inside the branches of If, Loop and Scan are not counted:
    it is the number nystra-export reports. Field numbers of onnx.proto: ``ModelProto.graph`` 7,
    ``GraphProto.node`` 1.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    read_onnx_header(path)
    with (
        Path(path).open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        graphs = [span for number, span in message_fields(data, 0, len(data)) if number == _GRAPH]
        return sum(
            number == _NODE
            for span in graphs
            if isinstance(span, tuple)
            for number, _ in message_fields(data, *span)
        )
