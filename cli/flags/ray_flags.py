"""The flags of ``nystra run`` that spread it over a Ray cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...core.errors import NystraError
from .option_flags import add_options

if TYPE_CHECKING:
    from ...runtime.distributed.options import ClusterOptions


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    from ...runtime.distributed.options import ClusterOptions

    cluster = parser.add_argument_group("several machines (needs the extra ray)")
    add_options(cluster, ClusterOptions, ("address", "workers"))
    cluster.set_defaults(address=None)  # no cluster


def cluster_options(args: argparse.Namespace) -> ClusterOptions | None:
    """Return what was given, or None without ``--ray``.

    Raises:
        NystraError: It is not an address, ``--workers`` was given without one, or ``--jobs`` with
            it.
    """
    if args.address is None:
        if args.workers is not None:
            raise NystraError("--workers goes with --ray local or --ray HOST:PORT: give one")
        return None
    if args.jobs is not None:
        raise NystraError("--jobs and --ray contradict each other: use --workers with --ray")
    from ...runtime.distributed.options import ClusterOptions

    threads = 1 if args.threads is None else args.threads
    return ClusterOptions(args.address, args.workers, threads, args.library)
