"""The timing of a file's own attention against nodes of nystra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor

from ...models.facts import Facts
from ..attention.mechanism import Mechanism
from ..execute.parts import part_model, parts_between
from ..paying import SIDE, Piece, Timed
from .file_network import FileNetwork
from .replacement import Replacement
from .written import attach_fitting_bodies, planned_replacement, rewritten

_HALF = (onnx.TensorProto.BFLOAT16,)


@dataclass
class FilePieces:
    """The parts of a file that have replacements; a `Replaceable`.

    Attributes:
        network: The network of the file, which records unchanged sites.
        facts: Its facts.
        resolved: Mechanism of every site.
        source: Name of the network.
        is_written: True, since the file exists.
    """

    network: FileNetwork
    facts: Facts
    resolved: Mapping[str, Mechanism]
    source: str = field(default="the file", init=False)
    is_written: bool = field(default=True, init=False)

    @property
    def left(self) -> dict[str, str]:
        """Why sites are not replaced."""
        return self.network.left

    def pieces(self, paths: set[str]) -> list[Piece]:
        """Return the pieces all of whose sites are among the paths."""
        items = [item for item in self.network.replacements if paths.issuperset(item.sites)]
        return [Piece(item.paths, item.form, partial(self._timed, item)) for item in items]

    def whole(self, paths: set[str]) -> Timed:
        """Return the file, with those sites replaced and no others."""
        others = {*self.network.paths} - paths
        replaced = rewritten(self.network, self.resolved, others).model
        attach_fitting_bodies(replaced)
        image = _image(self.facts)
        array = image.numpy()
        if self.network.input_type not in _HALF:
            array = array.astype(onnx.helper.tensor_dtype_to_np_dtype(self.network.input_type))
        return Timed(self.network.source.model, replaced, {self.facts.inputs[0].name: array})

    def _timed(self, item: Replacement) -> Timed:
        names = [str(value.name) for value in item.inputs]
        values = self.network.values(names, _image(self.facts))
        planned = planned_replacement(self.network, item, self.resolved)
        own = self._model(item.own, item, values)
        replaced = self._model(planned.nodes, item, values)
        attach_fitting_bodies(replaced)
        feeds = {value.name: values[value.name].numpy() for value in own.graph.input}
        feeds |= {value.name: values[value.name].numpy() for value in replaced.graph.input}
        return Timed(own, replaced, feeds)

    def _model(
        self,
        nodes: Sequence[ir.Node],
        item: Replacement,
        values: Mapping[str, onnxruntime.OrtValue],
    ) -> onnx.ModelProto:
        """Return nodes as a model, with values that depend on no pixel as constants."""
        (part,) = parts_between([nodes], [str(item.output.name)])
        types = {name: values[name].element_type() for name in part.takes}
        model = part_model(self.network.source.searched, part, types)
        for entry in list(model.graph.input):
            value = values[entry.name]
            if entry.name in item.fixed:
                model.graph.initializer.append(
                    onnx.numpy_helper.from_array(value.numpy(), entry.name)
                )
                model.graph.input.remove(entry)
            else:
                shape = list(value.shape())
                entry.CopyFrom(
                    onnx.helper.make_tensor_value_info(entry.name, types[entry.name], shape)
                )
        if any(node.domain == "nystra" for node in nodes):
            model.opset_import.add(domain="nystra", version=1)
        return model


def _image(facts: Facts) -> Tensor:
    """Return noise of the timed size."""
    size = facts.size(SIDE, SIDE)
    random = torch.Generator().manual_seed(0)
    return torch.rand(facts.inputs[0].shape(size), generator=random)
