"""A network as a graph whose sites mechanisms replace: what every stage after loading takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import nn

from ..models.facts import Facts
from ..models.registry import is_own
from .attention.mechanism import Mechanism
from .progress import Progress
from .rewrite.graph_network import GraphNetwork
from .rewrite.written_model import WrittenModel
from .tracing.site_graph import SiteGraph, trace_network

FULL = "full attention"
"""What exact attention at declared sites is called in reports."""


class SitedGraph(Protocol):
    """A network as a graph with sites."""

    @property
    def are_found(self) -> bool:
        """Whether a search found the sites, which may stay as trained then."""

    @property
    def own_attention(self) -> str:
        """What the network's own attention is called in a report."""

    @property
    def kept_as_is(self) -> Mapping[str, str]:
        """Why sites with exact attention keep the network's nodes, by path."""

    def drop_slower(
        self, resolved: dict[str, Mechanism], progress: Progress
    ) -> dict[str, Mechanism]:
        """Return the plan without exact attention that is slower than the network's nodes.

        Args:
            resolved: Mechanism of every site.
            progress: Called with the name of each step.
        """

    def changes_attention(self, *, is_neutral: bool) -> bool:
        """Return whether a file computes attention in another way than the network.

        Args:
            is_neutral: Whether its plan is the network's own attention.
        """

    def write(self, resolved: Mapping[str, Mechanism], *, for_transform: bool) -> WrittenModel:
        """Return the graph with the mechanisms of a plan, without bodies.

        Args:
            resolved: Mechanism of every site.
            for_transform: Whether a transform changes its arithmetic afterwards. Then an old opset
                of a file is raised, constants are initializers and nodes have names.

        Raises:
            ExportError: The network or a mechanism cannot be traced.
        """

    def write_own(self, neutral: Mapping[str, Mechanism], *, for_transform: bool) -> WrittenModel:
        """Return the graph with the network's own attention; arguments as of `write`."""

    def release(self) -> None:
        """Close sessions of the network; a run opens them again."""


@dataclass(frozen=True)
class DeclaredSites:
    """A network whose modules declare its sites; it is traced when it is first written.

    Attributes:
        network: The network.
        facts: Its facts.
        opset: Opset of the file.
        fused: As of `trace_network`.
    """

    network: nn.Module
    facts: Facts
    opset: int
    fused: bool
    are_found = False
    own_attention = FULL

    @cached_property
    def graph(self) -> SiteGraph:
        """The traced network.

        Raises:
            TraceError: It cannot be traced.
        """
        once = not is_own(self.facts.architecture)
        fused = self.fused
        return trace_network(self.network, self.facts, self.opset, fused=fused, once=once)

    @property
    def kept_as_is(self) -> Mapping[str, str]:
        """None: a declared site has nodes of nystra."""
        return {}

    def drop_slower(
        self, resolved: dict[str, Mechanism], progress: Progress
    ) -> dict[str, Mechanism]:
        """Return the plan as it is."""
        del progress
        return resolved

    def changes_attention(self, *, is_neutral: bool) -> bool:
        """Return whether the plan has another mechanism than exact attention."""
        return not is_neutral

    def write(self, resolved: Mapping[str, Mechanism], *, for_transform: bool) -> WrittenModel:
        """Return the graph; a transform takes a trace as it is."""
        del for_transform
        return WrittenModel(self.graph.write_mechanisms(resolved))

    def write_own(self, neutral: Mapping[str, Mechanism], *, for_transform: bool) -> WrittenModel:
        """Return the graph with exact attention."""
        return self.write(neutral, for_transform=for_transform)

    def release(self) -> None:
        """Nothing: PyTorch computes the network."""


@dataclass(frozen=True)
class FoundSites:
    """A network whose sites were found in its graph.

    Attributes:
        network: The network.
        facts: Its facts.
        fused: As of `trace_network`.
        has_target: Whether the file is changed for a target, which reads initializers and names.
    """

    network: GraphNetwork
    facts: Facts
    fused: bool
    has_target: bool

    @property
    def are_found(self) -> bool:
        """Whether there are sites: a network in which none was found has its graph all the same."""
        return bool(self.network.replacements)

    @property
    def own_attention(self) -> str:
        """The file's or the module's."""
        return self.network.source.own

    @property
    def kept_as_is(self) -> Mapping[str, str]:
        """Why sites with exact attention keep the nodes of the graph, by path."""
        return self.network.kept_as_is

    def drop_slower(
        self, resolved: dict[str, Mechanism], progress: Progress
    ) -> dict[str, Mechanism]:
        """Return the plan without exact attention that was measured to be slower."""
        if self.fused:
            return resolved
        from .replacement_timing import drop_slower

        return drop_slower(self.network, self.facts, resolved, progress)

    def changes_attention(self, *, is_neutral: bool) -> bool:
        """Return whether nodes of the graph are replaced."""
        del is_neutral
        return self.network.replaces

    def write(self, resolved: Mapping[str, Mechanism], *, for_transform: bool) -> WrittenModel:
        """Return the graph with the nodes of nystra where a site does not keep its own."""
        return self._write(resolved, [*self.kept_as_is], for_transform=for_transform)

    def write_own(self, neutral: Mapping[str, Mechanism], *, for_transform: bool) -> WrittenModel:
        """Return the graph with its own nodes."""
        return self._write(neutral, self.network.paths, for_transform=for_transform)

    def _write(
        self, resolved: Mapping[str, Mechanism], unchanged: list[str], *, for_transform: bool
    ) -> WrittenModel:
        from .rewrite.graph_writing import write_graph
        from .rewrite.initializers import make_initializers

        written = write_graph(
            self.network, resolved, unchanged, self.facts, fused=self.fused, raised=for_transform
        )
        if for_transform or self.has_target:
            make_initializers(written.model)
        return written

    def release(self) -> None:
        """Close the sessions of the graph."""
        self.network.release()
