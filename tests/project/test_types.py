"""mypy --strict over the package as it is imported.

Static checkers do not follow the import hook of an editable install, so the package is laid
out with links first.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from shared import PACKAGES, ROOT


@pytest.mark.full
def test_annotations(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    package = tmp_path / "nystra"
    package.mkdir()
    (package / "__init__.py").write_text('__version__: str = ""\n')
    (package / "py.typed").touch()
    for name in PACKAGES:
        (package / name).symlink_to(ROOT / name, target_is_directory=True)
    (tmp_path / "studies").symlink_to(ROOT / "studies", target_is_directory=True)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    checked = subprocess.run(
        [
            *command,
            "--cache-dir",
            str(ROOT / "build/mypy"),
            "-p",
            "nystra",
            "-p",
            "studies.training",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
