"""A network as a graph with sites: its source computes exact attention, and PyTorch the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn

from ...models.sites import WindowSite
from ..attention.cost import count_graph_operations
from ..attention.full.parameters import Full
from ..attention.implementation import as_trained
from ..execute.names import list_names
from ..execute.parts import PartRunner, Values, graphs_of
from ..execute.sites import SitedRunner, compute_values
from ..execute.sized import find_pixel_values, infer_sizes
from ..rounding.layers import Rounding
from ..rounding.widening import widen
from .replacement import Replacement, compute_site, insert_replacements
from .sources import GraphSource, as_tensor, as_value, inputs_of, kind_of

# fmt: off
_SELECTING = frozenset((
    "ArgMax", "ArgMin", "BitShift", "Ceil", "DynamicQuantizeLinear", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "Mod", "NonMaxSuppression", "NonZero",
    "QuantizeLinear", "Round", "Sign", "TopK", "Unique",
))
# fmt: on
"""Operators whose results may jump where their inputs change little."""


class _Shared(dict[Any, Any]):
    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self


class GraphNetwork(nn.Module):
    """Runs a graph from its inputs to its outputs.

    While every site is exact, the source itself is run: the file in onnxruntime, or the network in
    PyTorch. Otherwise onnxruntime runs what is between the sites of other mechanisms, and these are
    computed in PyTorch. In float64, sites are computed in float64; onnxruntime fuses no nodes, and
    computes half precision in float32.

    Attributes:
        source: What the graph was made from.
        replacements: The parts of its graph that sites may compute.
        kept_as_is: Why sites with exact attention keep the graph's nodes, by path.
    """

    def __init__(self, source: GraphSource, replacements: Sequence[Replacement] = ()) -> None:
        """Take a source, and put the sites of the replacements at their paths."""
        super().__init__()
        self.source = source
        self.kept_as_is: dict[str, str] = {}
        listed = tuple(replacements)
        self._shared = _Shared(replacements=listed, sessions={}, pieces={})
        self._rounding: Rounding | None = None
        for item in replacements:
            for path, site in item.sites.items():
                _put(self, path, site)

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        """The parts of the graph that sites may compute."""
        replacements: tuple[Replacement, ...] = self._shared["replacements"]
        return replacements

    @property
    def paths(self) -> list[str]:
        """The paths of the sites."""
        return [path for item in self.replacements for path in item.sites]

    @property
    def pieces(self) -> dict[str, onnx.ModelProto]:
        """Traced mechanisms, so that the timed pieces are also those written."""
        pieces: dict[str, onnx.ModelProto] = self._shared["pieces"]
        return pieces

    @property
    def replaces(self) -> bool:
        """Whether some of the graph's nodes are replaced."""
        return any(path not in self.kept_as_is for path in self.paths)

    def forward(self, *images: Tensor) -> Any:
        """Return the output for the inputs, or a tuple if there are several.

        Raises:
            UnsupportedModelError: onnxruntime cannot compute the graph.
        """
        double = images[0].dtype == torch.float64
        planned = [item for item in self.replacements if not self._computes_exactly(item)]
        if planned or self._rounding or (double and self.source.is_half):
            outputs = self._compute(images, planned, double=double)
        else:
            outputs = self.source.compute(images)
        if len(outputs) == 1:
            return outputs[0]
        return outputs

    def _computes_exactly(self, item: Replacement) -> bool:
        return all(_is_exact(self.get_submodule(path)) for path in item.sites)

    def with_sites(self, images: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs by all sites, exact ones too, which otherwise the source computes."""
        return self._compute(images, self.replacements, double=False)

    def operations(self, images: Sequence[Tensor]) -> int:
        """Return the operations of the graph with its own attention for inputs of these sizes."""
        model = self.source.graph_model
        feeds = {
            str(value.name): image.numpy()
            for value, image in zip(inputs_of(model), images, strict=True)
        }
        return count_graph_operations(model.graph, infer_sizes(model, feeds).shapes)

    def count_weights(self) -> int:
        """Return the number of weights of what the graph was made from."""
        return self.source.count_weights()

    def release(self) -> None:
        """Close the sessions of the graph, in copies of this network too; a run opens them anew."""
        self._shared["sessions"].clear()

    def round_layers(self, rounding: Rounding) -> None:
        """Let the layers of the graph round, in place; the source is not run then."""
        self._rounding = rounding

    def values(self, names: Collection[str], images: Sequence[Tensor]) -> Values:
        """Return values of the graph with its own attention by name."""
        model = self.source.graph_model
        runner = PartRunner(model)
        feeds = self.feeds(images)
        return compute_values(list(model.graph), list(names), runner, feeds)

    def feeds(self, images: Sequence[Tensor], *, wide: bool = False) -> Values:
        """Return inputs as onnxruntime takes them, by name; half precision as float32 if wide."""
        inputs = inputs_of(self.source.graph_model)
        float32 = int(ir.DataType.FLOAT)
        return {
            str(value.name): as_value(image, float32 if wide else kind_of(value))
            for value, image in zip(inputs, images, strict=True)
        }

    def _compute(
        self,
        images: Sequence[Tensor],
        planned: Sequence[Replacement],
        *,
        double: bool,
    ) -> tuple[Tensor, ...]:
        wide = double and self.source.is_half
        results = list_names(self.source.graph_model.graph.outputs)
        run = self._run_of(planned, results, double=double, wide=wide)

        def compute(path: str, values: Sequence[Tensor | None]) -> Tensor:
            site: Any = self.get_submodule(path)
            return compute_site(site, values, double=double)

        feeds = self.feeds(images, wide=wide)
        outputs = run.run(feeds, compute)
        return tuple(as_tensor(outputs[name]) for name in results)

    def _run_of(
        self,
        planned: Sequence[Replacement],
        results: list[str],
        *,
        double: bool,
        wide: bool,
    ) -> SitedRunner:
        sessions = self._shared["sessions"]
        outputs = tuple(item.output.name for item in planned)
        key = (outputs, double, self._rounding)
        if key not in sessions:
            model = self.source.graph_model
            nodes = insert_replacements(list(model.graph), planned, results)
            if self._rounding:
                nodes = self._rounding.nodes(nodes, find_pixel_values(model.graph))
            if wide:
                model = widen(self.source.raised or self.source.model, nodes)
                nodes = list(model.graph)
            runner = PartRunner(model)
            sessions[key] = SitedRunner(runner, nodes, results, optimized=not double)
        run: SitedRunner = sessions[key]
        return run


def _is_exact(site: Any) -> bool:
    """Return whether a site computes what the graph's own nodes do."""
    if isinstance(as_trained(site), Full):
        return True
    mechanism = getattr(site.implementation, "mechanism", None)
    if not isinstance(mechanism, Full):
        return False
    masked = isinstance(site, WindowSite) and site.geometry.masked
    return mechanism.mask == "regions" or not masked


def _put(root: nn.Module, path: str, site: nn.Module) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in root._modules:
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(name, site)


def is_continuous(network: nn.Module) -> bool:
    """Return whether the graph of a network shows that small changes of pixels change it little.

    False for a network without a graph. A safe softmax, which looks for rows without keys, is
    continuous.
    """
    if not isinstance(network, GraphNetwork):
        return False
    graph = network.source.graph_model.graph
    data = find_pixel_values(graph)
    for node in graph:
        on_pixels = any(str(value.name) in data for value in node.outputs)
        if on_pixels and _selects(node):
            return False
    return True


def _selects(node: ir.Node) -> bool:
    to = node.attributes.get("to") if node.op_type == "Cast" else None
    kind = None if to is None else ir.DataType(to.as_int())
    counted = kind is not None and not kind.is_floating_point()
    return counted or node.op_type in _SELECTING or bool(graphs_of(node))
