"""The CUDA kernels compiled for the host under the block emulator: building the libraries.

``python3 tests/plugins/emulator_build.py plain asan race`` builds those named; it needs Python and
g++.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "plugins" / "csrc"
EMULATOR = ROOT / "tests" / "plugins" / "emulator"
KERNELS = sorted((CSRC / "kernels" / "cuda").glob("*.cu"))
CACHE = ROOT / "build" / "emulator"
TABLES = CACHE / "tables"
HARNESS = [*sorted((CSRC / "operators").glob("*.cc")), *sorted(EMULATOR.glob("*.cc"))]
HARNESS.append(TABLES / "operators" / "relations.cc")

FLAGS = [
    "-std=c++17",
    "-fPIC",
    "-g1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-fno-strict-aliasing",
    "-DNYSTRA_BLOCK_EMULATOR",
    '-DNYSTRA_VERSION="0.0.0"',
    "-Itests/plugins/emulator",
    "-Iplugins/csrc",
    f"-I{TABLES.relative_to(ROOT)}",
]
KERNEL_FLAGS: dict[str, list[str]] = {
    "plain": ["-O1"],
    "asan": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "race": ["-O1", "-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"],
}
HARNESS_FLAGS = {**KERNEL_FLAGS, "race": ["-O2", "-DNYSTRA_EMULATOR_RACES"]}
LINK_FLAGS = {"plain": [], "asan": KERNEL_FLAGS["asan"], "race": ["-Wl,-z,defs"]}


class EmulatorError(RuntimeError):
    """A kernel failed under the emulator; the text is the emulator's report."""


def missing() -> str | None:
    """Why the emulator cannot run on this machine, or None."""
    if shutil.which("g++") is None:
        return "no g++ on this machine: the CUDA kernels are not emulated"
    if os.uname().sysname != "Linux":
        return "the block emulator runs on Linux"
    return None


@functools.cache
def write_tables() -> None:
    """Write the tables of the operators, as CMake does."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "tables.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run side by side
        subprocess.run([sys.executable, str(CSRC / "write_tables.py"), str(TABLES)], check=True)


def _key(kind: str) -> str:
    write_tables()
    digest = hashlib.sha256(kind.encode())
    version = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    digest.update(version + repr((FLAGS, KERNEL_FLAGS, HARNESS_FLAGS, LINK_FLAGS)).encode())
    folders = [CSRC / "kernels", CSRC / "operators", EMULATOR, TABLES]
    for file in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def build(kind: str = "plain") -> Path:
    """Return the library of that build, compiled if the cache has none of these sources.

    Args:
        kind: ``plain``, ``asan`` (AddressSanitizer and UBSan) or ``race`` (the race detector).

    Raises:
        EmulatorError: g++ refused the sources.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run side by side
        library = CACHE / f"{kind}-{_key(kind)}.so"
        if library.is_file():
            return library
        for old in CACHE.glob(f"{kind}-*"):
            old.unlink()
        unfinished = library.with_suffix(".tmp")
        compile_library(kind, [*KERNELS, *HARNESS], unfinished)
        unfinished.rename(library)
        return library


def compile_library(
    kind: str, sources: list[Path], library: Path, more: Sequence[str] = ()
) -> None:
    """Compile kernels (``.cu``) and what drives them (``.cc``) into a library of that build.

    The sources are compiled side by side, the largest first, with ``more`` flags at the end.

    Raises:
        EmulatorError: g++ refused the sources.
    """

    write_tables()

    def compile_one(source: Path) -> Path:
        target = library.with_name(f"{library.stem}-{source.name}.o")
        flags = KERNEL_FLAGS if source.suffix == ".cu" else HARNESS_FLAGS
        _compile([*FLAGS, *flags[kind], *more, "-x", "c++", "-c", str(source), "-o", str(target)])
        return target

    largest_first = sorted(sources, key=lambda source: -source.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compile_one, largest_first))
    _compile(["-shared", *LINK_FLAGS[kind], *map(str, objects), "-ldl", "-o", str(library)])
    for file in objects:
        file.unlink()


def _compile(arguments: list[str]) -> None:
    done = subprocess.run(
        ["g++", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EmulatorError(f"g++ {' '.join(arguments)}\n{done.stderr}")


def environment(kind: str) -> dict[str, str]:
    """What a process that loads the library needs in its environment."""
    if kind != "asan":
        return {}
    names = [
        subprocess.run(
            ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    options = "detect_leaks=0:abort_on_error=0:detect_stack_use_after_return=0"
    return {"LD_PRELOAD": " ".join(names), "ASAN_OPTIONS": options}


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        print(build(kind))  # noqa: T201
