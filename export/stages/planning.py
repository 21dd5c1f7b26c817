"""Stage 2: what is computed at each site, and where the file goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...models.loading import LoadedModel
from ...plugins.errors import NystraError
from ...runtime.files.writing import check_writable_folder
from ..attention.mechanism import SiteParameters
from ..attention.plan import Plan
from ..attention.site import find_sites, resolve
from ..naming import attention_label, output_path
from .preparing import Prepared


@dataclass(frozen=True)
class Planned:
    """What is to be written where.

    Attributes:
        plan: As it is written: every site, the window, the checkpoint.
        target: The model file.
        warnings: One sentence each.
    """

    plan: Plan
    target: Path
    warnings: tuple[str, ...]

    @property
    def resolved(self) -> dict[str, SiteParameters]:
        """Parameters of every site."""
        return self.plan.sites

    @property
    def exact(self) -> dict[str, SiteParameters]:
        """Full attention at every site, with the same masks."""
        return {path: parameters.as_full() for path, parameters in self.resolved.items()}

    @property
    def is_full(self) -> bool:
        """Whether the plan is full attention itself."""
        return attention_label(self.resolved) == "full"


def make_plan(prepared: Prepared, output: Path) -> Planned:
    """Resolve the plan that was asked for, or let the planner make one.

    Args:
        prepared: From `prepare`.
        output: A ``.onnx`` file or an existing folder.

    Raises:
        NystraError: The plan does not fit the network, or the output cannot be written.
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
        options.static,
        prepared.transform.label,
    )
    check_writable_folder(target.parent)
    written = replace(
        asked,
        sites=resolved,
        window=loaded.facts.window,
        source_sha256=loaded.checkpoint.sha256,
    )
    warnings = (*loaded.warnings, *plan_warnings(asked, loaded, resolved))
    return Planned(written, target, warnings)


def plan_warnings(
    plan: Plan, loaded: LoadedModel, resolved: Mapping[str, SiteParameters]
) -> list[str]:
    """Return what the user of a plan should know: one sentence each."""
    warnings = []
    sha = loaded.checkpoint.sha256
    if plan.source_sha256 and plan.source_sha256 != sha:
        warnings.append(
            f"the plan was made for another checkpoint ({plan.source_sha256[:12]}..., "
            f"this one is {sha[:12]}...)"
        )
    linear = [s for s in find_sites(loaded.network) if resolved[s.path].pools]
    biases = [site.bias_size for site in linear if site.bias_size is not None]
    if biases:
        warnings.append(
            f"the relative position bias of {len(biases)} sites is dropped "
            f"(largest entry {max(biases):.2f} in logits)"
        )
    small = [
        s for s in linear if s.tokens is not None and s.tokens <= 2 * _landmarks(resolved[s.path])
    ]
    if small:
        site = small[0]
        warnings.append(
            f"linear attention cannot pay at {len(small)} sites: {site.tokens} tokens, "
            f"{_landmarks(resolved[site.path])} landmarks at {site.path}; --attn full is exact "
            "and faster there"
        )
    reasons = [parameters.reason for parameters in resolved.values() if parameters.reason]
    warnings += [
        f"{reasons.count(reason)} sites keep full attention: {reason}"
        for reason in sorted(set(reasons))
    ]
    return warnings


def _landmarks(parameters: SiteParameters) -> int:
    return parameters.landmarks[0] * parameters.landmarks[1]
