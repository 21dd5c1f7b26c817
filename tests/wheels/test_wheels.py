"""The wheels of all platforms are run: rows of the conformance table and a whole model.

Before a release, on the folder that ``NYSTRA_WHEELS`` names. Each platform that is emulated here
needs programs that the skip names. studies/measurements/platforms.md lists the test of each row.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from exported_files import swinir_files
from machines import REPLAY, downloaded, find_tool, find_wheel, run, unpacked, zig_host
from processor import best_instruction_set
from recorded_rows import Named, record

pytestmark = pytest.mark.release

COMMAND = "import sys; from nystra.cli.main import main; sys.exit(main())"

Model = tuple[Path, Named, float]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A whole model, its inputs, and its tolerance."""
    pixels = np.random.default_rng(0).random((1, 3, 24, 32), np.float32)
    return swinir_files(tmp_path_factory) / "model.onnx", {"input": pixels}, 1e-4


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Path:
    """Every row of the conformance table."""
    folder = tmp_path_factory.mktemp("rows") / "all"
    record(folder, models=[model])
    return folder


@pytest.fixture(scope="module")
def few_rows(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Path:
    """Every fourth row, for an emulated processor."""
    folder = tmp_path_factory.mktemp("rows") / "few"
    record(folder, every=4, models=[model])
    return folder


def python_of(version: str) -> Path:
    """A working interpreter of that version; the command may be a shim without one."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(root.glob(f"versions/{version}.*/bin/python"))
    if not found and (command := shutil.which(f"python{version}")):
        found = [Path(command)]
    if not found:
        pytest.skip(f"no Python {version} on this machine")
    return found[0]


@pytest.mark.parametrize("isa", ["generic", "avx2", ""])
@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_manylinux_x86_64(
    version: str, isa: str, rows: Path, model: Model, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The wheel in its own environment, by pip; "": the best set of this processor."""
    wheel = find_wheel("manylinux*x86_64")
    folder = tmp_path_factory.getbasetemp() / f"python{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        run(python_of(version), "-m", "venv", "--without-pip", folder)
        run(sys.executable, "-m", "pip", "-q", "--python", python, "install", f"{wheel}[ort]")
    printed = run(python, REPLAY, rows, env={"NYSTRA_CPU_ISA": isa} if isa else {})
    assert f"instruction set {isa or best_instruction_set()}\n" in printed
    run(folder / "bin" / "nystra", "validate", model[0])


def test_manylinux_aarch64(few_rows: Path, model: Model, tmp_path: Path) -> None:
    """The wheel in Debian's Python for 64-bit ARM, with onnxruntime's own wheel, under QEMU."""
    emulator = find_tool("qemu-aarch64-static", "qemu-user-static")
    mmdebstrap = find_tool("mmdebstrap", "mmdebstrap")
    root, packages = tmp_path / "root", tmp_path / "packages"
    packages_of_debian = "--include=python3.11,libstdc++6"
    run(mmdebstrap, "-q", "--variant=extract", "--arch=arm64", packages_of_debian, "bookworm", root)
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    # QEMU 7.2 does not load onnxruntime 1.32.
    wheel = f"{find_wheel('manylinux*aarch64')}[ort]"
    downloaded(wheel, platforms, packages, "onnxruntime==1.24.4")
    python = [emulator, "-L", root, root / "usr" / "bin" / "python3.11"]
    env = {"PYTHONPATH": str(packages)}
    printed = run(*python, REPLAY, few_rows, env=env)
    assert "instruction set generic" in printed
    run(*python, "-c", COMMAND, "validate", model[0], env=env)


def test_musllinux_x86_64(rows: Path, tmp_path: Path) -> None:
    """The library in a program of musl; there is no onnxruntime for musl on the index."""
    find_tool("/lib/ld-musl-x86_64.so.1", "musl")
    libraries = unpacked("musllinux*x86_64", tmp_path / "wheel")
    program = zig_host("replay_kernels", "x86_64-linux-musl", tmp_path, "-dynamic", "-fPIC", "-pie")
    printed = run("/lib/ld-musl-x86_64.so.1", program, libraries / "libnystra_cpu.so", rows)
    assert f"instruction set {best_instruction_set()}\n" in printed


def test_windows(rows: Path, tmp_path: Path) -> None:
    """Both libraries under Wine: the C interface, and operators in onnxruntime's own DLL."""
    wine = find_tool("wine64", "wine64")
    libraries = unpacked("win_amd64", tmp_path / "wheel")
    env = {"WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all", "HOME": str(tmp_path)}
    kernels = zig_host("replay_kernels", "x86_64-windows-gnu", tmp_path)
    printed = run(wine, kernels, libraries / "libnystra_cpu.dll", rows, env=env)
    assert f"instruction set {best_instruction_set(tiles=False)}\n" in printed.replace("\r", "")
    onnxruntime = downloaded("onnxruntime", ["win_amd64"], tmp_path / "packages", "--no-deps")
    models = zig_host("replay_models", "x86_64-windows-gnu", tmp_path)
    engine = onnxruntime / "onnxruntime" / "capi" / "onnxruntime.dll"
    run(wine, models, engine, libraries / "libnystra_onnxruntime.dll", rows, env=env)
