"""An operator that the search has no rule for is named, and one row makes it known."""

from pathlib import Path

import pytest

from nystra.cli.main import main
from toy_rule import TOY, file_behind_it
from toy_tree import NYSTRA, planted, run_in


@pytest.mark.full
def test_a_row_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = file_behind_it(tmp_path / "theirs.onnx")
    assert main(["inspect", str(model)]) == 0
    before = capsys.readouterr()
    after = run_in(planted(tmp_path, TOY), NYSTRA, "inspect", model)
    assert after.returncode == 0, after.stderr
    said = "served as a list of tokens: ExpandDims between the map and the tokens"
    assert (said in before.err, "window 4x4" in before.out) == (True, False)
    assert (said in after.stderr, "window 4x4" in after.stdout) == (False, True)
