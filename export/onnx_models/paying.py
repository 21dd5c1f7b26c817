"""The timing of an ONNX file's own attention against nodes of nystra."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from ...core.ports.port import image_size
from ...models.facts import Facts
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites
from ..paying import SIDE, Piece, Timed
from .file_network import FileNetwork
from .network import Cut, Values
from .pieces import attach_fitting_bodies, rewritten
from .reading import opset_of


@dataclass
class FilePieces:
    """The pieces of a file that have replacements; a `Replaceable`.

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
        network = self.network
        cuts = [cut for cut in network.cuts.values() if paths.issuperset(cut.sites)]
        if not cuts:
            return []
        wanted = {name for cut in cuts for name in _needed(network, cut)[1]}
        wanted |= {name for cut in cuts for name in cut.inputs}
        values = _values(network, self.facts, wanted)
        return [
            Piece(cut.sites, _kind(network, cut, values), partial(self._timed, cut, values))
            for cut in cuts
        ]

    def whole(self, paths: set[str]) -> Timed:
        """Return the file, with those sites replaced and no others."""
        source = self.network.source.model
        feeds = {self.facts.inputs[0].name: _image(self.network, self.facts).numpy()}
        return Timed(source, self._replaced(source, paths), feeds)

    def _timed(self, cut: Cut, values: Values) -> Timed:
        own = _model_of(self.network, cut, values)
        feeds = {name: values[name].numpy() for name in cut.inputs}
        return Timed(own, self._replaced(own, set(cut.sites)), feeds)

    def _replaced(self, model: onnx.ModelProto, paths: set[str]) -> onnx.ModelProto:
        others = {path for cut in self.network.cuts.values() for path in cut.sites} - paths
        replaced = rewritten(model, self.network, self.resolved, others).model
        attach_fitting_bodies(replaced)
        return replaced


def _values(network: FileNetwork, facts: Facts, wanted: set[str]) -> Values:
    """Return values of the file for an image of a suitable size."""
    with torch.inference_mode():
        values = network.values(wanted, _image(network, facts))
    return {name: value.contiguous() for name, value in values.items()}


def _image(network: FileNetwork, facts: Facts) -> Tensor:
    """Return noise of the timed size, in the input type of the file."""
    size = facts.sides or image_size(facts.taken(SIDE), facts.taken(SIDE))
    random = torch.Generator().manual_seed(0)
    return torch.rand(facts.inputs[0].shape(size), generator=random).to(network.types[0])


def _needed(network: FileNetwork, cut: Cut) -> tuple[set[str], set[str]]:
    """Return the values that a piece of the file computes, and those that it reads."""
    givers = {name: node for node in network.graph.nodes for name in node.outputs}
    inside: set[str] = set()
    taken: set[str] = set()
    todo = [cut.output]
    while todo:
        name = todo.pop()
        if name in inside or name in taken:
            continue
        border = name in cut.inputs or name in network.folded or name not in givers
        if border and name != cut.output:
            taken.add(name)
            continue
        inside.add(name)
        todo += [given for given in givers[name].inputs if given]
    return inside, taken


def _model_of(network: FileNetwork, cut: Cut, values: Values) -> onnx.ModelProto:
    """Return the part of a file that a piece replaces, with other inputs as constants."""
    inside, taken = _needed(network, cut)
    source = network.source.model
    nodes = [node for node in source.graph.node if inside.intersection(node.output)]
    initial = [
        numpy_helper.from_array(values[name].numpy(), name) for name in taken - set(cut.inputs)
    ]
    inputs = [_declared(name, values[name]) for name in cut.inputs]
    graph = helper.make_graph(
        nodes, "piece", inputs, [onnx.ValueInfoProto(name=cut.output)], initial
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset_of(source))])
    model.ir_version = max(source.ir_version, 8)
    return model


def _declared(name: str, value: Tensor) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.numpy().dtype)
    return helper.make_tensor_value_info(name, kind, list(value.shape))


def _kind(network: FileNetwork, cut: Cut, values: Values) -> str:
    """Return a key of everything that the time of a piece depends on."""
    shapes = [tuple(values[name].shape) for name in cut.inputs]
    sites = {site.path: site.module for site in find_sites(network)}
    geometries = [getattr(sites[path], "geometry", None) for path in cut.sites]
    inside, _ = _needed(network, cut)
    operators = [n.operator for n in network.graph.nodes if inside.intersection(n.outputs)]
    return repr((shapes, geometries, operators))
