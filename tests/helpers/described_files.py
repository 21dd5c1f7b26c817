"""The files of an export as lines of text that are equal on every machine.

Measured numbers, weights, hashes and versions of tools appear by their kind only.
Everything else is compared: names, types, shapes, attributes, options, keys and their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

_HASH = re.compile(r"[0-9a-f]{64}")
_WEIGHTS = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.INT8,
    TensorProto.UINT8,
)
_MEASURED = ("validation", "items", "tolerances", "mean_tolerances", "tolerances_in")
_NAMED_ALONE = {  # key -> kind of its value
    "bytes": "measured",
    "nystra.psnr_vs_torch": "measured",
    "tools": "versions",
    "torch": "a version",
}


def describe(file: Path) -> list[str]:
    """Return the lines of a model file, of a JSON document or of references."""
    if file.suffix == ".onnx":
        return _model(onnx.load(file))
    if file.suffix == ".npz":
        return _references(file)
    return list(_document(json.loads(file.read_text(encoding="utf-8")), file.name))


def document_keys(file: Path) -> list[str]:
    """Return the path of every key of a JSON document; the items of a list share one path."""
    document = json.loads(file.read_text(encoding="utf-8"))
    lines = (line.partition(" = ")[0] for line in _document(document, ""))
    return sorted({re.sub(r"\[\d+\]", "[]", line) for line in lines})


def _model(model: onnx.ModelProto) -> list[str]:
    lines = list(_document({entry.key: entry.value for entry in model.metadata_props}, "metadata"))
    del model.metadata_props[:]
    for tensor in list(model.graph.initializer):
        if tensor.data_type in _WEIGHTS:
            kind = TensorProto.DataType.Name(tensor.data_type)
            lines.append(f"{tensor.name} = {kind} {list(tensor.dims)}")
            model.graph.initializer.remove(tensor)
    return [*lines, *onnx.printer.to_text(model).splitlines()]


def _references(file: Path) -> list[str]:
    lines: list[str] = []
    with np.load(file, allow_pickle=False) as arrays:
        for name, array in arrays.items():
            if name == "meta":
                lines += _document(json.loads(array.tobytes()), name)
            else:
                lines.append(f"{name} = {array.dtype} {array.shape}")
    return lines


def _document(value: Any, place: str, measured: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        yield f"{place} = {{{', '.join(value)}}}"
        for key, item in value.items():
            if key in _NAMED_ALONE:
                yield f"{place}.{key} = {_NAMED_ALONE[key]}"
            else:
                yield from _document(item, f"{place}.{key}", measured or key in _MEASURED)
    elif isinstance(value, list):
        yield f"{place} = {len(value)} items"
        for index, item in enumerate(value):
            yield from _document(item, f"{place}[{index}]", measured)
    elif measured and isinstance(value, float):
        yield f"{place} = measured"
    else:
        yield f"{place} = {_HASH.sub('SHA-256', json.dumps(value))}"
