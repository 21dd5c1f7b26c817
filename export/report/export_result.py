"""What an export returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..auto.proposal import Proposal
from ..load.source import Source
from ..validate.fidelity import Fidelity
from ..validate.model_file import FileValidation
from ..validate.speed import Speed


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote and found.

    Attributes:
        model: The model file.
        files: Every file that was written.
        nodes: Nodes of the graph.
        precision: As ``nystra.precision`` says it.
        source: What the model was made of: the network, and what was done at each site.
        validation: The file against PyTorch.
        fidelity: The plan against full attention.
        speed: Against the full-attention file, or None.
        proposal: The plan as it was chosen, and what a search found.
        suggestion: What other mechanisms would do, where that is wanted and worth a word.
        warnings: One sentence each.
        seconds: What each kind of step took.
    """

    model: Path
    files: tuple[Path, ...]
    nodes: int
    precision: str
    source: Source
    validation: FileValidation
    fidelity: Fidelity
    speed: Speed | None
    proposal: Proposal
    suggestion: str
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
