"""An operator that the search has no rule for is named, and one row makes it known."""

from pathlib import Path

import pytest

from toy_rule import TOY, file_behind_it
from toy_tree import NYSTRA, planted, run_in


@pytest.mark.full
def test_a_row_is_enough(tmp_path: Path) -> None:
    model = file_behind_it(tmp_path / "theirs.onnx")
    for name, toys in (("before", ()), ("after", (TOY,))):
        tree = planted(tmp_path / name, *toys)
        done = run_in(tree, NYSTRA, "inspect", model)
        assert done.returncode == 0, done.stderr
        said = "served as a list of tokens: ExpandDims between the map and the tokens"
        assert (said in done.stderr, "window 4x4" in done.stdout) == (not toys, bool(toys))
