"""The flags of ``--attn auto``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import File
from .option_flags import add_options
from .plan_flags import AUTO, given_parameters, parameter_flag, plan_from

if TYPE_CHECKING:
    from ...export.attention.plan import Plan
    from ...export.auto_options import AutoOptions


@dataclass(frozen=True)
class SearchOptions(Options):
    """Options of the search, in addition to those of an export."""

    costs: Path | None = option(
        File(
            None,
            "table of attention times: read if it exists, otherwise measured and written",
        )
    )


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
    texts = given_parameters(args)
    if texts:
        flag = parameter_flag(next(iter(texts)))
        raise NystraError(
            f"{flag} does not apply to --attn auto, which chooses it: omit it, or name a mechanism"
        )
    from ...export.auto_options import AutoOptions

    return AutoOptions(args.costs, tuple(args.keep_full))
