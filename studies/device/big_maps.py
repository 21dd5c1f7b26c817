"""Maps of more than 2^31 elements on the GPU.

python -m studies.device.big_maps OUT.json [--small]

The kernels run by ``torch.ops.nystra``'s own call on tensors of PyTorch. Windows are independent
without a shift, so rows of a large map have to come out as the same rows alone do, to the bit. Of a
search, scores are computed again from the indices. ``--small`` takes small maps, and the CPU where
PyTorch finds no GPU: the library is then one over emulated kernels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nystra.plugins import native_cuda
from nystra.plugins.operators import find_schema
from nystra.plugins.operators.operator_torch import launch

Values = dict[str, int | float]

HEADS, DIM, WINDOW = 6, 30, 8
CHANNELS = 3 * HEADS * DIM
SHARED: Values = {
    "heads": HEADS,
    "head_dim": DIM,
    "value_dim": DIM,
    "scale": DIM**-0.5,
    "window_h": WINDOW,
    "window_w": WINDOW,
}
LANDMARKS: Values = {**SHARED, "landmark_rows": 4, "landmark_cols": 4}
WINDOWS: dict[str, Values] = {
    "NystraWindowSoftmax": {**SHARED, "bias": 1},
    "NystraWindowOverlap": {**SHARED, "margin_h": 0, "margin_w": 0, "bias": 1},
    "NystraWindowNystrom": LANDMARKS,
    "NystraWindowNystromformer": LANDMARKS,
    "NystraWindowCluster": {**SHARED, "cluster_rows": 4, "cluster_cols": 4, "bias": 1},
}
STRIP = 2 * WINDOW
"""Rows that are computed alone."""

PATCH = 3


def run(operator: str, values: Values, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    """Run the kernel, never the plain function.

    Raises:
        RuntimeError: It refuses these sizes, or was not launched.
    """
    schema = find_schema(operator)
    on_gpu = inputs[0].is_cuda
    stream = torch.cuda.current_stream().cuda_stream if on_gpu else 0
    if not launch(schema, inputs, schema.validate(values), outputs, stream):
        raise RuntimeError("the kernel refuses these sizes")
    if on_gpu:
        torch.cuda.synchronize()


def check_windows(operator: str, dtype: torch.dtype, side: int, device: str) -> int:
    """Compare rows of a large map with the same rows computed alone; return its elements."""
    values = WINDOWS[operator]
    qkv = torch.empty(1, side, side, CHANNELS, dtype=dtype, device=device).normal_()
    table = torch.randn((2 * WINDOW - 1) ** 2, HEADS, device=device).to(dtype)
    others = [table] if values.get("bias") else []

    def attend(tokens: Tensor) -> Tensor:
        out = torch.full((*tokens.shape[:3], HEADS * DIM), torch.nan, dtype=dtype, device=device)
        run(operator, values, [tokens, *others], [out])
        return out

    whole = attend(qkv)
    row = side * CHANNELS
    crossing = [2**bits // row // WINDOW * WINDOW for bits in (31, 32, 33)]
    for first in (0, *crossing, side - STRIP):
        rows = slice(first, first + STRIP)
        if first + STRIP <= side and not torch.equal(whole[:, rows], attend(qkv[:, rows])):
            raise RuntimeError(f"rows {first} to {first + STRIP} differ from the same rows alone")
    return qkv.numel()


def check_inverses(dtype: torch.dtype, matrices: int, device: str) -> int:
    """Compare the last matrices of a batch with the same computed alone; return its elements."""
    a = torch.rand(matrices, 16, 16, device=device).to(dtype)
    z, few = torch.full_like(a, torch.nan), torch.full_like(a[-4:], torch.nan)
    run("NystraPinv", {"iterations": 6}, [a], [z])
    run("NystraPinv", {"iterations": 6}, [a[-4:]], [few])
    if not torch.equal(z[-4:], few):
        raise RuntimeError("the last matrices differ from the same alone")
    return a.numel()


def check_tokens(big: str, dtype: torch.dtype, tokens: int, device: str) -> int:
    """Compare the attention of the last queries with plain PyTorch; return the big elements.

    Args:
        big: ``queries`` or ``keys``, the others are few.
        dtype: Of all.
        tokens: How many of the big ones, of `DIM` channels.
        device: Where.
    """
    numbers = {"queries": 20, "keys": 40} | {big: tokens}
    q, k, v = (
        torch.empty(1, 1, numbers[of], DIM, dtype=dtype, device=device).normal_()
        for of in ("queries", "keys", "keys")
    )
    out, bias = torch.full_like(q, torch.nan), torch.zeros(1, 1, 1, 1, dtype=dtype, device=device)
    run("NystraAttention", {"bias": 0, "scale": 0.5}, [q, k, v, bias], [out])
    want = (0.5 * q[0, 0, -4:].float() @ k[0, 0].float().T).softmax(-1) @ v[0, 0].float()
    error = float((out[0, 0, -4:].float() - want).abs().max() / want.abs().max())
    if not error < 0.01:
        raise RuntimeError(f"the last queries are wrong by {error:.3g} of the largest value")
    return numbers[big] * DIM


def check_search(big: str, dtype: torch.dtype, side: int, channels: int, device: str) -> int:
    """Compute the scores of a search again; return the elements of the big map.

    Args:
        big: ``query`` or ``key``, the other is small.
        dtype: Of the maps.
        side: Of the big map, less a row.
        channels: Of both.
        device: Where.
    """
    sides = {"query": (16, 16), "key": (16, 16)} | {big: (side - 1, side)}
    maps = {
        name: torch.empty(1, channels, *size, dtype=dtype, device=device).normal_()
        for name, size in sides.items()
    }
    mask = torch.ones(1, 1, 1, 1, dtype=dtype, device=device)
    start = torch.full((1, 1, 1, 1), -1, dtype=torch.int32, device=device)
    start = start.expand(1, 1, *sides["query"])
    index = torch.full((1, 1, *sides["query"]), -2, dtype=torch.int32, device=device)
    score = torch.full(index.shape, torch.nan, dtype=dtype, device=device)
    values: Values = {"patch_size": PATCH, "iterations": 1, "neighbors": 1, "metric": 0}
    run("NystraPatchMatch", values, [maps["query"], maps["key"], mask, mask, start], [index, score])
    rows = torch.arange(sides["query"][0], device=device)[-16:]
    columns = torch.arange(sides["query"][1], device=device)[-256:]
    y, x = (grid.flatten() for grid in torch.meshgrid(rows, columns, indexing="ij"))
    found = index[0, 0, y, x].long()
    width = sides["key"][1]
    if int(found.min()) < 0 or int(found.max()) >= sides["key"][0] * width:
        raise RuntimeError("an index is not in the map")
    if big == "key" and maps[big].numel() > 2**31 and int(found.max()) * channels < 2**31:
        raise RuntimeError("no index is where 32 bits do not count: nothing was shown")
    chosen = _patches(maps["key"], found // width, found % width)
    difference = _patches(maps["query"], y, x) - chosen
    want, got = -difference.square().sum((1, 2)), score[0, 0, y, x].float()
    error = float(((got - want) / want).abs().max())
    if not error < 0.01:
        raise RuntimeError(f"scores of the last pixels are wrong by {error:.3g} of themselves")
    return maps[big].numel()


def _patches(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Patches around pixels, borders repeated: (pixels, channels, PATCH^2)."""
    height, width = image.shape[2:]
    steps = torch.arange(PATCH, device=image.device) - PATCH // 2
    rows = (y[:, None] + steps).clamp(0, height - 1)
    columns = (x[:, None] + steps).clamp(0, width - 1)
    return image[0][:, rows[:, :, None], columns[:, None, :]].transpose(0, 1).flatten(2).float()


def checks(device: str, small: bool) -> Iterator[tuple[str, Callable[[], int]]]:
    """Name and work of each check, half precision first."""
    side, matrices, channels, tokens = (
        (32, 8, 5, 300) if small else (4096, 2**23 + 4, 130, 2**31 // DIM + 70)
    )
    for dtype in (torch.float16, torch.float32):
        kind = str(dtype).removeprefix("torch.")
        for operator in WINDOWS:
            yield (
                f"{operator} {kind}",
                lambda o=operator, t=dtype: check_windows(o, t, side, device),  # type: ignore[misc]
            )
        yield f"NystraPinv {kind}", lambda t=dtype: check_inverses(t, matrices, device)  # type: ignore[misc]
    for big in ("queries", "keys"):
        yield (
            f"NystraAttention, {big}, float16",
            lambda b=big: check_tokens(b, torch.float16, tokens, device),  # type: ignore[misc]
        )
    for big in ("query", "key"):
        yield (
            f"NystraPatchMatch, {big}, float16",
            lambda b=big: check_search(b, torch.float16, side, channels, device),  # type: ignore[misc]
        )


def check(file: Path, small: bool) -> int:
    """Run all checks and write the file after each. Return 1 if one fails."""
    if reason := native_cuda.missing():
        print(reason)
        return 1
    on_gpu = torch.cuda.is_available()
    if not on_gpu and not small:
        print("PyTorch finds no GPU")
        return 1
    device = "cuda" if on_gpu else "cpu"
    outcomes: dict[str, Any] = {}
    failed = []
    for name, work in checks(device, small):
        try:
            outcomes[name] = f"{work():,} elements: right"
        except RuntimeError as error:  # too little memory too
            outcomes[name] = f"FAILED: {str(error).splitlines()[0][:300]}"
            failed.append(name)
        if on_gpu:
            torch.cuda.empty_cache()
        file.write_text(json.dumps(outcomes, indent=1))
    print("failed:", ", ".join(failed) or "none")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    return check(args.file, args.small)


if __name__ == "__main__":
    raise SystemExit(main())
