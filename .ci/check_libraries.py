"""Checks the native libraries of a wheel for Windows or macOS, as auditwheel does for Linux.

    python check_libraries.py WHEEL

They are for the processor that the wheel's name says, need nothing but what the system has, and
have the functions that nystra calls; those for macOS run on the oldest system that the name says,
and are signed, without which ARM Macs load nothing. Needs lief.
"""

from __future__ import annotations

import fnmatch
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import lief

FUNCTIONS = {
    "libnystra_cpu": {"nystra_cpu_interface", "nystra_cpu_outputs", "nystra_cpu_run", "nystra_isa"},
    "libnystra_onnxruntime": {"RegisterCustomOps", "nystra_isa"},
}
SYSTEM = ("kernel32.dll", "api-ms-win-crt-*.dll", "/usr/lib/libsystem.b.dylib")
WINDOWS_PROCESSORS = {"amd64": lief.PE.Header.MACHINE_TYPES.AMD64}
MACOS_PROCESSORS = {
    "arm64": lief.MachO.Header.CPU_TYPE.ARM64,
    "x86_64": lief.MachO.Header.CPU_TYPE.X86_64,
}


@dataclass
class Facts:
    """What a library is, and what its wheel's name says that it should be."""

    processor: tuple[object, object]
    needs: set[str]
    functions: set[str]
    oldest: tuple[object, object] = ("", "")
    signed: bool = True


def windows_facts(library: lief.PE.Binary, tag: str) -> Facts:
    """Read a library of a wheel ``win_amd64``."""
    processor = WINDOWS_PROCESSORS[tag.partition("_")[2]]
    needs = {needed.name.lower() for needed in library.imports}
    functions = {entry.name for entry in library.get_export().entries}
    return Facts((library.header.machine, processor), needs, functions)


def macos_facts(library: lief.MachO.Binary, tag: str, name: str) -> Facts:
    """Read a library of a wheel ``macosx_11_0_arm64``."""
    major, minor, processor = re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", tag).groups()
    own = f"@rpath/{name}".lower()  # the library's own name is among them
    needs = {needed.name.lower() for needed in library.libraries} - {own}
    functions = {symbol.name.removeprefix("_") for symbol in library.exported_symbols}
    return Facts(
        (library.header.cpu_type, MACOS_PROCESSORS[processor]),
        needs,
        functions,
        (tuple(library.build_version.minos[:2]), (int(major), int(minor))),
        library.has_code_signature or processor != "arm64",
    )


def faults(name: str, data: bytes, tag: str) -> list[str]:
    """Return what is wrong with a library of a wheel of a platform."""
    library = lief.parse(list(data))
    if tag.startswith("win"):
        facts = windows_facts(library, tag)
    else:
        facts = macos_facts(library, tag, name)
    found = [
        f"{what} {got}; expected {want}"
        for what, (got, want) in (("processor", facts.processor), ("oldest system", facts.oldest))
        if got != want
    ]
    foreign = [one for one in facts.needs if not any(fnmatch.fnmatch(one, s) for s in SYSTEM)]
    found += [f"needs {one}" for one in sorted(foreign)]
    found += [f"has no {one}" for one in sorted(FUNCTIONS[Path(name).stem] - facts.functions)]
    return found if facts.signed else [*found, "is not signed"]


def main() -> None:
    """Check the wheel that the command line names; end with what is wrong."""
    wheel = Path(sys.argv[1])
    tag = wheel.stem.split("-")[-1]
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith((".dll", ".dylib"))]
        if {Path(name).stem for name in members} != set(FUNCTIONS):
            sys.exit(f"{wheel.name} has {members}; expected {', '.join(FUNCTIONS)}")
        wrong = [
            f"{wheel.name}: {member} {fault}"
            for member in members
            for fault in faults(Path(member).name, archive.read(member), tag)
        ]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
