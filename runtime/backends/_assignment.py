"""Which execution provider of onnxruntime computes which nodes of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RECORD = "session.record_ep_graph_assignment_info"
"""The session setting that makes onnxruntime (1.24 and later) keep the assignment."""

_SHOWN = 8
"""Most operators named in a sentence."""


@dataclass(frozen=True)
class Assignment:
    """How onnxruntime divided the nodes of a graph between execution providers.

    The nodes are those that onnxruntime divides: after it inlined functions and folded constants.

    Attributes:
        provider: The one that was requested.
        nodes: Provider -> operator -> number of nodes.
    """

    provider: str
    nodes: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> int:
        """Nodes in all."""
        return sum(sum(operators.values()) for operators in self.nodes.values())

    @property
    def taken(self) -> int:
        """Nodes that the provider computes."""
        return sum(self.nodes.get(self.provider, {}).values())

    @property
    def others(self) -> str:
        """The nodes of other providers in words; empty if there are none."""
        return "; ".join(
            f"{provider} computes {_listed(operators)}"
            for provider, operators in sorted(self.nodes.items())
            if provider != self.provider
        )

    def sentence(self) -> str:
        """Return the provider's share of the nodes and what the others compute."""
        text = f"{self.provider} computes {self.taken} of {self.total} nodes"
        return f"{text}; {self.others}" if self.others else text

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        nodes = {name: dict(sorted(counts.items())) for name, counts in sorted(self.nodes.items())}
        return {
            "provider": self.provider,
            "taken": self.taken,
            "total": self.total,
            "nodes": nodes,
        }


def read_assignment(session: Any, provider: str) -> Assignment | None:
    """Return how the nodes of a session were divided; None if its onnxruntime keeps no record.

    Args:
        session: An ``InferenceSession`` that was opened with `RECORD` as ``1``.
        provider: The one that was requested.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    nodes: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        counts = nodes.setdefault(part.ep_name, Counter())
        counts.update(node.op_type for node in part.get_nodes())
    return Assignment(provider, nodes)


def _listed(operators: Mapping[str, int]) -> str:
    """Return operators with their numbers, the most frequent first."""
    ordered = sorted(operators.items(), key=lambda pair: (-pair[1], pair[0]))
    names = [f"{count} {operator}" for operator, count in ordered[:_SHOWN]]
    rest = sum(count for _, count in ordered[_SHOWN:])
    return ", ".join([*names, *([f"{rest} of other operators"] if rest else [])])
