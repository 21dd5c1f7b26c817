"""``nystra inspect``: the sites of a checkpoint, or the operators of a model file."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError, UnsupportedModelError
from ...core.metadata import ModelMetadata, key_of
from ...core.option import Options, option
from ...core.option_kinds import Choice, Folder
from ...core.ports.port import join_sides
from ..console import echo, print_json, print_table, steps, warn
from ..flags.checkpoint_flags import add_checkpoint_arguments, hyper_from
from ..flags.option_flags import (
    add_options,
    add_output_arguments,
    add_session_arguments,
    session_spec,
)

SUMMARY = "Show the attention sites of a checkpoint, or how a model file runs on this machine."

_LONGEST = 80
"""Characters of a metadata entry that are shown."""

_LEGEND = (
    "tokens: keys per query; FLOPs: share of the network's operations in exact attention at the "
    "site; bias: largest entry, in logits; error: of the site's output under the plan, with all "
    "other sites exact; guarded: tokens whose result the guard changes"
)


@dataclass(frozen=True)
class InspectOptions(Options):
    """How sites are measured and listed."""

    calibrate: Path | None = option(
        Folder(None, "images to measure the plan on", default_text="the shipped photographs")
    )
    sort: str = option(
        Choice(
            "network",
            "list sites in the order of the network, or by error",
            ("network", "loss"),
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from ..flags.plan_flags import (
        add_mechanism_argument,
        add_parameter_arguments,
        add_plan_arguments,
    )

    named = "checkpoint, name of a shipped network, or .onnx file"
    parser.add_argument("file", type=Path, help=named)
    add_mechanism_argument(parser)
    add_plan_arguments(parser)
    add_parameter_arguments(parser)
    add_checkpoint_arguments(parser)
    add_options(parser, InspectOptions)
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code."""
    if args.file.suffix != ".onnx":
        return _inspect_checkpoint(args)
    if _has_attention_of_others(args.file):
        try:
            return _inspect_checkpoint(args)
        except UnsupportedModelError as error:
            warn(f"{error}: its attention cannot be listed")
    return _inspect_model(args)


def _has_attention_of_others(path: Path) -> bool:
    """Whether sites may be found: in another program's file, with a softmax, with torch."""
    from ...runtime.model.onnx_graph import has_node
    from ...runtime.model.onnx_header import read_onnx_header

    if ModelMetadata.read(read_onnx_header(path).metadata).version is not None:
        return False
    return find_spec("torch") is not None and has_node(path, "Softmax")


def _inspect_checkpoint(args: argparse.Namespace) -> int:
    from ...export.attention.advice import plan_warnings
    from ...export.attention.site import resolve
    from ...export.load.images import calibration_feeds
    from ...export.load.module_sites import with_found_sites
    from ...export.load.network import load_for
    from ...export.plan.settings import choose_settings
    from ...export.report.inspection import inspect_network
    from ..flags.plan_flags import plan_from

    with steps(args, piped=True) as progress:
        progress("load")
        plan = plan_from(args)
        loaded = with_found_sites(load_for(args.file, plan, hyper_from(args)), progress)
        plan = plan.for_network(loaded.facts.architecture, loaded.hyper)
        resolved = resolve(plan, loaded.network, loaded.unserved)
        samples = calibration_feeds(loaded.facts, args.calibrate)
        output = loaded.facts.outputs[0]
        settings = choose_settings(
            loaded.network, output, plan, resolved, samples, progress=progress
        )
        resolved = settings.sites
        inspection = inspect_network(loaded.network, loaded.facts, resolved, samples, progress)
    reports = inspection.sites
    by_loss = sorted(reports, key=lambda report: -(report.error or 0.0))
    if args.sort == "loss":
        reports = by_loss
    warnings = [*loaded.warnings, *plan_warnings(plan, loaded, resolved)]
    if not args.quiet:
        for text in warnings:
            warn(text)
    if args.json:
        document: dict[str, Any] = {
            "facts": loaded.facts.as_dict(),
            "hyper": loaded.hyper,
            **replace(inspection, sites=reports).as_dict(),
            "warnings": warnings,
        }
        print_json(document)
        return 0
    facts = loaded.facts
    echo(
        f"{facts.architecture}, {facts.scale}x, {facts.input_channels} channels, "
        f"{_window(facts.window)}, license {facts.license}"
    )
    rows = [("site", "tokens", "FLOPs", "bias", "plan", "error", "guarded")]
    for site in reports:
        rows.append(
            (
                site.path,
                "any" if site.tokens is None else str(site.tokens),
                f"{site.flops_share:.1%}",
                "-" if site.bias is None else f"{site.bias:.2f}",
                str(site.planned),
                "-" if site.error is None else f"{site.error:.2%}",
                "-" if site.guarded is None else f"{site.guarded:.2%}",
            )
        )
    if not reports:
        echo("no attention that nystra replaces: the network is exported as it was trained")
        return 0
    print_table(rows)
    echo(_LEGEND)
    if worst := [f"{site.path} ({site.error:.2%})" for site in by_loss[:3] if site.error]:
        echo(f"largest error: {', '.join(worst)}")
    echo(inspection.describe())
    if settings.summary:
        echo(f"settings: {settings.summary}")
    return 0


def _window(sides: tuple[int, ...] | None) -> str:
    return "no window" if sides is None else f"window {join_sides(sides)}"


def _inspect_model(args: argparse.Namespace) -> int:
    from ...plugins.domain import DOMAIN
    from ...runtime.backends import find_backend
    from ...runtime.model.onnx_graph import domain_nodes
    from ...runtime.model.onnx_header import read_onnx_header
    from ...runtime.session import Session

    metadata = dict(read_onnx_header(args.file).metadata)
    stated = ModelMetadata.read(metadata)
    library, reason, path, assignment = None, "", "not run here", None
    try:
        session = Session.open(session_spec(args, args.file))
        assignment = session.assignment
        library, reason = session.library, session.library_reason
        path = "body" if library is None else "kernel"
    except BackendUnavailableError as error:
        if (stated.precision or "fp32") in find_backend("ort-cpu").precisions:
            raise
        reason = str(error)  # the file can be inspected even if it cannot run
    sites = _sites(stated)
    nodes = domain_nodes(args.file, DOMAIN)
    if args.json:
        print_json(
            {
                "metadata": metadata,
                "library": library,
                "library_reason": reason,
                "assignment": assignment and assignment.as_dict(),
                "nodes": [{"name": n, "operator": o, "path": path} for n, o in nodes],
                "sites": sites,
            }
        )
        return 0
    echo(f"library: {reason}")
    if assignment is not None:
        echo(f"provider: {assignment.describe()}")
    if nodes:
        named = {name.partition("#")[0] for name, _ in nodes}
        unfused = [(n, site["mechanism"], "plain") for n, site in sites.items() if n not in named]
        print_table([("node", "operator", "path"), *((n, o, path) for n, o in nodes), *unfused])
        echo("path: kernel, a fused kernel of the library; body, standard operators in its place")
        if unfused:
            echo("plain: attention of standard operators only")
    else:
        echo("no nystra nodes: plain ONNX")
    for key in sorted(metadata):
        if key not in (key_of("attention"), key_of("io")):
            echo(f"{key}: {_excerpt(metadata[key])}")
    return 0


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    return f"{line[:_LONGEST]}... ({len(text)} characters, --json prints them)"


def _sites(metadata: ModelMetadata) -> dict[str, Any]:
    sites = metadata.attention_plan().get("sites", {})
    if not isinstance(sites, dict) or not all(
        isinstance(site, dict) and isinstance(site.get("mechanism"), str) for site in sites.values()
    ):
        key = key_of("attention")
        raise NystraError(f"the metadata entry {key} is not a plan: export the model again")
    return sites
