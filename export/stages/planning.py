"""Stage 2: what is computed at each site, and where the file goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...plugins.errors import NystraError
from ...runtime.files.writing import check_writable_folder
from ..attention.advice import plan_warnings
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import neutral, resolve
from ..naming import output_path
from .preparing import Prepared
from .replacing import export_form, refuse_to_replace


@dataclass(frozen=True)
class Planned:
    """What is to be written where.

    Attributes:
        plan: As it is written: every site, the window, the checkpoint.
        neutral: What every site came with, which the plan is compared with.
        target: The model file.
        warnings: One sentence each.
    """

    plan: Plan
    neutral: dict[str, Mechanism]
    target: Path
    warnings: tuple[str, ...]

    @property
    def resolved(self) -> dict[str, Mechanism]:
        """Mechanism of every site."""
        return self.plan.sites

    @property
    def is_neutral(self) -> bool:
        """Whether the plan is what the network came with."""
        return self.resolved == self.neutral


def make_plan(prepared: Prepared, output: Path) -> Planned:
    """Resolve the plan that was asked for, or let the planner make one.

    Args:
        prepared: From `prepare`.
        output: A ``.onnx`` file or an existing folder.

    Raises:
        NystraError: The plan does not fit the network, the output cannot be written, or it
            would replace something else.
    """
    loaded, options = prepared.loaded, prepared.options
    asked = options.plan
    if not isinstance(asked, Plan):
        asked = asked(loaded, prepared.samples)
        if asked.window not in (None, loaded.facts.window):
            raise NystraError(
                f"the planner made a plan for window {asked.window}, the network is loaded at "
                f"{loaded.facts.window}"
            )
    resolved = resolve(asked, loaded.network)
    target = output_path(
        output,
        loaded.checkpoint.path,
        loaded.facts,
        resolved,
        options.opset,
        prepared.transform.label,
        _marks(prepared),
    )
    check_writable_folder(target.parent)
    written = replace(
        asked,
        sites=resolved,
        window=loaded.facts.window,
        source_sha256=loaded.checkpoint.sha256,
    )
    warnings = (*loaded.warnings, *plan_warnings(asked, loaded, resolved))
    if not options.overwrite:
        refuse_to_replace(target, written, export_form(options))
    return Planned(written, neutral(loaded.network), target, warnings)


def _marks(prepared: Prepared) -> list[str]:
    """Return what else makes it another file, for its name."""
    loaded, marks = prepared.loaded, []
    if loaded.retargeted and loaded.facts.window is not None:
        sides = dict.fromkeys(loaded.facts.window)  # once where all are the same
        marks.append("w" + "x".join(str(side) for side in sides))
    form = {"attached": "", "none": "bare", "inline": "inline"}[prepared.options.functions]
    return [*marks, form] if form else marks
