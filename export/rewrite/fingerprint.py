"""What two replacements of equal layers have in common: everything but their weights."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import onnx_ir as ir

from ...core.arrays import Array
from ..execute.parts import is_held, names_read
from ..execute.sized import Sized
from .replacement import Replacement


def fingerprint(item: Replacement, sizes: Sequence[Sized]) -> bytes:
    """Return what a replacement's check depends on, as a digest.

    These are the nodes on both sides with their attributes, how they are connected, shapes, sites,
    and all constants except the elements of floating-point tensors.
    """
    tables = [tensor.shape for site in item.sites.values() for tensor in site.parameters()]
    digest = hashlib.sha256(repr((item.form, item.type, tables)).encode())
    numbers: dict[ir.Value, int] = {}
    for value in item.inputs:
        numbers[value] = len(numbers)
        if str(value.name) in item.fixed:
            for sized in sizes:
                digest.update(_described(sized.held(value).numpy()))
    for node in (*item.own, None, *item.nodes):
        if node is None:  # the new nodes begin
            digest.update(b"|")
            continue
        digest.update(f"{node.domain}:{node.op_type}".encode())
        for name, attribute in sorted(node.attributes.items()):
            digest.update(
                name.encode() + ir.serde.serialize_attribute(attribute).SerializeToString()
            )
        for value in [*node.inputs, None, *names_read(node)]:
            held = value.const_value if value is not None and is_held(value) else None
            if held is not None and value not in numbers:
                digest.update(_described(held.numpy()))
            else:
                digest.update(repr(None if value is None else numbers.get(value)).encode())
        numbers |= {value: len(numbers) + at for at, value in enumerate(node.outputs)}
    digest.update(repr(numbers[item.output]).encode())
    return digest.digest()


def _described(array: Array) -> bytes:
    """Return the type and shape of a constant, and its elements unless they are weights."""
    told = array.dtype.kind != "f" or array.size == 1
    return repr((array.dtype.str, array.shape)).encode() + (array.tobytes() if told else b"")
