"""Pads heads with channels of zeros, so that their rows are whole 16-byte words on a GPU.

Columns of zeros in the weights before an attention add zeros to q, k and v; the products of q and k
and the scale do not change, and the zeros of the output are multiplied by rows of zeros in the
projection. A head of 30 channels then takes 6.7 % more memory than it needs, and its rows are
copied 16 bytes at a time in place of 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from ...core.errors import UnsupportedModelError
from ...plugins.domain import DOMAIN
from ..execute.parts import all_names_read

_OPERATOR = "NystraWindow"


class _NotPaddedError(Exception):
    """Why a site cannot be padded, as half a sentence."""


def pad_heads(model: onnx.ModelProto, multiple: int) -> list[str]:
    """Pad the heads of every attention in windows, in place.

    Args:
        model: Traced and without bodies.
        multiple: Head sizes become multiples of it.

    Returns:
        A sentence on the padding; empty if all heads have such sizes already.

    Raises:
        UnsupportedModelError: There is no attention in windows, or the weights around one cannot
            be padded; the message names it. The model is unchanged.
    """
    graph = _Graph(model)
    sites = [node for node in model.graph.node if node.op_type.startswith(_OPERATOR)]
    if not any(node.domain == DOMAIN for node in sites):
        raise UnsupportedModelError(
            f"`pad_heads` {multiple} pads the heads of attention in windows, and there is none in "
            "the graph: omit it; see docs/gpu.md"
        )
    padded: Counter[tuple[int, int]] = Counter()
    for node in sites:
        sizes = _sizes(node)
        wanted = {name: -(-size // multiple) * multiple for name, size in sizes.items()}
        if wanted == sizes:
            continue
        try:
            graph.pad(node, sizes, wanted)
        except _NotPaddedError as why:
            raise UnsupportedModelError(
                f"`pad_heads` {multiple}: {node.name} has heads of {sizes['head_dim']} channels "
                f"that cannot be padded: {why}; omit it; see docs/gpu.md"
            ) from None
        padded[sizes["head_dim"], wanted["head_dim"]] += 1
    graph.apply()
    return [
        f"heads of {before} channels are padded to {after} for a GPU (sites: {count})"
        for (before, after), count in sorted(padded.items())
    ]


def _sizes(node: onnx.NodeProto) -> dict[str, int]:
    values = {attribute.name: attribute.i for attribute in node.attribute}
    return {name: values[name] for name in ("head_dim", "value_dim")}


@dataclass
class _Graph:
    model: onnx.ModelProto
    weights: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    attributes: list[tuple[onnx.NodeProto, dict[str, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.stored = {tensor.name: tensor for tensor in graph.initializer}
        self.producers = {name: node for node in graph.node for name in node.output}
        self.reads = [(node, all_names_read(node)) for node in graph.node]
        self.uses = Counter(name for _, names in self.reads for name in names)
        self.uses.update(value.name for value in graph.output)

    def pad(self, node: onnx.NodeProto, sizes: dict[str, int], wanted: dict[str, int]) -> None:
        heads = next(attribute.i for attribute in node.attribute if attribute.name == "heads")
        before = [*[sizes["head_dim"]] * (2 * heads), *[sizes["value_dim"]] * heads]
        after = [*[wanted["head_dim"]] * (2 * heads), *[wanted["value_dim"]] * heads]
        self._pad_source(node.input[0], before, after)
        if sizes["value_dim"] != wanted["value_dim"]:
            self._pad_projection(node.output[0], before[-heads:], after[-heads:])
        self.attributes.append((node, wanted))

    def apply(self) -> None:
        for name, array in self.weights.items():
            self.stored[name].CopyFrom(numpy_helper.from_array(array, name))
        for node, wanted in self.attributes:
            for attribute in node.attribute:
                if attribute.name in wanted:
                    attribute.i = wanted[attribute.name]

    def _pad_source(self, name: str, before: Sequence[int], after: Sequence[int]) -> None:
        node = self.producers.get(name)
        if node is None or self.uses[name] != 1:
            raise _NotPaddedError(
                "its input is used by other nodes too, or is an input of the graph"
            )
        if node.op_type == "MatMul":
            self._pad_weight(node.input[1], 1, before, after)
        elif node.op_type == "Add":
            bias = next((name for name in node.input if name in self.stored), None)
            if bias is None:
                raise _NotPaddedError("its input is a sum of two maps")
            self._pad_weight(bias, 0, before, after)
            (rest,) = (name for name in node.input if name != bias)
            self._pad_source(rest, before, after)
        elif node.op_type == "Concat":
            self._pad_parts(node, before, after)
        else:
            raise _NotPaddedError(f"a node of type {node.op_type} is between it and its weights")

    def _pad_parts(self, node: onnx.NodeProto, before: Sequence[int], after: Sequence[int]) -> None:
        first = 0
        for name in node.input:
            width, last = self._width(name), first
            while last < len(before) and width > 0:
                width -= before[last]
                last += 1
            if width != 0 or last == first:
                raise _NotPaddedError("its input is concatenated from parts of heads")
            self._pad_source(name, before[first:last], after[first:last])
            first = last
        if first != len(before):
            raise _NotPaddedError("its input is concatenated from parts of heads")

    def _width(self, name: str) -> int:
        node = self.producers.get(name)
        if node is not None and node.op_type in ("MatMul", "Add"):
            for weight in node.input:
                if weight in self.stored:
                    return int(self.stored[weight].dims[-1])
        return -1

    def _pad_projection(self, name: str, before: Sequence[int], after: Sequence[int]) -> None:
        readers = [node for node, names in self.reads if name in names]
        if self.uses[name] != 1 or [node.op_type for node in readers] != ["MatMul"]:
            kinds = ", ".join(node.op_type for node in readers) or "the output"
            raise _NotPaddedError(f"its output goes to {kinds}, expected one projection")
        (reader,) = readers
        if reader.input[0] != name:
            raise _NotPaddedError("its output is not the left factor of its projection")
        self._pad_weight(reader.input[1], 0, before, after)

    def _pad_weight(
        self, name: str, axis: int, before: Sequence[int], after: Sequence[int]
    ) -> None:
        """Plan zeros after each head along an axis of stored weights."""
        if name not in self.stored:
            raise _NotPaddedError("its weights are not constants")
        if self.uses[name] != 1:
            raise _NotPaddedError("its weights are used elsewhere too")
        array = numpy_helper.to_array(self.stored[name])
        if array.ndim <= axis or array.shape[axis] != sum(before):
            raise _NotPaddedError(
                f"the shape of its weights is {array.shape}, expected {sum(before)} channels"
            )
        parts = np.split(array, np.cumsum(before)[:-1], axis)
        padded = []
        for part, size in zip(parts, after, strict=True):
            widths = [(0, 0)] * array.ndim
            widths[axis] = (0, size - part.shape[axis])
            padded.append(np.pad(part, widths))
        self.weights[name] = np.concatenate(padded, axis)
