"""A model file with its functions inlined, without onnx: for programs without functions.

Field numbers of onnx.proto: ``ModelProto`` graph 7, opset_import 8, functions 25; ``FunctionProto``
name 1, input 4, output 5, node 7, domain 10, attribute_proto 11; ``NodeProto`` input 1, output 2,
name 3, op_type 4, attribute 5, domain 7; ``AttributeProto`` name 1, g 6, ref_attr_name 21;
``GraphProto`` node 1, initializer 5, input 11, output 12, value_info 13; ``TensorProto`` name 8.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from ...core.errors import NystraError
from .external_data import external_files
from .onnx_header import BYTES, fields, message, open_model

_MAX_DEPTH = 3
"""Calls of functions within functions; nystra writes two."""

_Field = tuple[int, int, bytes]
"""Number, kind and value of a field; of a number its own bytes."""


def inline_model(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a model file with every call of a function replaced by its body.

    Raises:
        NystraError: The file is missing, not ONNX or truncated, has weights in a data file, or
            functions that call each other more deeply than nystra writes them.
    """
    if external_files(path):
        raise NystraError(
            f"{path} has its weights in a data file, and its operators' bodies cannot be inlined "
            "then: export it with `inline`"
        )
    with open_model(path) as data:
        model = list(_fields(data[:]))
    functions = {}
    for number, _, value in model:
        if number == 25:
            function = _Function.read(value)
            functions[function.domain, function.name] = function
    called = [[domain] for domain, _ in functions]
    parts: list[_Field] = []
    for number, kind, value in model:
        if number == 7:
            value = _inline_graph(value, functions)
        if number == 25 or (number == 8 and _texts(value, 1)[:1] in called):
            continue
        parts.append((number, kind, value))
    return message(parts)


@dataclass
class _Function:
    name: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nodes: list[bytes] = field(default_factory=list)
    defaults: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, content: bytes) -> _Function:
        function = cls(_texts(content, 1)[0], _texts(content, 10)[0])
        function.inputs, function.outputs = _texts(content, 4), _texts(content, 5)
        function.nodes = [value for number, _, value in _fields(content) if number == 7]
        function.defaults = {
            _texts(value, 1)[0]: value for number, _, value in _fields(content) if number == 11
        }
        return function


def _inline_graph(content: bytes, functions: dict[tuple[str, str], _Function]) -> bytes:
    parts: list[_Field] = []
    for number, kind, value in _fields(content):
        if number != 1:
            parts.append((number, kind, value))
            continue
        parts += [(1, BYTES, node) for node in _inline_node(value, functions)]
    return message(parts)


def _inline_node(
    content: bytes, functions: dict[tuple[str, str], _Function], depth: int = 0
) -> list[bytes]:
    """Return the nodes of the body that a node calls, or the node."""
    domain, operator = (_texts(content, number) for number in (7, 4))
    function = functions.get(("".join(domain), "".join(operator)))
    if function is None:
        return [content]
    if depth == _MAX_DEPTH:
        raise NystraError(
            f"its functions call each other more than {_MAX_DEPTH} deep: export it with `inline`"
        )
    nodes: list[bytes] = []
    for node in _body(content, function):
        nodes += _inline_node(node, functions, depth + 1)
    return nodes


def _body(call: bytes, function: _Function) -> list[bytes]:
    inputs, outputs = _texts(call, 1), _texts(call, 2)
    inputs += [""] * (len(function.inputs) - len(inputs))
    names = dict(zip(function.inputs, inputs, strict=False))
    names |= dict(zip(function.outputs, outputs, strict=False))
    attributes = function.defaults | {
        _texts(value, 1)[0]: value for number, _, value in _fields(call) if number == 5
    }

    def rename(name: str) -> str:
        return names.get(name, f"{outputs[0]}/{name}" if name else "")

    return [_rename_node(node, rename, attributes) for node in function.nodes]


def _rename_node(
    content: bytes, rename: Callable[[str], str], attributes: dict[str, bytes]
) -> bytes:
    parts: list[_Field] = []
    for number, kind, value in _fields(content):
        if number in (1, 2, 3):
            value = rename(value.decode()).encode()
        elif number == 5:
            value = _attribute(value, rename, attributes)
        parts.append((number, kind, value))
    return message(parts)


def _attribute(content: bytes, rename: Callable[[str], str], attributes: dict[str, bytes]) -> bytes:
    """Return an attribute of a node in a body: that of the call where it refers to one."""
    referred = _texts(content, 21)
    if referred and referred[0]:
        own = [(1, BYTES, _texts(content, 1)[0].encode())]
        return message(own + [part for part in _fields(attributes[referred[0]]) if part[0] != 1])
    parts: list[_Field] = []
    for number, kind, value in _fields(content):
        if number == 6:
            value = _rename_graph(value, rename, attributes)
        parts.append((number, kind, value))
    return message(parts)


def _rename_graph(
    content: bytes, rename: Callable[[str], str], attributes: dict[str, bytes]
) -> bytes:
    named = {5: 8, 11: 1, 12: 1, 13: 1}
    parts: list[_Field] = []
    for number, kind, value in _fields(content):
        if number == 1:
            value = _rename_node(value, rename, attributes)
        elif number in named:
            value = message(
                [
                    (
                        part,
                        wire_type,
                        rename(text.decode()).encode() if part == named[number] else text,
                    )
                    for part, wire_type, text in _fields(value)
                ]
            )
        parts.append((number, kind, value))
    return message(parts)


def _fields(content: bytes) -> list[_Field]:
    return [(number, kind, content[start:end]) for number, kind, start, end in fields(content)]


def _texts(content: bytes, field: int) -> list[str]:
    return [value.decode() for number, _, value in _fields(content) if number == field]
