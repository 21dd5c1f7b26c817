"""Cases of whole images for ``nystra_trt_host --time``: every operator, window and type."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from nystra.plugins.operators import find_schema
from nystra.plugins.operators.schema import node_attributes

HEAD_DIM = 30
TYPES = ("float16", "float32", "bfloat16")

Number = int | float
Timed = tuple[str, str, "Values", list[tuple[int, ...]]]
"""Name, operator, attributes and input shapes."""
Values = dict[str, Number]


def _window(heads: int, window: int, shift: int, **more: Number) -> Values:
    sizes = {"window_h": window, "window_w": window, "shift_h": shift, "shift_w": shift}
    packed = {"heads": heads, "head_dim": HEAD_DIM, "value_dim": HEAD_DIM, "scale": HEAD_DIM**-0.5}
    return {**packed, **sizes, **more}


def _windows(height: int, width: int, heads: int) -> Iterator[Timed]:
    """Exact and linear windows; the map is a multiple of its window."""
    for window in (8, 16, 32, 64):
        if window > height:
            return
        side = functools.partial(_multiple, of=window)
        qkv = (1, side(height), side(width), heads * 3 * HEAD_DIM)
        table = ((2 * window - 1) ** 2, heads)
        for shift, where in ((0, ""), (window // 2, "_shifted")):
            mask = int(bool(shift))
            plain = _window(heads, window, shift, mask=mask)
            name = f"w{window}{where}"
            yield f"softmax_{name}", "NystraWindowSoftmax", {**plain, "bias": 1}, [qkv, table]
            if shift:
                continue
            landmarks = {"landmark_rows": 4, "landmark_cols": 4}
            for kind in ("Nystrom", "Nystromformer"):
                operator = f"NystraWindow{kind}"
                yield f"{kind.lower()}_{name}", operator, {**plain, **landmarks}, [qkv]
            if window >= 16:
                clusters = {"cluster_rows": 4, "cluster_cols": 4, "bias": 1}
                yield f"cluster_{name}", "NystraWindowCluster", {**plain, **clusters}, [qkv, table]


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def _others(height: int, width: int, heads: int) -> Iterator[Timed]:
    qkv = (1, _multiple(height, 16), _multiple(width, 16), heads * 3 * HEAD_DIM)
    around = {k: v for k, v in _window(heads, 16, 0, bias=1).items() if not k.startswith("shift")}
    margins = {"margin_h": 4, "margin_w": 4}
    yield "overlap_w16", "NystraWindowOverlap", {**around, **margins}, [qkv, (39**2, heads)]
    lists, hidden = [(1, heads, 4096, HEAD_DIM)] * 3, (1, 1, 1, 4096)
    if min(height, width) < 64:
        lists, hidden = [(1, heads, 16, HEAD_DIM)] * 3, (1, 1, 1, 16)
    yield "attention", "NystraAttention", {"bias": 1, "scale": 0.2}, [*lists, hidden]
    yield "pinv_16", "NystraPinv", {"iterations": 6}, [(height * width // 256, 16, 16)]
    side = min(512, height, width)
    image, mask = (1, 3, side, side), (1, 1, 1, 1)
    start = (1, 3, side, side)
    search = {"patch_size": 7, "iterations": 5, "neighbors": 3, "metric": 0}
    yield f"patch_match_{side}", "NystraPatchMatch", search, [image, image, mask, mask, start]


def _lines(
    operator: str, name: str, dtype: str, values: Values, shapes: list[tuple[int, ...]]
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
    for of, shape in zip(schema.outputs, _outputs(operator, values, shapes), strict=True):
        lines.append(" ".join(["out", "I" if of in schema.int32 else "T", *map(str, shape)]))
    return [*lines, "end"]


def _outputs(operator: str, values: Values, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    if operator == "NystraPatchMatch":
        return [shapes[4], shapes[4]]
    if operator in ("NystraPinv", "NystraAttention"):  # whose heads are equal in q and v
        return [shapes[0]]
    return [(*shapes[0][:3], int(values["heads"]) * HEAD_DIM)]


def write_times(folder: Path, *, small: bool = False) -> None:
    """Write ``cases.txt`` of a 720x1280 image, six heads of 30; ``small``: of 16x16, one head."""
    height, width, heads = (16, 16, 1) if small else (720, 1280, 6)
    folder.mkdir(parents=True, exist_ok=True)
    cases = [*_windows(height, width, heads), *_others(height, width, heads)]
    # Half precision first: what is wanted most comes before the time is up.
    lines = [
        line
        for dtype in TYPES
        for name, operator, values, shapes in cases
        for line in _lines(operator, name, dtype, values, shapes)
    ]
    (folder / "cases.txt").write_text("\n".join(lines))
