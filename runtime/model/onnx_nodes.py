"""The nodes of a model file, read without onnx or onnxruntime.

Field numbers of onnx.proto: ``ModelProto.graph`` 7; ``GraphProto.node`` 1; ``NodeProto.name`` 3,
``.op_type`` 4, ``.domain`` 7.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from .external_data import messages
from .onnx_header import message_fields, message_strings, opened_model

_GRAPH, _NODE = 7, 1
_NAME, _OP_TYPE, _DOMAIN = 3, 4, 7


def count_nodes(path: str | os.PathLike[str]) -> int:
    """Return the number of nodes in the main graph of a model file.

    Nodes inside function bodies and inside the branches of If, Loop and Scan are not counted, as in
    the number that nystra-export reports.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with opened_model(path) as data:
        return sum(1 for _ in graph_spans(data, _NODE))


def domain_nodes(path: str | os.PathLike[str], domain: str) -> list[tuple[str, str]]:
    """Return (name, operator) of every node of an operator domain in the main graph.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    wanted = (_NAME, _OP_TYPE, _DOMAIN)
    with opened_model(path) as data:
        nodes = [message_strings(data, span, wanted) for span in graph_spans(data, _NODE)]
    return [
        (node.get(_NAME, ""), node.get(_OP_TYPE, ""))
        for node in nodes
        if node.get(_DOMAIN, "") == domain
    ]


def has_node(path: str | os.PathLike[str], operator: str) -> bool:
    """Whether a node of an operator is in the main graph of a model file.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with opened_model(path) as data:
        nodes = (message_strings(data, span, (_OP_TYPE,)) for span in graph_spans(data, _NODE))
        return any(node.get(_OP_TYPE) == operator for node in nodes)


def has_node_anywhere(path: str | os.PathLike[str], operator: str) -> bool:
    """Whether a node of an operator is in a model file, also in branches and functions.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with opened_model(path) as data:
        nodes = (message_strings(data, span, (_OP_TYPE,)) for span in messages(data, "node"))
        return any(node.get(_OP_TYPE) == operator for node in nodes)


def graph_spans(data: mmap.mmap, kind: int) -> Iterator[tuple[int, int]]:
    """Yield where the messages of one field of the main graph are.

    Args:
        data: The result of `opened_model`.
        kind: Number of the field of ``GraphProto``.
    """
    for number, graph in message_fields(data, 0, len(data)):
        if number == _GRAPH and isinstance(graph, tuple):
            for field, span in message_fields(data, *graph):
                if field == kind and isinstance(span, tuple):
                    yield span
