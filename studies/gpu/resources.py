"""What the CUDA kernels take of a GPU, as ptxas says: no GPU is needed.

Compiles each kernel source for each architecture with warnings as errors and prints, for every
kernel, its registers, the bytes it spills, its static shared memory and the blocks that a
multiprocessor holds by registers and threads; where cuobjdump and nvdisasm are on PATH (both are
wheels of PyPI, `.ci/tensorrt build` puts them into build/sdk/cuobjdump), also the kinds of
instructions in its code for the last architecture. Dynamic shared memory depends on the shape.
Exits with 1 where a kernel spills or where static shared memory was used.

    CUDACXX=nvcc python -m studies.gpu.resources [--architectures 75,80,90]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "plugins" / "csrc" / "kernels" / "cuda"
ARCHITECTURES = "75,80,86,87,89,90,100,110,120"
REGISTERS = 65536
"""Of a multiprocessor, on every architecture."""
THREADS = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 110: 1536, 120: 1536}
"""Of a multiprocessor; others have 2048."""
BLOCK_THREADS = {f"patch_match_{name}_kernel": 256 for name in ("chunk", "scan", "list")}
"""Of a block; other kernels have 128."""

ENUMERATORS = {
    "Form": ("kernel", "softmax"),  # landmark_passes.h
    "Way": ("workspace", "shared", "tensor cores"),  # landmark_launch.h
    "Area": ("window", "around", "list"),  # softmax_tokens.h
}


class Use(NamedTuple):
    """What one kernel takes on one architecture."""

    kernel: str
    architecture: int
    registers: int
    stack: int
    spilled: int
    shared: int

    @property
    def blocks(self) -> int:
        """Blocks a multiprocessor holds by registers and threads (not by shared memory)."""
        threads = BLOCK_THREADS.get(self.kernel.partition("<")[0], 128)
        warp_registers = -(-self.registers * 32 // 256) * 256
        by_registers = REGISTERS // (warp_registers * threads // 32)
        return min(by_registers, THREADS.get(self.architecture, 2048) // threads)


def short_name(demangled: str) -> str:
    """``landmark_kernel<kernel, half, shared>`` of a demangled entry function."""
    name = re.sub(r"\(anonymous namespace\)::|nystra::cuda::|^void ", "", demangled)
    depth, end = 0, len(name)
    for i, letter in enumerate(name):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            end = i
            break
    name = re.sub(r"\((?:bool|int)\)", "", name[:end])
    for kind, values in ENUMERATORS.items():
        for number, value in enumerate(values):
            name = name.replace(f"({kind}){number}", value)
    return name.replace("__nv_bfloat16", "bfloat16").replace("__half", "half")


def compile_source(nvcc: str, source: Path, architectures: list[int], folder: str) -> list[Use]:
    """Compile one source for all architectures and read what ptxas says of its kernels.

    Raises:
        SystemExit: nvcc refused the source; its messages are printed.
    """
    csrc, tables = ROOT / "plugins" / "csrc", Path(folder) / "tables"
    subprocess.run([sys.executable, str(csrc / "write_tables.py"), str(tables)], check=True)
    command = [nvcc, "-std=c++17", "-O3", f"-I{csrc}", f"-I{tables}", "-c", str(source)]
    command += ["-Werror", "all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror", "-Xptxas", "-v"]
    for architecture in architectures:
        command += ["-gencode", f"arch=compute_{architecture},code=sm_{architecture}"]
    last = architectures[-1]
    command += ["-gencode", f"arch=compute_{last},code=compute_{last}"]
    command += ["-o", str(Path(folder) / f"{source.stem}.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"nvcc refused {source.name}:\n{done.stderr}")
    entry = re.compile(
        r"Compiling entry function '(\w+)' for 'sm_(\d+)\w?'"
        r".*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers([^\n]*)",
        re.DOTALL,
    )
    uses = []
    for name, architecture, stack, stores, loads, registers, rest in entry.findall(done.stderr):
        shared = re.search(r"(\d+) bytes smem", rest)
        uses.append(
            Use(
                short_name(demangle(name)),
                int(architecture),
                int(registers),
                int(stack),
                int(stores) + int(loads),
                int(shared.group(1)) if shared else 0,
            )
        )
    return uses


KINDS = {
    "all": r"[A-Z]",
    "FFMA": r"FFMA",
    "HMMA": r"HMMA",
    "LDSM": r"LDSM",
    "LDGSTS": r"LDGSTS",
    "LDG": r"LDG\.",
    "LDS, STS": r"(?:LDS|STS)[. ]",
    "LD, ST": r"(?:LD|ST)[. ]",
    "LDL, STL": r"(?:LDL|STL)",
}
"""Columns of the instructions; ``LD, ST`` do not know the kind of their memory, ``LDL, STL`` are
local memory."""
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+ ?)")


def count_instructions(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Kernel -> how many instructions of each kind its code has, by cuobjdump's lines."""
    counts: dict[str, dict[str, int]] = {}
    of: dict[str, int] = {}
    for line in lines:
        if "Function :" in line:
            kernel = short_name(demangle(line.partition("Function :")[2].strip()))
            of = counts.setdefault(kernel, dict.fromkeys(KINDS, 0))
        elif found := INSTRUCTION.match(line):
            for kind, pattern in KINDS.items():
                of[kind] += re.match(pattern, found[1]) is not None
    return counts


def instructions(nvcc: str, folder: str, architecture: int) -> dict[str, dict[str, int]] | str:
    """Kernel -> how many instructions of each kind, of the compiled files; why they are unknown."""
    tool = shutil.which("cuobjdump", path=f"{Path(nvcc).parent}{os.pathsep}{os.environ['PATH']}")
    if tool is None:
        return "no cuobjdump beside nvcc or on PATH: instructions are not counted"
    counts: dict[str, dict[str, int]] = {}
    for file in sorted(Path(folder).glob("*.o")):
        command = [tool, "-sass", "-arch", f"sm_{architecture}", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:  # it needs nvdisasm
            return f"cuobjdump failed, instructions are not counted: {done.stderr.strip()}"
        counts |= count_instructions(done.stdout.splitlines())
    return counts


def demangle(name: str) -> str:
    """The name of a function as C++ writes it; as it is where no c++filt is installed."""
    if shutil.which("c++filt") is None:
        return name
    done = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def table(
    uses: list[Use], architectures: list[int], counts: dict[str, dict[str, int]] | None
) -> str:
    """A Markdown table: a row a kernel; registers (blocks) of each architecture, instructions."""
    by_kernel: dict[str, dict[int, Use]] = {}
    for use in uses:
        by_kernel.setdefault(use.kernel, {})[use.architecture] = use
    head = ["kernel", *(f"sm_{architecture}" for architecture in architectures)]
    head += KINDS if counts else ()
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for kernel, of in sorted(by_kernel.items()):
        cells = [f"`{kernel}`"]
        for architecture in architectures:
            use = of[architecture]
            spilled = f", {use.spilled} B spilled" if use.spilled else ""
            cells.append(f"{use.registers} ({use.blocks}){spilled}")
        cells += map(str, counts[kernel].values()) if counts else ()
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Compile, print the table, and say what is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--architectures", default=ARCHITECTURES)
    parser.add_argument("--sources", default="", help="comma-separated stems; all by default")
    arguments = parser.parse_args()
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if nvcc is None:
        sys.exit("no nvcc: set CUDACXX to one, or put it on PATH")
    architectures = [int(number) for number in arguments.architectures.split(",")]
    wanted = arguments.sources.split(",") if arguments.sources else []
    sources = [path for path in sorted(KERNELS.glob("*.cu")) if not wanted or path.stem in wanted]
    uses: list[Use] = []
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            uses += compile_source(nvcc, source, architectures, folder)
        counted = instructions(nvcc, folder, architectures[-1])
    spilling = sorted({f"{use.kernel} sm_{use.architecture}" for use in uses if use.spilled})
    static = sorted({use.kernel for use in uses if use.shared})
    counts = None if isinstance(counted, str) else counted
    what = counted if counts is None else f"instructions in the code for sm_{architectures[-1]}"
    sys.stdout.write(
        f"Registers of a thread (blocks of a multiprocessor by registers and threads); {what}:\n\n"
        f"{table(uses, architectures, counts)}\n\n"
        f"spills: {', '.join(spilling) or 'none'}\n"
        f"static shared memory: {', '.join(static) or 'none'}\n"
    )
    return 1 if spilling or static else 0


if __name__ == "__main__":
    sys.exit(main())
