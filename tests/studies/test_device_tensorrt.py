"""TensorRT as packed for a GPU of one architecture: it still builds a network and a parser."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from studies.device.packing import make_parser
from studies.device.prune import prune_file


def _sdk() -> Path:
    root = os.environ.get("NYSTRA_TENSORRT10_ROOT")
    if not root:
        pytest.skip("no TensorRT here: NYSTRA_TENSORRT10_ROOT is not set")
    return Path(root)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The bindings only, which load the libraries that the loader finds."""
    folder = tmp_path / "site"
    shutil.copytree(_sdk() / "python" / "tensorrt_bindings", folder / "tensorrt_bindings")
    (folder / "tensorrt.py").write_text(
        "from tensorrt_bindings import *\nfrom tensorrt_bindings import __version__\n"
    )
    return folder


@pytest.mark.release
def test_pruned_libraries_make_a_network_and_a_parser(site: Path, tmp_path: Path) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir()
    zeroed = 0
    for file in (_sdk() / "lib").iterdir():
        if "libnvinfer_vc_plugin" not in file.name:
            zeroed += prune_file(file, libraries / file.name, 90).zeroed
    assert zeroed > 10**8
    made = make_parser(site, libraries)
    assert '"parser": "made, 0 errors"' in made
    damaged = libraries / "libnvonnxparser.so.10"
    damaged.write_bytes(bytes(64) + damaged.read_bytes()[64:])
    with pytest.raises(SystemExit, match="ended with 1"):
        make_parser(site, libraries)


def test_libraries_as_they_come_make_them_too(site: Path) -> None:
    assert '"network": "made"' in make_parser(site, _sdk() / "lib")
