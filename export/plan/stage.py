"""Stage 2: the mechanism of each site, and the path of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.files.writing import check_can_make
from ...core.ports.port import join_sides
from ...core.text import pluralize
from ..attention.advice import plan_warnings
from ..attention.as_trained.parameters import AsTrained
from ..attention.full.parameters import Full
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import neutral, refuse_untrained, resolve
from ..auto_options import Proposal
from ..load.file_type import is_onnx
from ..load.stage import Prepared
from ..progress import Progress
from .naming import output_path
from .replacing import export_form, refuse_own_source, refuse_to_replace
from .settings import Settings, choose_settings


@dataclass(frozen=True)
class Planned:
    """The plan and the output of an export.

    Attributes:
        plan: The plan as written: every site, the window, the checkpoint.
        neutral: The network's own attention at every site, with which the plan is compared.
        target: The model file.
        unchanged: Why planned sites keep the network's own attention in the file, by path.
        warnings: One sentence each.
        proposal: The plan as requested, before it was resolved, and the result of a search.
        settings: The parameters that the plan left open, as they were chosen.
    """

    plan: Plan
    neutral: dict[str, Mechanism]
    target: Path
    unchanged: Mapping[str, str]
    warnings: tuple[str, ...]
    proposal: Proposal
    settings: Settings

    @property
    def resolved(self) -> dict[str, Mechanism]:
        """Mechanism of every site."""
        return self.plan.sites

    @property
    def is_neutral(self) -> bool:
        """Whether the plan is the network's own attention."""
        return self.resolved == self.neutral


def make_plan(prepared: Prepared, output: Path, progress: Progress) -> Planned:
    """Resolve the plan of the options, or search for one.

    Args:
        prepared: From `prepare`.
        output: A ``.onnx`` file or a folder.
        progress: Called with the steps of a search.

    Raises:
        NystraError: The plan does not fit the network, the output cannot be written, or it would
            replace another file.
    """
    loaded = prepared.loaded
    options = prepared.options
    proposal = _propose_plan(prepared, output, progress)
    plan = proposal.plan
    refuse_untrained(plan, loaded.network)
    resolved = resolve(plan, loaded.network, loaded.unserved)
    target = _target(prepared, output, resolved)
    if is_onnx(loaded.checkpoint.path):
        refuse_own_source(target, loaded.checkpoint.path)
    settings = choose_settings(
        loaded.network,
        loaded.facts.outputs[0],
        plan,
        resolved,
        prepared.samples,
        options.min_psnr,
        progress,
    )
    resolved = prepared.graph.drop_slower(settings.sites, progress)
    unchanged = prepared.graph.kept_as_is
    written = replace(
        plan,
        default=_choose_default(plan.default, resolved),
        sites=resolved,
        window=loaded.facts.window,
        source_sha256=loaded.checkpoint.sha256,
    )
    warnings = (
        *loaded.warnings,
        *proposal.warnings,
        *plan_warnings(plan, loaded, resolved, unchanged),
        *_reasons_for_own(unchanged),
    )
    if not options.overwrite:
        refuse_to_replace(target, written, export_form(options))
    return Planned(
        written, neutral(loaded.network), target, dict(unchanged), warnings, proposal, settings
    )


def _choose_default(default: Mechanism, resolved: Mapping[str, Mechanism]) -> Mechanism:
    if isinstance(default, AsTrained) and not any(
        isinstance(site, AsTrained) for site in resolved.values()
    ):
        return Full()
    return default


def _propose_plan(prepared: Prepared, output: Path, progress: Progress) -> Proposal:
    requested, loaded = prepared.options.plan, prepared.loaded
    if isinstance(requested, Plan):
        return Proposal(requested.for_network(loaded.facts.architecture, loaded.hyper))
    from ..auto.search import find_plan  # not needed for a plan of the user

    # A bad output is refused before the search, which takes minutes.
    _target(prepared, output, neutral(prepared.loaded.network))
    return find_plan(prepared, requested, progress)


def _target(prepared: Prepared, output: Path, resolved: Mapping[str, Mechanism]) -> Path:
    loaded = prepared.loaded
    target = output_path(
        output,
        loaded.checkpoint.path,
        loaded.facts,
        resolved,
        prepared.opset,
        prepared.transform.label,
        _list_suffixes(prepared),
    )
    check_can_make(target.parent)
    return target


def _list_suffixes(prepared: Prepared) -> list[str]:
    loaded = prepared.loaded
    suffixes = ["prepares"] if prepared.options.with_preprocessing else []
    if loaded.retargeted and loaded.facts.window is not None:
        sides = dict.fromkeys(loaded.facts.window)  # once where all are the same
        suffixes.append("w" + join_sides(sides))
    forms = {"attached": "", "none": "bare", "inline": "inline"}
    form = forms[prepared.options.functions]
    if prepared.target is not None and prepared.target.finish is not None:
        form = prepared.target.name
    if form:
        return [*suffixes, form]
    return suffixes


def _reasons_for_own(unchanged: Mapping[str, str]) -> list[str]:
    """Return one sentence for each reason why sites keep the network's own attention."""
    groups: dict[str, list[str]] = {}
    for path, reason in unchanged.items():
        groups.setdefault(reason, []).append(path)
    return [
        f"{pluralize(len(paths), 'site')} (first {paths[0]}) not replaced, {why}"
        for why, paths in groups.items()
    ]
