"""Whether an export may replace existing files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...runtime.model.manifest import Manifest
from ..attention.plan import Plan
from ..options import OPSET, ExportOptions

_ADVICE = "choose another `output`, or give `overwrite`"


def export_form(options: ExportOptions) -> dict[str, Any]:
    """Return the options, other than checkpoint and plan, that affect a file, for its manifest."""
    return {
        "functions": options.functions,
        "opset": options.opset or OPSET,
        "precision": options.precision,
        "static": None if options.static is None else list(options.static),
        "target": options.target,
        "preprocessing": options.with_preprocessing,
    }


def export_files(target: Path) -> tuple[Path, ...]:
    """Return the files of an export; the manifest is last."""
    sidecars = (target.with_suffix(".plan.json"), target.with_suffix(".npz"))
    return (*sidecars, target, Manifest.path_for(target))


def refuse_own_source(target: Path, source: Path) -> None:
    """Raise `NystraError` if the model file would replace its own input."""
    if target.exists() and target.samefile(source):
        raise NystraError(f"{target} is an input of the export: choose another `output`")


def refuse_to_replace(target: Path, plan: Plan, form: dict[str, Any]) -> None:
    """Raise `NystraError` unless the existing files, if any, are an export of the same network.

    Args:
        target: The model file.
        plan: The plan to write.
        form: From `export_form`.
    """
    existing = [path for path in export_files(target) if path.exists()]
    if not existing:
        return
    listing = Manifest.path_for(target)
    try:
        manifest = Manifest.read(listing) if listing.exists() else None
    except NystraError as error:
        raise NystraError(
            f"{listing} exists and is not a manifest of an export: {error}; {_ADVICE}"
        ) from error
    listed = set() if manifest is None else {*manifest.files, listing.name}
    foreign = [path.name for path in existing if path.name not in listed]
    if manifest is None or foreign:
        raise NystraError(
            f"{', '.join(foreign)} in {target.parent} would be replaced, and no manifest "
            f"({listing.name}) lists them as files of an export; {_ADVICE}"
        )
    changes = _changes(manifest, plan, form)
    if changes:
        raise NystraError(f"{target} is another export: {'; '.join(changes)}; {_ADVICE}")


def _changes(manifest: Manifest, plan: Plan, form: dict[str, Any]) -> list[str]:
    changes = []
    if manifest.source.get("sha256") != plan.source_sha256:
        changes.append(f"from another checkpoint ({manifest.source.get('name')})")
    requested = plan.as_dict()
    former = manifest.plan
    if former.get("window") != requested.get("window"):
        changes.append(f"at window {former.get('window')}, now {requested.get('window')}")
    elif _without_reasons(former.get("sites")) != _without_reasons(requested["sites"]):
        changes.append("with another plan")
    changes += [
        f"with {key} {manifest.form[key]}, now {value}"
        for key, value in form.items()
        if key in manifest.form and manifest.form[key] != value
    ]
    return changes


def _without_reasons(sites: Any) -> Any:
    if not isinstance(sites, dict):
        return sites
    if not all(isinstance(site, dict) for site in sites.values()):
        return sites
    plain = {}
    for path, site in sites.items():
        plain[path] = {key: value for key, value in site.items() if key != "reason"}
    return plain
