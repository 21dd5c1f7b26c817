"""Programs that run the wheels of other platforms on this machine; skips without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from shared import ROOT

VARIABLE = "NYSTRA_WHEELS"
"""The environment variable that names the folder of the wheels."""

HOST = Path(__file__).with_name("host")
REPLAY = Path(__file__).with_name("replay.py")


def find_wheel(platform: str) -> Path:
    """Return the wheel whose name ends so, or skip the test."""
    if not (folder := os.environ.get(VARIABLE)):
        pytest.skip(f"no wheels: .ci/wheels DIR, then {VARIABLE}=DIR")
    found = sorted(Path(folder).glob(f"nystra-*{platform}.whl"))
    if not found:
        pytest.skip(f"no wheel of {platform} in {folder}")
    assert len(found) == 1, found
    return found[0].absolute()


def unpacked(platform: str, folder: Path) -> Path:
    """Unpack a wheel; return the folder of its libraries."""
    with zipfile.ZipFile(find_wheel(platform)) as archive:
        archive.extractall(folder)
    return folder / "nystra" / "plugins"


def find_tool(command: str, package: str) -> str:
    """Return the path of a program, or skip the test and name Debian's package."""
    found = shutil.which(command, path=os.pathsep.join([os.environ["PATH"], "/usr/lib/wine"]))
    if found is None:
        pytest.skip(f"no {command} on this machine: apt-get install {package}")
    return found


def run(*command: object, env: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; it must not fail."""
    words = [str(word) for word in command]
    environment = None if env is None else {**os.environ, **env}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, f"{words[0]}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def zig_host(program: str, target: str, folder: Path, *options: str) -> Path:
    """Return a program of ``host``, compiled by Zig for a platform."""
    tools = ROOT / "build" / "wheel-tools"
    python = tools / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("no Zig: .ci/wheels installs it")
    compiler = ["env", f"ZIG_GLOBAL_CACHE_DIR={tools / 'zig'}", str(python), "-m", "ziglang", "c++"]
    compiler += ["-target", target, "-fno-sanitize=undefined"]
    return compiled(compiler, program, folder, *options)


def compiled(compiler: list[str], program: str, folder: Path, *options: str) -> Path:
    """Return a program of ``host``, compiled."""
    built = folder / f"{program}.exe"
    sources = [HOST / "rows.cc", HOST / f"{program}.cc"]
    includes = [f"-I{ROOT / 'plugins' / 'csrc'}", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    run(*compiler, "-O1", *includes, *options, *sources, "-o", built)
    return built


def downloaded(project: str, platforms: list[str], folder: Path, *options: str) -> Path:
    """Install a project for another platform into a folder; its Python is 3.11."""
    choice = [f"--platform={platform}" for platform in platforms]
    choice += ["--python-version=3.11", "--only-binary=:all:", *options]
    run(sys.executable, "-m", "pip", "install", "-q", *choice, "--target", folder, project)
    return folder
