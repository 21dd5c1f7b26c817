"""What may take a site's place: the table that `--attn auto` chooses from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..attention.computing import as_trained, geometry_for, unserved
from ..attention.mechanism import Mechanism
from ..attention.registry import MECHANISMS, mechanism
from ..attention.site import Site

TABLE: tuple[tuple[str, dict[str, Any], bool], ...] = (
    ("nystra", {"landmarks": (2, 4)}, False),
    ("nystra", {"landmarks": (4, 4)}, True),
    ("nystra", {"landmarks": (4, 8)}, False),
    ("nystromformer", {"landmarks": (2, 4)}, False),
    ("nystromformer", {"landmarks": (4, 4)}, True),
    ("nystromformer", {"landmarks": (4, 8)}, False),
    ("cluster", {"clusters": (2, 2), "block": 4}, True),
    ("cluster", {"clusters": (4, 4), "block": 4}, True),
    ("cluster", {"clusters": (8, 8), "block": 4}, False),
    ("cluster", {"clusters": (2, 2), "block": 8}, False),
    ("cluster", {"clusters": (4, 4), "block": 8}, True),
    ("cluster", {"clusters": (8, 8), "block": 8}, False),
    ("psal", {}, False),
)
"""Mechanism, parameters, and whether it is in the coarse set, for networks that take long."""


def candidates(site: Site, *, coarse: bool = False) -> list[Mechanism]:
    """Return what may be computed at a site: as trained first, then the rows that serve it.

    Rows of mechanisms that are not registered are left out.
    """
    rows = [
        mechanism(name, **parameters)
        for name, parameters, always in TABLE
        if name in MECHANISMS and (always or not coarse)
    ]
    served = [
        row.at(geometry_for(row, site.module)) for row in rows if not unserved(row, site.module)
    ]
    return [as_trained(site.module), *dict.fromkeys(served)]


def uniform_plans(
    options: Mapping[str, Sequence[Mechanism]],
) -> dict[str, dict[str, Mechanism]]:
    """Return the plans of one candidate everywhere that it serves, by its text.

    Args:
        options: Candidates of every site, as trained first, which stays where one does not serve.
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
