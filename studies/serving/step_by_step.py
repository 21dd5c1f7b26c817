"""``nystra`` with folders of images processed one step after the other: read, run, write."""

from __future__ import annotations

import sys

from nystra.cli.main import main
from nystra.runtime.tasks.restoration import folder

if __name__ == "__main__":
    for name in ("parallel_limit", "ONE_BY_ONE"):
        assert hasattr(folder, name), name
    folder.parallel_limit, folder.ONE_BY_ONE = lambda *_: 0, 1
    sys.exit(main(sys.argv[1:]))
