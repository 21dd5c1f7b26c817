"""One replaced part of a graph: the nodes that compute a value by sites."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from ..execute.names import list_names
from ..execute.parts import find_reads, is_stored
from ..execute.sites import SITE, select_nodes
from ..execute.sized import Sized

if TYPE_CHECKING:
    from .site_builder import SiteBuilder
    from .site_modules import AnyFound

Shapes = tuple[Shape | None, ...]
"""Shapes of the inputs of a site; None for one that is omitted."""


@dataclass(frozen=True)
class Replacement:
    """The computation that replaces one value of a graph.

    Attributes:
        sites: Modules of its sites, by their paths.
        nodes: The new nodes; those of the domain `SITE` are sites, named by their paths.
        output: The value of the graph that they compute; the last of them gives the same name.
        inputs: Values of the graph that they read.
        own: The nodes of the graph that they replace, from the inputs on.
        fixed: Names of the inputs that depend on no pixel.
        shapes: Shapes of the inputs at each size of the search.
        type: Type of the output, as ONNX numbers it.
        site_shapes: Shapes of the inputs of each site, at each size; `find_mismatch` notes them.
    """

    sites: Mapping[str, AnyFound]
    nodes: tuple[ir.Node, ...]
    output: ir.Value
    inputs: tuple[ir.Value, ...]
    own: tuple[ir.Node, ...]
    fixed: frozenset[str]
    shapes: tuple[tuple[Shape, ...], ...]
    type: int
    site_shapes: dict[str, list[Shapes]] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """What does not differ between equal layers: shapes, geometries and operators."""
        geometries = [
            (getattr(site, "geometry", None), getattr(site, "scale", None))
            for site in self.sites.values()
        ]
        operators = [node.op_type for node in self.own]
        return repr((self.shapes, geometries, operators))


def collect_replacement(
    builder: SiteBuilder,
    sites: Mapping[str, AnyFound],
    target: ir.Value,
    out: ir.Value,
) -> Replacement:
    """Return the replacement that a builder has collected.

    Args:
        builder: The new nodes.
        sites: Modules of the sites.
        target: The value of the graph that is computed.
        out: The new value; it gets the name of the other.
    """
    producer = out.producer()
    if producer is None or producer not in builder.nodes:
        out = builder.op("Identity", out)
    nodes = select_nodes(builder.nodes, [str(out.name)])
    out.name = target.name
    new = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(
        value
        for node in nodes
        for value in find_reads(node)
        if value not in new and not is_stored(value)
    )
    computing = [node for node in nodes if node.op_type != "Shape"]
    borders = {value for node in computing for value in find_reads(node)}
    own, border_inputs = _find_own_nodes(builder.graph, target, borders - new, builder.sized)
    inputs = tuple(dict.fromkeys([*read, *border_inputs]))
    shapes = [_list_shapes(builder.sized, inputs)]
    if builder.other is not None:
        shapes.append(_list_shapes(builder.other, inputs))
    if not any(node.domain == SITE for node in nodes):
        raise RuntimeError(f"{target.name} is computed without its site")
    names = [str(node.name) for node in nodes if node.domain == SITE]
    used = {name: sites[name] for name in names}
    kind = builder.sized.type_of(target)
    fixed = frozenset(list_names(inputs)) - builder.sized.data
    every_shape = tuple(shapes)
    return Replacement(used, tuple(nodes), target, inputs, own, fixed, every_shape, kind)


def _list_shapes(sized: Sized, values: Sequence[ir.Value]) -> tuple[Shape, ...]:
    return tuple(sized.shapes[str(value.name)] for value in values)


def _find_own_nodes(
    graph: ir.Graph,
    target: ir.Value,
    borders: set[ir.Value],
    sized: Sized,
) -> tuple[tuple[ir.Node, ...], list[ir.Value]]:
    """Return the nodes between values and a result, and what else these read."""
    inside: set[ir.Node] = set()
    border_inputs: dict[ir.Value, None] = {}
    todo = [target]
    while todo:
        value = todo.pop()
        node = value.producer()
        on_pixels = sized.follows_input(value)
        if value is not target and (value in borders or node is None or not on_pixels):
            if not is_stored(value):
                border_inputs[value] = None
            continue
        if node is None or node in inside:
            continue
        inside.add(node)
        todo += find_reads(node)
    return tuple(node for node in graph if node in inside), list(border_inputs)


def insert_replacements(
    nodes: Sequence[ir.Node], replacements: Collection[Replacement], requested: Collection[str]
) -> list[ir.Node]:
    """Return the nodes of a graph with replacements in it, without those that nothing needs.

    Args:
        nodes: Nodes of the graph in order; they are not modified.
        replacements: What computes some of their values instead of them.
        requested: Names of the results of the graph.
    """
    by_name = {str(item.output.name): item for item in replacements}
    listed: list[ir.Node] = []
    for node in nodes:
        names = list_names(node.outputs)
        computed_anew = [name for name in names if name in by_name]
        if not computed_anew:
            listed.append(node)
            continue
        for name in computed_anew:
            listed += by_name[name].nodes
        if len(names) > len(computed_anew):
            listed.append(_drop_outputs(node, computed_anew))
    return select_nodes(listed, requested)


def _drop_outputs(node: ir.Node, names: Collection[str]) -> ir.Node:
    kept_names = ["" if value.name in names else value.name for value in node.outputs]
    return ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        node.attributes,
        outputs=[ir.Value(name=name) for name in kept_names],
        name=node.name,
    )


def compute_site(site: Any, values: Sequence[Tensor | None], *, double: bool = False) -> Tensor:
    """Return the result of a site for values of the graph; half precision is computed in float32.

    Args:
        site: The site.
        values: Its inputs.
        double: Compute it in float64.
    """
    kind = next(value.dtype for value in values if value is not None)
    wide = torch.float64 if double else torch.float32
    inputs = [None if value is None else value.to(wide) for value in values]
    parameters = {}
    for name, tensor in site.named_parameters():
        parameters[name] = tensor.to("cpu", wide)
    with torch.inference_mode():
        output: Tensor = torch.func.functional_call(site, parameters, tuple(inputs))
    return output.to(kind)
