"""Groups of tests that one process runs: those of a file, which share fixtures, or of a column.

pytest-xdist's own groups are marks that the workers write into the tests' names, which pytest 9.2
no longer allows; then every worker creates every fixture.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMN = re.compile(r"::test_(?:refused_)?row\[.*\]-([\w-]+)\]$")

FIRST = (
    "test_generated_networks.py",
    "test_conformance.py",
    "test_accelerate.py",
    "test_hostile_files.py",
)
"""The groups that take longest, so that none of them begins when the others are done."""


def group_of(node: str) -> str:
    """Return the group of a test.

    Args:
        node: Its id: ``tests/plugins/test_conformance.py::test_row[NystraPinv[...]-cpu-avx512]``.

    Returns:
        The column that a row of the conformance table runs on, or the name of the file.
    """
    row = _COLUMN.search(node)
    return row[1] if row else node.split("::")[0].rpartition("/")[2]


def rank(group: str) -> int:
    """Return the rank of a group: lower ranks start earlier."""
    return FIRST.index(group) if group in FIRST else len(FIRST)


def scheduler(config: Any, log: Any) -> Any:
    """Return the scheduler that assigns whole groups to workers."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        """The groups, the longest first."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            queue: Mapping[str, Any] = self.workqueue
            first = min(queue, key=rank)
            self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return Groups(config, log)
