"""What a graph was made from, which computes exact attention: a file, or a PyTorch network."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor, nn

from ...core.arrays import Array
from ...core.errors import UnsupportedModelError, foreign_text
from ...core.ports.port import Shape
from ...runtime.ort_values import OrtValue, copy_from_ort, copy_to_ort
from ..execute.names import list_names
from ..execute.parts import open_session
from ..rounding.widening import has_half

_BFLOAT16 = onnx.TensorProto.BFLOAT16
_Computed = tuple[list[OrtValue], tuple[Tensor, ...]]


class GraphSource:
    """A graph and what it was made from; copies of a network share it.

    Attributes:
        path: The file of the network.
        graph_model: The graph, of an opset that nodes are written for.
        raised: The model of that opset if its file has another one, or None.
        is_converted: Whether that opset was asked for, so that it is written in any case.
        title: What computes exact attention, for messages.
        own: The source as what a file is timed against, for messages.
        model: The whole model, as it was read or traced.
        is_half: Whether the graph has values of half precision.
    """

    path: Path
    graph_model: ir.Model
    raised: onnx.ModelProto | None = None
    is_converted: bool = False
    title: ClassVar[str]
    own: ClassVar[str]
    model: Any
    is_half: Any

    def compute(self, images: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs with the attention of the source."""
        raise NotImplementedError

    def count_weights(self) -> int:
        """Return its number of weights; of a file, all of its constants."""
        initializers = self.graph_model.graph.initializers.values()
        return sum(value.const_value.size for value in initializers if value.const_value)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphSource:
        return self


@dataclass
class FileSource(GraphSource):
    """An ONNX file; its attributes are those of `GraphSource`."""

    path: Path
    model: onnx.ModelProto
    graph_model: ir.Model
    raised: onnx.ModelProto | None = None
    is_converted: bool = False
    title = "the file"
    own = "the original file"
    _last: _Computed | None = field(default=None, init=False)

    @cached_property
    def is_half(self) -> bool:
        """Whether the file has values of half precision."""
        return has_half(self.model)

    @cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        return open_session(self.model)

    def compute(self, images: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the file for its inputs, float32.

        Raises:
            UnsupportedModelError: onnxruntime cannot compute the file.
        """
        inputs = inputs_of(self.graph_model)
        kinds = map(kind_of, inputs)
        feeds = [as_value(image, kind) for image, kind in zip(images, kinds, strict=True)]
        if self._last is not None and all(map(_same, self._last[0], feeds)):
            return self._last[1]  # an export asks for it several times
        names = list_names(inputs)
        try:
            named_feeds = dict(zip(names, feeds, strict=True))
            values = self._session.run_with_ort_values(None, named_feeds)
        except Exception as error:  # onnxruntime raises errors of several kinds
            reason = foreign_text(error).strip().partition("\n")[0]
            raise UnsupportedModelError(f"{self.path} cannot be computed: {reason}") from error
        outputs = tuple(as_tensor(value) for value in values)
        self._last = feeds, outputs
        return outputs


@dataclass
class ModuleSource(GraphSource):
    """A PyTorch network and its plain graph; its attributes are those of `GraphSource`.

    Attributes:
        module: The network, in float32.
    """

    path: Path
    module: nn.Module
    graph_model: ir.Model
    is_half = False
    title = "the network"
    own = "the network with its own attention"
    _others: dict[Any, nn.Module] = field(default_factory=dict, init=False)

    @property
    def model(self) -> onnx.ModelProto:
        """The graph as a model."""
        proto: onnx.ModelProto = ir.to_proto(self.graph_model)
        return proto

    def compute(self, images: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the network, computed where and in the type that its inputs are."""
        first = images[0]
        key = first.device, first.dtype
        network = self.module
        if key != (torch.device("cpu"), torch.float32):
            if key not in self._others:
                self._others[key] = copy.deepcopy(self.module).to(*key)
            network = self._others[key]
        outputs = network(*images)
        if isinstance(outputs, tuple):
            return outputs
        return (outputs,)

    def count_weights(self) -> int:
        """Return the number of the network's parameters."""
        return sum(tensor.numel() for tensor in self.module.parameters())


def inputs_of(model: ir.Model) -> list[ir.Value]:
    """Return the inputs of a model that are no constants."""
    return [value for value in model.graph.inputs if not value.is_initializer()]


def kind_of(value: ir.Value) -> int:
    """Return the type of an input, as ONNX numbers it."""
    return int(value.dtype or ir.DataType.FLOAT)


def make_zero_inputs(model: ir.Model, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """Return zeros of the type of each input that has a shape."""
    feeds = {}
    for value in inputs_of(model):
        name = str(value.name)
        if name in shapes:
            dtype = ir.DataType(kind_of(value)).numpy()
            feeds[name] = np.zeros(shapes[name], dtype)
    return feeds


def as_value(tensor: Tensor, kind: int) -> OrtValue:
    """Return a tensor as onnxruntime takes it, in a type as ONNX numbers it."""
    if kind == _BFLOAT16:
        bits = tensor.detach().bfloat16().view(torch.int16)
        array = bits.numpy().view(np.uint16)
        return copy_to_ort(array, kind)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    array = tensor.detach().numpy()
    return copy_to_ort(array.astype(dtype, copy=False))


def as_tensor(value: OrtValue) -> Tensor:
    """Return a result of onnxruntime; half precision as float32."""
    tensor = torch.from_numpy(copy_from_ort(value))
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float()
    return tensor


def _same(one: OrtValue, other: OrtValue) -> bool:
    if one.element_type() != other.element_type() or one.shape() != other.shape():
        return False
    if one.element_type() == _BFLOAT16:
        return False
    return bool(np.array_equal(copy_from_ort(one), copy_from_ort(other)))
