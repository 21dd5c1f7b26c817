"""Cases of whole images for ``nystra_trt_host --time``: operators with a plugin, every type."""

from __future__ import annotations

from pathlib import Path

from nystra.plugins.operators import find_schema
from nystra.plugins.operators.schema import node_attributes

TYPES = ("float16", "float32", "bfloat16")

Timed = tuple[str, str, dict[str, int], list[tuple[int, ...]]]
"""Name, operator, attributes and input shapes."""


def _cases(height: int, width: int, heads: int) -> list[Timed]:
    matrices = max(8, height * width // 256 * heads)
    cases: list[Timed] = [
        (f"pinv_{m}", "NystraPinv", {"iterations": 6}, [(matrices, m, m)]) for m in (16, 64)
    ]
    side = min(512, height, width)
    image, mask = (1, 3, side, side), (1, 1, 1, 1)
    search = {"patch_size": 7, "iterations": 5, "neighbors": 3, "metric": 0}
    shapes = [image, image, mask, mask, image]
    cases.append((f"patch_match_{side}", "NystraPatchMatch", search, shapes))
    return cases


def _lines(
    operator: str, name: str, dtype: str, values: dict[str, int], shapes: list[tuple[int, ...]]
) -> list[str]:
    schema = find_schema(operator)
    attributes = node_attributes(operator, **values)
    lines = [f"case {name}_{dtype} {operator} {dtype}"]
    for attribute in schema.attributes:
        lines.append(f"{attribute.kind} {attribute.name} {attributes[attribute.name]}")
    for of, shape in zip(schema.inputs, shapes, strict=True):
        kind = "I" if of in schema.int32 else "T"
        lines.append(" ".join(["in", kind, *map(str, shape)]))
        if of in ("query_mask", "key_mask"):
            lines.append("fill 1")
        if of == "start":
            lines.append("fill -1")
    for of in schema.outputs:  # as large as the matrices, and as the start
        lines.append(" ".join(["out", "I" if of in schema.int32 else "T", *map(str, shapes[-1])]))
    return [*lines, "end"]


def write_times(folder: Path, *, small: bool = False) -> None:
    """Write ``cases.txt`` of a 720x1280 image with six heads; ``small``: of 16x16 with one."""
    height, width, heads = (16, 16, 1) if small else (720, 1280, 6)
    folder.mkdir(parents=True, exist_ok=True)
    # Half precision first: what is wanted most comes before the time is up.
    lines = [
        line
        for dtype in TYPES
        for name, operator, values, shapes in _cases(height, width, heads)
        for line in _lines(operator, name, dtype, values, shapes)
    ]
    (folder / "cases.txt").write_text("\n".join(lines))
