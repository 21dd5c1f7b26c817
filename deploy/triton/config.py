"""``config.pbtxt``: what Triton needs to know about a model, in protobuf's text format."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ...core.errors import NystraError
from ...core.ports.port import Port
from ...runtime.model.model_facts import ModelFacts
from ...runtime.tasks.handler import AnswerTensor
from .options import TritonOptions

LABELS = "labels.txt"
_QUEUE_DELAY = 2000
_TYPES = {
    "bytes": "STRING",
    "bool": "BOOL",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
}


def quote(text: str) -> str:
    """Return a text between quotes, with octal escapes for all that is special or not printed."""
    letters = []
    for letter in text:
        if letter.isprintable() and letter not in '"\\':
            letters.append(letter)
        else:
            letters += [f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape")]
    return f'"{"".join(letters)}"'


def block(name: str, *fields: str) -> str:
    """Return a message with its fields, each a line or a message."""
    return f"{name} {{\n{textwrap.indent(chr(10).join(fields), '  ')}\n}}"


def head(name: str, options: TritonOptions, max_batch: int) -> list[str]:
    """Return what every configuration begins with."""
    kind = "KIND_GPU" if options.on_gpu else "KIND_CPU"
    return [
        f"name: {quote(name)}",
        f"backend: {quote(options.backend)}",
        f"max_batch_size: {max_batch}",
        "version_policy { latest { num_versions: 1 } }",
        f"instance_group {{ count: {options.instances} kind: {kind} }}",
    ]


def network_tensors(facts: ModelFacts, max_batch: int, *, labels: bool) -> list[str]:
    """Return the inputs and outputs of a network alone, with its batching.

    ``max_batch`` is 0 where the batch is a fixed number; ``labels``: there is a file of them.
    """
    fields = [_tensor("input", *_describe(port, max_batch)) for port in facts.inputs]
    for port in facts.outputs:
        labeled = labels and "classes" in port.axes
        fields.append(_tensor("output", *_describe(port, max_batch), labeled=labeled))
    if max_batch > 1:
        fields.append(f"dynamic_batching {{ max_queue_delay_microseconds: {_QUEUE_DELAY} }}")
    return fields


def file_tensors(facts: ModelFacts, answers: Sequence[AnswerTensor], *, labels: bool) -> list[str]:
    """Return the inputs and outputs of the python backend: files in, the arrays of an answer out.

    A request is one image, which nystra cuts into tiles and runs by itself. Nothing would be
    gained by batches of whole images.
    """
    fields = [_tensor("input", port.name, "TYPE_STRING", [1]) for port in facts.inputs]
    for tensor in answers:
        kind = f"TYPE_{_TYPES[tensor.dtype]}"
        labeled = labels and tensor.labeled
        fields.append(_tensor("output", tensor.name, kind, tensor.shape, labeled=labeled))
    return fields


def parameters(values: Mapping[str, object]) -> list[str]:
    """Return values as ``parameters``, which backends and clients read; None is left out."""
    fields = []
    for key, value in values.items():
        if value is not None:
            text = f"value {{ string_value: {quote(str(value))} }}"
            fields.append(block("parameters", f"key: {quote(key)}", text))
    return fields


def _describe(port: Port, max_batch: int) -> tuple[str, str, list[int]]:
    axes = port.axes[1:] if max_batch else port.axes
    return port.name, _data_type(port), [port.lengths.get(axis, -1) for axis in axes]


def _tensor(field: str, name: str, kind: str, dims: Sequence[int], *, labeled: bool = False) -> str:
    described = [f"name: {quote(name)}", f"data_type: {kind}", f"dims: {list(dims)}"]
    if labeled:
        described.append(f"label_filename: {quote(LABELS)}")
    return block(field, *described)


def _data_type(port: Port) -> str:
    if port.dtype not in _TYPES:
        types = ", ".join(_TYPES)
        raise NystraError(
            f"{port.name!r} is of {port.dtype}, a type that Triton does not have: expected {types}"
        )
    return f"TYPE_{_TYPES[port.dtype]}"
