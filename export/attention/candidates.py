"""The candidates of a site for `--attn auto`."""

from __future__ import annotations

from ..attention.implementation import as_trained, find_unsupported_reason, geometry_for
from ..attention.mechanism import Mechanism
from ..attention.registry import MECHANISMS, mechanism, mechanism_class
from ..attention.site import Site


def candidates(site: Site, *, coarse: bool = False) -> list[Mechanism]:
    """Return the candidates of a site: as trained first, then the mechanisms that support it.

    Without those that are slower than exact attention whatever the machine.
    """
    rows = [
        mechanism(name, **parameters)
        for name in MECHANISMS
        for parameters, always in mechanism_class(name).candidates
        if always or not coarse
    ]
    served = []
    for row in rows:
        geometry = geometry_for(row, site.module)
        if find_unsupported_reason(row, site.module) or row.slower_than_exact(geometry):
            continue
        served.append(row.at(geometry))
    return [as_trained(site.module), *dict.fromkeys(served)]
