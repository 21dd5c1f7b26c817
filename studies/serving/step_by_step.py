"""``nystra`` with folders of images processed one step after the other: read, run, write."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from nystra.cli.main import main
from nystra.runtime.tasks.restoration import pools
from nystra.runtime.tasks.restoration.sequential import attempt


def step_by_step(job: Any, pairs: Sequence[Any], **_: Any) -> Iterator[tuple[int, Any]]:
    """Yield index and result of each image."""
    for index, pair in enumerate(pairs):
        yield index, attempt(job, pair)


if __name__ == "__main__":
    for name in ("most_pixels", "one_by_one"):
        assert hasattr(pools, name), name
    pools.most_pixels, pools.one_by_one = lambda *_: 0, step_by_step
    sys.exit(main(sys.argv[1:]))
