"""The nodes and data files of a model file, read without onnx or onnxruntime.

Field numbers of onnx.proto: ``ModelProto.graph`` 7; ``GraphProto.node`` 1, ``.initializer`` 5;
``NodeProto.name`` 3, ``.op_type`` 4, ``.domain`` 7; ``TensorProto.external_data`` 13.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .onnx_header import message_fields, message_strings, read_onnx_header

_GRAPH, _NODE, _INITIALIZER, _EXTERNAL_DATA = 7, 1, 5, 13
_NAME, _OP_TYPE, _DOMAIN = 3, 4, 7


def count_nodes(path: str | os.PathLike[str]) -> int:
    """Return the number of nodes in the main graph of a model file.

    Nodes inside function bodies and inside the branches of If, Loop and Scan are not counted:
    it is the number nystra-export reports.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with graph_items(path, _NODE) as (_, nodes):
        return sum(1 for _ in nodes)


def domain_nodes(path: str | os.PathLike[str], domain: str) -> list[tuple[str, str]]:
    """Return (name, operator) of every node of an operator domain in the main graph.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    wanted = (_NAME, _OP_TYPE, _DOMAIN)
    with graph_items(path, _NODE) as (data, nodes):
        texts = [message_strings(data, span, wanted) for span in nodes]
    found = [one for one in texts if one.get(_DOMAIN, "") == domain]
    return [(one.get(_NAME, ""), one.get(_OP_TYPE, "")) for one in found]


def external_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the data files beside a model file that its weights lie in, in order of their names.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    locations = set()
    with graph_items(path, _INITIALIZER) as (data, tensors):
        for span in tensors:
            for number, value in message_fields(data, *span):
                if number == _EXTERNAL_DATA and isinstance(value, tuple):
                    entry = message_strings(data, value)
                    if entry.get(1) == "location":
                        locations.add(entry.get(2, ""))
    return [Path(path).parent / name for name in sorted(locations)]


@contextmanager
def graph_items(
    path: str | os.PathLike[str], kind: int
) -> Iterator[tuple[mmap.mmap, Iterator[tuple[int, int]]]]:
    """Yield the file's bytes and where the messages of one field of its graph are."""
    read_onnx_header(path)
    with (
        Path(path).open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield (
            data,
            (
                span
                for number, graph in message_fields(data, 0, len(data))
                if number == _GRAPH and isinstance(graph, tuple)
                for field, span in message_fields(data, *graph)
                if field == kind and isinstance(span, tuple)
            ),
        )
