"""The candidates of a site for `--attn auto`."""

from __future__ import annotations

from ..attention.implementation import as_trained, find_unsupported_reason, geometry_for
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
        if not find_unsupported_reason(row, site.module)
    ]
    return [as_trained(site.module), *dict.fromkeys(served)]
