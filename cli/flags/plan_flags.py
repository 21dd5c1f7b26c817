"""The flags that say how attention is computed, made from the parameters of the mechanisms."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...export.attention.as_trained.parameters import AsTrained
from ...export.attention.plan import Plan, read_plan
from ...export.attention.registry import MECHANISMS, mechanism, mechanism_class, refuse_foreign
from .option_flags import add_option, flag_of

AUTO = "auto"
"""The word in the place of a mechanism that lets `export.auto` choose."""


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how attention is computed: the mechanism, and a flag for each parameter of any."""
    told = "; ".join(f"{name}: {mechanism_class(name).summary}" for name in MECHANISMS)
    parser.add_argument(
        "--attn",
        dest="mechanism",
        metavar="MECHANISM",
        help=f"{told} (default: as_trained, which mostly is full)",
    )
    parser.add_argument("--plan", type=Path, metavar="FILE", help="a plan file, site by site")
    parser.add_argument(
        "--keep-full",
        action="append",
        default=[],
        metavar="SITE",
        help="exact attention at this site, whatever --attn or --plan says; may be repeated",
    )
    groups: dict[tuple[str, ...], Any] = {}
    for name, users in _users().items():
        kind = mechanism_class(users[0]).declared()[name]
        if users not in groups:
            groups[users] = parser.add_argument_group(f"--attn {', '.join(users)}")
        add_option(groups[users], name, kind)  # read when the mechanism is known


def _users() -> dict[str, tuple[str, ...]]:
    """Return the names of all parameters, each with the mechanisms that have it."""
    users: dict[str, tuple[str, ...]] = {}
    for user in MECHANISMS:
        for name in mechanism_class(user).declared():
            users[name] = (*users.get(name, ()), user)
    return users


def plan_from(args: argparse.Namespace) -> Plan:
    """Return the plan given on the command line.

    Raises:
        NystraError: An unknown mechanism, a flag that does not apply to it or a value out of
            range, or --plan together with the flags it excludes.
    """
    given = given_parameters(args)
    if args.plan is not None:
        _refuse_beside_a_plan(args, given)
        return read_plan(args.plan).keep_full(args.keep_full)
    if args.mechanism is None and not given:
        return Plan(AsTrained()).keep_full(args.keep_full)
    name = args.mechanism or "full"
    if name == AUTO:
        raise NystraError(
            "--attn auto is for nystra-export, which writes the plan that it finds beside the "
            "model file: give that one with --plan"
        )
    if name not in MECHANISMS:
        raise NystraError(f"--attn {name!r:.40} is unknown; known are {', '.join(MECHANISMS)}")
    kind = mechanism_class(name)
    values = {}
    for key, text in given.items():
        refuse_foreign(key, spelled(key), kind, f"--attn {name}")
        values[key] = kind.declared()[key].read(key, text)
    return Plan(mechanism(name, **values)).keep_full(args.keep_full)


def given_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the texts of the parameters that are on the command line, by name."""
    return {name: getattr(args, name) for name in _users() if getattr(args, name) is not None}


def _refuse_beside_a_plan(args: argparse.Namespace, given: dict[str, Any]) -> None:
    flags = [
        *(["--attn"] if args.mechanism is not None else []),
        *(spelled(name) for name in given),
    ]
    if flags:
        raise NystraError(f"--plan and {flags[0]} contradict each other: the plan says it all")


def spelled(name: str) -> str:
    """Return the flag of a parameter, whichever mechanism has it."""
    return flag_of(name, mechanism_class(_users()[name][0]).declared()[name])
