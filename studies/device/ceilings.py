"""The limits of a GPU, measured with PyTorch: copies, bf16 products, attention in windows.

python -m studies.device.ceilings OUT.json

The attention is of 720x1280 pixels in six heads, scores with a bias of (1, heads, N, N); each
figure is the median of events around a call, in milliseconds, written as it is measured.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEADS = 6
WINDOWS = {8: (720, 1280), 16: (720, 1280), 32: (736, 1280)}


def milliseconds(work: Callable[[], object], runs: int = 20) -> float:
    """Median time of a call on the device."""
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def _attention(window: int, head_dim: int) -> dict[str, float | str]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    height, width = WINDOWS[window]
    tokens = window * window
    shape = (height // window, window, width // window, window, 3, HEADS, head_dim)
    qkv = torch.randn(shape, device="cuda", dtype=torch.float16)
    bias = torch.randn(1, HEADS, tokens, tokens, device="cuda", dtype=torch.float16)

    def partitioned() -> list[Any]:
        parts = qkv.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, -1, HEADS, tokens, head_dim)
        return [part.contiguous() for part in parts.unbind(0)]

    query, key, value = partitioned()
    row: dict[str, float | str] = {"partition": milliseconds(partitioned)}
    for name, backend, masked in (
        ("flash", SDPBackend.FLASH_ATTENTION, False),
        ("cudnn", SDPBackend.CUDNN_ATTENTION, True),
        ("efficient", SDPBackend.EFFICIENT_ATTENTION, True),
        ("math", SDPBackend.MATH, True),
    ):
        mask = bias.expand(query.shape[0], -1, -1, -1) if masked else None
        try:
            with sdpa_kernel(backend):
                row[name] = milliseconds(
                    lambda: scaled_dot_product_attention(query, key, value, attn_mask=mask),  # noqa: B023
                    10,
                )
        except RuntimeError as error:  # refused, or too little memory
            row[name] = str(error).splitlines()[0][:120]
    return row


def _copies() -> float:
    """Terabytes per second that a copy reads and writes."""
    import torch

    source = torch.empty(1 << 29, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e9


def measure(file: Path) -> int:
    """Measure everything and write the file after each figure."""
    import torch

    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 1
    of = torch.cuda.get_device_properties(0)
    rows: dict[str, Any] = {"device": of.name, "multiprocessors": of.multi_processor_count}

    def note(name: str, value: Any) -> None:
        rows[name] = value
        file.write_text(json.dumps(rows, indent=1))

    note("copy TB/s", _copies())
    factors = [torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    note("bf16 TFLOP/s", 2 * 8192**3 / milliseconds(lambda: factors[0] @ factors[1]) / 1e9)
    for window in WINDOWS:
        for head_dim in (30, 32):
            note(f"window {window}, head size {head_dim}, ms", _attention(window, head_dim))
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(measure(Path(sys.argv[1])))
