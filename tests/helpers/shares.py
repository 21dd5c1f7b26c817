"""Shares of the tests: `.ci/run` runs a quarter of the slow ones, which depends on the commit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ALWAYS = ("tests/project/test_types.py::", "tests/project/test_tokens.py::")
"""The tests of every share: what they find may come with any change."""


def is_in(node: str, share: str) -> bool:
    """Return whether a test is in a share.

    Args:
        node: Its id: ``tests/plugins/test_library.py::test_wrong_shape[...]``.
        share: Number of the share and how many there are: ``2/4``.
    """
    number, count = map(int, share.split("/"))
    return node.startswith(ALWAYS) or zlib.crc32(node.encode()) % count == number - 1


def leave_out(items: list[pytest.Item], share: str) -> list[pytest.Item]:
    """Remove the tests of other shares from a list, and return them."""
    chosen, left_out = [], []
    for item in items:
        (chosen if is_in(item.nodeid, share) else left_out).append(item)
    items[:] = chosen
    return left_out
