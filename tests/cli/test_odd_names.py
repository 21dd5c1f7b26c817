"""Names of files that the system's encoding, or UTF-8, cannot say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nystra.core.json_text import stable_json, utf8_text
from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata, save_upscaler

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only there a name may be any bytes"
)

IN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(*arguments: str | bytes) -> tuple[int, str]:
    command = [sys.executable, "-m", "nystra.cli.main", "run", *arguments, "-q"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **IN_C}, check=False)
    return done.returncode, done.stderr.decode()


@pytest.mark.full
def test_names_in_the_locale_c(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    model = save_upscaler(tmp_path / "mü.onnx", metadata=nystra_metadata())
    write_image(tmp_path / "bü.png", ImageData(np.zeros((8, 8, 3), np.float32)))
    given = ("-i", folder + "/bü.png".encode(), "-o", folder + b"/o\xff.png")
    assert run(os.fsencode(model), *given) == (0, "")
    assert os.path.getsize(folder + b"/o\xff.png") > 0
    named = folder + b"/n\xff.onnx"
    os.rename(model, named)
    code, errors = run(named, *given, "--overwrite")
    assert code == 2
    assert errors.endswith("not UTF-8, and onnxruntime cannot open it: rename it\n")
    assert len(errors.splitlines()) == 1


def test_json_of_such_names() -> None:
    names = {os.fsdecode(b"a\xff"): "ü", "b": os.fsdecode("ü".encode()), "c": "\ud800"}
    text = stable_json(names).decode()
    assert r'"a\\xff": "ü"' in text
    assert utf8_text("\udcc3\udcbc") == "ü"
    assert utf8_text("\ud800") == r"\xed\xa0\x80"
