"""Names of values: of lists of them, and of what nodes read and compute."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from .parts import find_reads


def list_names(values: Iterable[ir.Value | None]) -> list[str]:
    """Return the names of values; those without one are left out."""
    return [str(value.name) for value in values if value is not None and value.name]


def find_result_names(nodes: Iterable[ir.Node]) -> set[str]:
    """Return the names of the values that nodes compute."""
    names = set[str]()
    for node in nodes:
        names.update(list_names(node.outputs))
    return names


def find_read_names(nodes: Iterable[ir.Node]) -> set[str]:
    """Return the names of the values that nodes and their subgraphs read."""
    names = set[str]()
    for node in nodes:
        names.update(list_names(find_reads(node)))
    return names
