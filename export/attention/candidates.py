"""The candidates of a site for `--attn auto`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..attention.implementation import as_trained, geometry_for, unsupported_reason
from ..attention.mechanism import Mechanism
from ..attention.registry import MECHANISMS, mechanism, mechanism_class
from ..attention.site import Site


def candidates(site: Site, *, coarse: bool = False) -> list[Mechanism]:
    """Return the candidates of a site: as trained first, then the mechanisms that support it."""
    rows = [
        mechanism(name, **parameters)
        for name in MECHANISMS
        for parameters, always in mechanism_class(name).candidates
        if always or not coarse
    ]
    served = [
        row.at(geometry_for(row, site.module))
        for row in rows
        if not unsupported_reason(row, site.module)
    ]
    return [as_trained(site.module), *dict.fromkeys(served)]


def uniform_plans(
    options: Mapping[str, Sequence[Mechanism]],
) -> dict[str, dict[str, Mechanism]]:
    """Return the plans with one candidate at all sites that support it, by its text.

    Args:
        options: Candidates of every site, as trained first, which is used if another is not
            supported.
    """
    names: Iterable[str] = dict.fromkeys(
        str(mechanism) for row in options.values() for mechanism in row[1:]
    )
    return {
        name: {
            path: next((mechanism for mechanism in row if str(mechanism) == name), row[0])
            for path, row in options.items()
        }
        for name in names
    }
