"""The candidates of a site for `--attn auto`."""

from __future__ import annotations

from ..attention.implementation import find_unsupported_reason, geometry_for
from ..attention.mechanism import Mechanism
from ..attention.registry import MECHANISMS, mechanism, mechanism_class
from ..attention.site import Site


def candidates(site: Site, *, coarse: bool = False) -> dict[Mechanism, Mechanism]:
    """Return the candidates that a site supports, each with its parameters there.

    Blocks and clusters depend on the geometry: one candidate may have others at each site. Those
    that are slower than exact attention whatever the machine are left out.
    """
    rows = [
        mechanism(name, **parameters)
        for name in MECHANISMS
        for parameters, always in mechanism_class(name).candidates
        if always or not coarse
    ]
    served = {}
    for row in rows:
        geometry = geometry_for(row, site.module)
        if find_unsupported_reason(row, site.module) or row.slower_than_exact(geometry):
            continue
        served[row] = row.at(geometry)
    return served
