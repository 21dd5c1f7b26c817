"""The flags that say how attention is computed, made from the parameters of the mechanisms."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import File
from ...export.attention.as_trained.parameters import AsTrained
from ...export.attention.plan import Plan, read_plan
from ...export.attention.registry import mechanism, mechanism_class, mechanism_names
from .option_flags import add_options
from .shared_flags import Records, add_shared_options, flag_among, read_given_texts, read_shared

if TYPE_CHECKING:
    from ...export.auto_options import AutoOptions

AUTO = "auto"
"""The value of ``--attn`` with which `export.auto` chooses the plan."""

AUTO_SUMMARY = "the fastest uniform plan above --min-psnr"


@dataclass(frozen=True)
class PlanOptions(Options):
    """Where a plan is read from."""

    plan: Path | None = option(File(None, "a plan file: the mechanism of each site"))


@dataclass(frozen=True)
class SearchOptions(Options):
    """Options of the search, in addition to those of an export."""

    costs: Path | None = option(
        File(
            None,
            "table of attention times: read if it exists, otherwise measured and written",
        )
    )


def add_mechanism_argument(parser: argparse.ArgumentParser, *, auto: bool = False) -> None:
    """Add ``--attn``.

    Args:
        parser: Of a command.
        auto: The command takes ``--attn auto`` too.
    """
    texts = {name: mechanism_class(name).summary for name in mechanism_names()}
    texts |= {AUTO: AUTO_SUMMARY} if auto else {}
    summaries = "; ".join(f"{name}: {summary}" for name, summary in texts.items())
    parser.add_argument(
        "--attn",
        dest="mechanism",
        metavar="MECHANISM",
        help=f"{summaries} (default: as_trained)",
    )


def add_plan_arguments(parser: argparse._ActionsContainer) -> None:
    """Add what decides on single sites: a plan file, and sites that stay exact."""
    add_options(parser, PlanOptions)
    parser.add_argument(
        "--keep-full",
        action="append",
        default=[],
        metavar="SITE",
        help="keep exact attention at this site; may be repeated",
    )


def add_parameter_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each parameter of any mechanism, in groups by the mechanisms that have it."""
    add_shared_options(parser, _records(), "--attn {}")


def _records() -> Records:
    return {name: mechanism_class(name) for name in mechanism_names()}


def plan_from(args: argparse.Namespace) -> Plan:
    """Return the plan given on the command line.

    Raises:
        NystraError: An unknown mechanism, a flag that does not apply to it or a value out of
            range, or --plan together with the flags it excludes.
    """
    texts = read_given_parameters(args)
    if args.plan is not None:
        _refuse_with_a_plan(args, texts)
        return read_plan(args.plan).keep_full(args.keep_full)
    if args.mechanism is None and not texts:
        return Plan(AsTrained()).keep_full(args.keep_full)
    name = args.mechanism or "full"
    if name == AUTO:
        raise NystraError(
            "--attn auto is for nystra-export, which writes the plan next to the model file: "
            "give that file with --plan"
        )
    names = mechanism_names()
    if name not in names:
        raise NystraError(
            f"--attn {name!r:.40} is unknown; known are {', '.join(names)}, and for nystra-export "
            + AUTO
        )
    values = read_shared(args, _records(), name, "--attn {}")
    return Plan(mechanism(name, **values)).keep_full(args.keep_full)


def read_given_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the texts of the parameters that are on the command line, by name."""
    return read_given_texts(args, _records())


def _refuse_with_a_plan(args: argparse.Namespace, texts: dict[str, Any]) -> None:
    flags = [
        *(["--attn"] if args.mechanism is not None else []),
        *(parameter_flag(name) for name in texts),
    ]
    if flags:
        raise NystraError(
            f"--plan and {flags[0]} contradict each other: the plan holds every parameter"
        )


def parameter_flag(name: str) -> str:
    """Return the flag of a parameter, whichever mechanism has it."""
    return flag_among(_records(), name)


def add_auto_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what goes with ``--attn auto``."""
    group = parser.add_argument_group(
        "--attn auto",
        "the fastest plan that stays above --min-psnr (default: 50) on the images of --calibrate",
    )
    add_options(group, SearchOptions)


def plan_or_auto(args: argparse.Namespace) -> Plan | AutoOptions:
    """Return the plan of the command line, or how to search for one.

    Raises:
        NystraError: As `plan_from`; flags that need ``--attn auto``, or do not go with it.
    """
    if args.mechanism != AUTO or args.plan is not None:
        if args.costs is not None:
            raise NystraError("--costs is for --attn auto: add that, or omit --costs")
        return plan_from(args)
    texts = read_given_parameters(args)
    if texts:
        flag = parameter_flag(next(iter(texts)))
        raise NystraError(
            f"{flag} does not apply to --attn auto, which chooses it: omit it, or name a mechanism"
        )
    from ...export.auto_options import AutoOptions

    return AutoOptions(args.costs, tuple(args.keep_full))
