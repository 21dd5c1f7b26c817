"""The timing of a file's own attention against nodes of nystra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from .graph_network import GraphNetwork
from .replacement import Replacement
from .sources import FileSource
from .written import attach_fitting_bodies, planned_replacement, rewritten


@dataclass
class GraphPieces:
    """The parts of a graph that have replacements; a `Replaceable`.

    Attributes:
        network: The network of the graph, which records unchanged sites.
        facts: Its facts.
        resolved: Mechanism of every site.
    """

    network: GraphNetwork
    facts: Facts
    resolved: Mapping[str, Mechanism]

    @property
    def source(self) -> str:
        """Name of the network."""
        return self.network.source.title

    @property
    def is_written(self) -> bool:
        """Whether the original exists as a file."""
        return isinstance(self.network.source, FileSource)

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
        feeds = self.network.feeds(_images(self.facts))
        arrays = {name: value.numpy() for name, value in feeds.items()}
        return Timed(self.network.source.model, replaced, arrays)

    def _timed(self, item: Replacement) -> Timed:
        names = [str(value.name) for value in item.inputs]
        values = self.network.values(names, _images(self.facts))
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


def _images(facts: Facts) -> list[Tensor]:
    """Return noise of the timed size for each input."""
    size = facts.size(SIDE, SIDE)
    random = torch.Generator().manual_seed(0)
    return [torch.rand(port.shape(size), generator=random) for port in facts.inputs]
