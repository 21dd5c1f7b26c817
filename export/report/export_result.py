"""The result of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..auto_options import Proposal
from ..load.source import Source
from ..plan.settings import Settings
from ..validate.fidelity import Fidelity
from ..validate.model_file import FileValidation
from ..validate.speed import Speed


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        model: The model file.
        files: Every file that was written.
        nodes: Nodes of the graph.
        nystra_nodes: Those of the domain ``nystra``.
        precision: The value of ``nystra.precision``.
        source: The network, and the mechanism of each site.
        unchanged: Why planned sites keep the network's own attention in the file, by path.
        validation: The file against PyTorch.
        fidelity: The plan against full attention.
        speed: Against the full-attention file, or None.
        proposal: The chosen plan, and the result of a search.
        settings: The parameters that the plan left open, as they were chosen.
        suggestion: One sentence about faster mechanisms, or "".
        notes: What a transform did, one sentence each.
        warnings: One sentence each.
        seconds: Kind of step -> its time in seconds.
    """

    model: Path
    files: tuple[Path, ...]
    nodes: int
    nystra_nodes: int
    precision: str
    source: Source
    unchanged: Mapping[str, str]
    validation: FileValidation
    fidelity: Fidelity
    speed: Speed | None
    proposal: Proposal
    settings: Settings
    suggestion: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
