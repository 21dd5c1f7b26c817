"""Exports of today equal the kept files of this version.

Where that was meant to change before the version is released, its files are written again as
RELEASING.md says. Those of released versions never change.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from exported_files import swinir_files
from native_nodes import library
from nystra import __version__
from nystra.export.validate.model_file import tool_versions
from processor import require_exact_int8
from write_files import FILES, write_files

KEPT = Path(__file__).parent / __version__
WITH_EVERY_CHANGE = ("cluster", "int8", "patches")

pytestmark = pytest.mark.skipif(
    not KEPT.exists(), reason=f"the files of {__version__} are written before its release"
)


def differences(kept: Path, written: Path) -> str:
    """Return the lines in which two files differ, the first of them if there are many."""
    lines = difflib.unified_diff(describe(kept), describe(written), lineterm="", n=0)
    return "\n".join(list(lines)[:20])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.full if name in WITH_EVERY_CHANGE else pytest.mark.release
        )
        for name in FILES
    ],
)
def test_an_export_writes_what_is_kept(name: str, tmp_path: Path) -> None:
    library()
    if name == "int8":
        require_exact_int8()
    write_files(tmp_path / "written", [name])
    written = sorted((tmp_path / "written").iterdir())
    beside = {f"{name}{end}" for end in (".onnx", ".npz", ".json", ".plan.json", ".baseline.json")}
    assert [file.name for file in written] == sorted(
        file.name for file in KEPT.iterdir() if file.name in beside
    )
    for file in written:
        if file.suffix != ".onnx" or traced_alike(KEPT / f"{name}.json"):
            assert not differences(KEPT / file.name, file)


def traced_alike(manifest: Path) -> bool:
    """Whether a file was traced by the installed versions of PyTorch and onnxscript."""
    tools = json.loads(manifest.read_text(encoding="utf-8"))["tools"]
    return all(tools[name] == tool_versions()[name] for name in ("torch", "onnxscript"))


@pytest.mark.parametrize("suffix", [".json", ".plan.json"])
def test_a_document_has_the_keys_that_are_kept(
    suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The export that many tests read has the mechanism of the kept one."""
    written = document_keys(swinir_files(tmp_path_factory) / f"model{suffix}")
    kept = document_keys(KEPT / f"nystra{suffix}")
    assert [key.replace(".model.", ".nystra.") for key in written] == kept


def rename_key(document: dict[str, Any]) -> None:
    document["facts"]["size_least"] = document["facts"].pop("size_minimum")


def change_fact(document: dict[str, Any]) -> None:
    document["facts"]["window"] = [8, 8]


def change_default(document: dict[str, Any]) -> None:
    document["plan"]["default"]["rounds"] = 3


@pytest.mark.parametrize("change", [rename_key, change_fact, change_default])
def test_a_changed_document_is_noticed(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    kept, changed = KEPT / "cluster.json", tmp_path / "cluster.json"
    document = json.loads(kept.read_text(encoding="utf-8"))
    changed.write_text(json.dumps(document), encoding="utf-8")
    assert not differences(kept, changed)
    change(document)
    changed.write_text(json.dumps(document), encoding="utf-8")
    assert differences(kept, changed)


def change_metadata(model: onnx.ModelProto) -> None:
    model.metadata_props[0].value += "2"


def change_operator(model: onnx.ModelProto) -> None:
    model.graph.node[-1].op_type = "Identity"


def change_attribute(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.domain == "nystra")
    next(one for one in node.attribute if one.name == "block").i += 1


def change_body(model: onnx.ModelProto) -> None:
    model.functions[0].node[-1].op_type = "Identity"


def change_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version += 1


def change_type(model: onnx.ModelProto) -> None:
    weight = model.graph.initializer[0]
    values = onnx.numpy_helper.to_array(weight).astype(np.float16)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))


def change_integer(model: onnx.ModelProto) -> None:
    constant = next(one for one in model.graph.initializer if one.data_type == 7)
    values = onnx.numpy_helper.to_array(constant) + 1
    constant.CopyFrom(onnx.numpy_helper.from_array(np.asarray(values), constant.name))


@pytest.mark.parametrize(
    "change",
    [
        change_metadata,
        change_operator,
        change_attribute,
        change_body,
        change_opset,
        change_type,
        change_integer,
    ],
)
def test_a_changed_model_is_noticed(
    change: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    model = onnx.load(KEPT / "cluster.onnx")
    change(model)
    onnx.save(model, tmp_path / "cluster.onnx")
    assert differences(KEPT / "cluster.onnx", tmp_path / "cluster.onnx")


def test_other_weights_are_not_a_difference(tmp_path: Path) -> None:
    """Random weights may differ between machines."""
    model = onnx.load(KEPT / "cluster.onnx")
    weight = model.graph.initializer[0]
    values = onnx.numpy_helper.to_array(weight) * np.float32(1.001)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / "cluster.onnx")
    assert not differences(KEPT / "cluster.onnx", tmp_path / "cluster.onnx")


def test_references_of_another_shape_are_noticed(tmp_path: Path) -> None:
    shutil.copy(KEPT / "full.npz", tmp_path)
    with np.load(tmp_path / "full.npz") as arrays:
        changed = {
            name: array[..., :-1] if name != "meta" else array for name, array in arrays.items()
        }
    np.savez(tmp_path / "full.npz", **changed)
    assert differences(KEPT / "full.npz", tmp_path / "full.npz")


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
    _rename(model.graph)
    lines = list(_document({entry.key: entry.value for entry in model.metadata_props}, "metadata"))
    del model.metadata_props[:]
    for tensor in list(model.graph.initializer):
        if tensor.data_type in _WEIGHTS:
            kind = TensorProto.DataType.Name(tensor.data_type)
            lines.append(f"{tensor.name} = {kind} {list(tensor.dims)}")
            model.graph.initializer.remove(tensor)
    return [*lines, *onnx.printer.to_text(model).splitlines()]


def _rename(graph: onnx.GraphProto) -> None:
    """Number what has no name in the network: PyTorch names it, differently by how it traces."""
    told = {value.name for value in (*graph.input, *graph.output)}
    names: dict[str, str] = {}
    for node in graph.node:
        if node.domain != "nystra":
            node.name = ""
        for held in (*node.input, *node.output):
            if held and held not in told and (held in node.output or "." not in held):
                names.setdefault(held, f"value_{len(names)}")
        for part in (node.input, node.output):
            part[:] = [names.get(held, held) for held in part]
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    ordered = sorted(graph.initializer, key=lambda tensor: tensor.name)
    del graph.initializer[:]
    graph.initializer.extend(ordered)


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
