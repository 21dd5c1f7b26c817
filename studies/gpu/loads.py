"""How many loads from memory a warp of each CUDA kernel has in flight, by the machine code.

Counts, in the order of the code, the LDG instructions before the first use of what one of them
loaded: a batch is what is in flight when the warp begins to wait. Branches are not followed. No GPU
is needed.

    cuobjdump -sass libnystra_trt.so | c++filt | python -m studies.gpu.loads
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable

from studies.gpu.resources import short_name

LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*([^;]*);")
REGISTER = re.compile(r"\bR(\d+)\b")
WORDS = {".64": 2, ".128": 4}


def batches(lines: Iterable[str]) -> dict[str, Counter[int]]:
    """Kernel -> how many batches of so many loads its code has."""
    counts: dict[str, Counter[int]] = {}
    pending: dict[int, int] = {}
    kernel, loads = "", 0
    for line in lines:
        if "Function :" in line:
            kernel, pending, loads = short_name(line.partition("Function :")[2].strip()), {}, 0
            counts[kernel] = Counter()
            continue
        matched = LINE.match(line)
        if matched is None or not kernel:
            continue
        operation, operands = matched.groups()
        target, _, sources = operands.partition(",")
        read = {int(number) for number in REGISTER.findall(sources)}
        if operation.startswith(("ST", "RED", "ATOM", "BRA", "EXIT")):
            read = {int(number) for number in REGISTER.findall(operands)}
        if read & set(pending):
            counts[kernel][loads] += 1
            pending, loads = {}, 0
        if operation.startswith("LDG."):
            first = REGISTER.search(target)
            words = next((n for name, n in WORDS.items() if name in operation), 1)
            loads += 1
            if first:
                pending.update((int(first[1]) + i, loads) for i in range(words))
    return counts


def main() -> int:
    """Print a line a kernel."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for kernel, sizes in sorted(batches(sys.stdin).items()):
        most = ", ".join(f"{n} x {size}" for size, n in sorted(sizes.items(), reverse=True))
        sys.stdout.write(f"{kernel}: {most or 'no loads'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
