"""Why a builder refused a model, and because of which node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...plugins.domain import DOMAIN
from ..model.onnx_nodes import domain_nodes
from .child import BuilderAnswer
from .model import EngineModel


@dataclass(frozen=True)
class Refusal:
    """What was refused.

    Attributes:
        node: Name of the refused node, or empty.
        operator: Its operator, if known.
        reason: The messages of TensorRT and of nystra's plugins.
    """

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        where = f"node {self.node}" if self.node else "the file"
        kind = f" ({self.operator})" if self.operator else ""
        return f"{where}{kind} is refused: {self.reason}"


def refusal_of(answer: BuilderAnswer) -> Refusal | None:
    """Return the refusal in an answer of the worker, or None; a dead process is a refusal."""
    plugin = answer.plugin_output
    remark = f" The plugin says: {plugin[0]}." if plugin else ""
    if answer.death is not None:
        last = f": {answer.output[-1][:300]}" if answer.output else ""
        return Refusal("", "", f"the builder's process {answer.death}{last}.{remark}")
    refused = answer.values.get("refusal")
    if refused is None:
        return None
    reason = " ".join(str(refused["reason"]).split())
    return Refusal(refused["node"], refused["operator"], reason[:600] + remark)


def unsupported_reason(model: EngineModel, plugins: Sequence[str]) -> Refusal | None:
    """Return a refusal if the plugin library is loaded but a nystra node is not a plugin.

    Args:
        model: The model and its plugin library.
        plugins: Names of the network's plugin layers.
    """
    nodes = domain_nodes(model.path, DOMAIN)
    if model.library is None or len(plugins) >= len(nodes):
        return None
    name, operator = next((node for node in nodes if node[0] not in plugins), nodes[0])
    return Refusal(
        name,
        operator,
        f"{model.library.name} was loaded, but only {len(plugins)} of {len(nodes)} nystra nodes "
        "are plugins: build the library of this nystra, or compile the bodies with `library` "
        "none",
    )
