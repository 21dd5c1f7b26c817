"""Paths of attention: of the modules that nodes come from, as far as a file says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from ..tracing.tidy import SCOPES

_NO_PATH = "attention"
_LONGEST_LISTING = 4000
_INNER = ("softmax", "dropout", "identity")
"""Beginnings of the names of modules inside of attention."""


def unique_paths(paths: Sequence[str]) -> list[str]:
    """Return paths, with a number appended to those that occur several times."""
    times = Counter(paths)
    seen = Counter[str]()
    unique = []
    for path in paths:
        name = path or _NO_PATH
        if times[path] > 1 or not path:
            name = f"{name}.attention_{seen[path]}"
            seen[path] += 1
        unique.append(name)
    return unique


def module_path(node: ir.Node) -> str:
    """Return the path of the innermost module of the network that a node comes from.

    Exports by TorchScript name a node ``/layers.0/blocks.1/attn/MatMul``; those by
    ``torch.export`` list the modules.
    """
    parts = _module(node).split(".")
    while len(parts) > 1 and parts[-1].lower().startswith(_INNER):
        parts.pop()
    return ".".join(parts)


def _module(node: ir.Node) -> str:
    listing = node.metadata_props.get(SCOPES, "")
    scopes: list[str] = re.findall(r"'([^']*)'", listing[:_LONGEST_LISTING])
    if scopes:
        outer = reversed(scopes[:-1])
        return next(filter(None, outer), _NO_PATH)
    parts: list[str] = []
    names = (node.name or "").split("/")
    for part in names[1:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts) or _NO_PATH
