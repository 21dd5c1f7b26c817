"""``config.pbtxt``: what Triton needs to know about a model, from the model's ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import NystraError
from ...core.metadata import ModelMetadata, key_of
from ...core.ports.port import SIDES, Port
from ...runtime.model.model_facts import ModelFacts
from ...runtime.tasks.handler import AnswerTensor
from .options import TritonOptions
from .text_format import Symbol

LABELS = "labels.txt"
WARM_UP_IMAGE = "image"
"""Name of the server's warm-up image; Triton looks for it in the folder ``warmup``."""

WARM_UP_SIDE = 64
"""Smallest height and width of the server's warm-up image, in pixels."""

_QUEUE_DELAY = 2000
_TYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}
_KEPT = ("architecture", "scale", "license", "version", "task", "precision")


def tensor_config(
    name: str, facts: ModelFacts, options: TritonOptions, max_batch: int, *, labels: bool
) -> dict[str, Any]:
    """Return the configuration of a backend that is given tensors: the network alone.

    Args:
        name: Name of the model on the server.
        facts: Facts of the model file.
        options: The options.
        max_batch: Images that run at once; 0 where the batch is a fixed number.
        labels: There is a file of labels.
    """
    config = _head(name, options, max_batch)
    config["input"] = [_tensor(port, max_batch) for port in facts.inputs]
    config["output"] = [_tensor(port, max_batch, labels=labels) for port in facts.outputs]
    config |= _instances(options)
    if max_batch > 1:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": _QUEUE_DELAY}
    side = warm_up_side(facts)
    config["model_warmup"] = [
        {
            "name": "gray image",
            "batch_size": 1 if max_batch else 0,
            "inputs": [
                {"key": port.name, "value": _zeros(port, max_batch, side)} for port in facts.inputs
            ],
        }
    ]
    return config


def file_config(
    name: str,
    facts: ModelFacts,
    tensors: Sequence[AnswerTensor],
    options: TritonOptions,
    *,
    labels: bool,
) -> dict[str, Any]:
    """Return the configuration of the python backend: files in, the arrays of an answer out.

    A request is one image, which nystra cuts into tiles and runs by itself. Nothing would be
    gained by batches of whole images.

    Args:
        name: Name of the model on the server.
        facts: Facts of the model file.
        tensors: Tensors of its answers.
        options: The options.
        labels: There is a file of labels.
    """
    config = _head(name, options, 0)
    config["input"] = [_file(port) for port in facts.inputs]
    config["output"] = [_answer_tensor(tensor, labels=labels) for tensor in tensors]
    config |= _instances(options)
    image = facts.inputs[0].name
    value = {"data_type": Symbol("TYPE_STRING"), "dims": [1], "input_data_file": WARM_UP_IMAGE}
    if len(facts.inputs) == 1:
        warm_up = {"name": "gray image", "inputs": [{"key": image, "value": value}]}
        config["model_warmup"] = [warm_up]
    return config


def takes_batches(facts: ModelFacts) -> bool:
    """Return whether a model runs any number of images at once."""
    ports = (*facts.inputs, *facts.outputs)
    return all(port.axes[:1] == ("batch",) and "batch" not in port.lengths for port in ports)


def parameters(values: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return values as ``parameters``, which backends and clients read; None is left out."""
    return [
        {"key": key, "value": {"string_value": str(value)}}
        for key, value in values.items()
        if value is not None
    ]


def kept_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a model file that clients may need, as far as it is of nystra's form.

    Raises:
        NystraError: An entry cannot be read.
    """
    read = ModelMetadata.read(metadata).entries()
    return {key: read[key] for key in map(key_of, _KEPT) if key in metadata and key in read}


def warm_up_side(facts: ModelFacts) -> int:
    """Return height and width of the image to warm up with, where the model leaves them free."""
    image = facts.inputs[0]
    minimum = max(WARM_UP_SIDE, facts.size_minimum)
    return -(-minimum // image.multiple) * image.multiple


def _head(name: str, options: TritonOptions, max_batch: int) -> dict[str, Any]:
    return {
        "name": name,
        "backend": options.backend,
        "max_batch_size": max_batch,
        "version_policy": {"latest": {"num_versions": 1}},
    }


def _instances(options: TritonOptions) -> dict[str, Any]:
    kind = Symbol("KIND_GPU" if options.on_gpu else "KIND_CPU")
    return {"instance_group": [{"count": options.instances, "kind": kind}]}


def _tensor(port: Port, max_batch: int, *, labels: bool = False) -> dict[str, Any]:
    kind = _data_type(port)
    axes = _axes(port, max_batch)
    dims = [port.lengths.get(axis, -1) for axis in axes]
    tensor: dict[str, Any] = {"name": port.name, "data_type": kind, "dims": dims}
    if labels and "classes" in port.axes:
        tensor["label_filename"] = LABELS
    return tensor


def _zeros(port: Port, max_batch: int, side: int) -> dict[str, Any]:
    shape = port.shape(dict.fromkeys(SIDES, side) | dict(port.lengths))
    dims = [
        length
        for axis, length in zip(port.axes, shape, strict=True)
        if axis in _axes(port, max_batch)
    ]
    return {"data_type": _data_type(port), "dims": dims, "zero_data": True}


def _axes(port: Port, max_batch: int) -> Sequence[str]:
    return port.axes[1:] if max_batch else port.axes


def _data_type(port: Port) -> Symbol:
    if port.dtype not in _TYPES:
        known = ", ".join(_TYPES)
        raise NystraError(
            f"{port.name!r} is of {port.dtype}, a type that Triton does not have: expected {known}"
        )
    return Symbol(f"TYPE_{_TYPES[port.dtype]}")


def _answer_tensor(tensor: AnswerTensor, *, labels: bool) -> dict[str, Any]:
    kind = "STRING" if tensor.dtype == "bytes" else _TYPES[tensor.dtype]
    config: dict[str, Any] = {
        "name": tensor.name,
        "data_type": Symbol(f"TYPE_{kind}"),
        "dims": list(tensor.shape),
    }
    if labels and tensor.labeled:
        config["label_filename"] = LABELS
    return config


def _file(port: Port) -> dict[str, Any]:
    return {"name": port.name, "data_type": Symbol("TYPE_STRING"), "dims": [1]}
