"""The effect of tiles on HAT, whose channel attention depends on the whole image.

Takes minutes::

    python -m studies.hat.tiles CHECKPOINT FOLDER [--tiles 64 128 256] [--overlap 16]

CHECKPOINT may be ``generated``: x2, 48 channels, two groups of six blocks, weights from a seed and
the published ``conv_scale``, or ``--conv-scale``. FOLDER holds small images, ``--truth`` the
large ones. Every image is run whole and in tiles, as ``nystra run`` cuts them. In the last column
each tile uses the channel weights of the whole image: the remaining difference comes from the
tiles' borders, and the rest of the previous column from channel attention.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from torch import Tensor, nn

from nystra.export.attention.site import neutral, swap
from nystra.models import load
from nystra.models.hat.layers import ChannelAttention
from nystra.models.hat.network import HAT
from nystra.runtime import psnr, read_image, run_tiled

Pixels = np.ndarray


def generated(conv_scale: float) -> HAT:
    """Return a network of published proportions in which every layer passes its input on."""
    torch.manual_seed(0)
    network = HAT(
        upscale=2,
        embed_dim=48,
        depths=[6, 6],
        num_heads=4,
        squeeze_factor=8,
        conv_scale=conv_scale,
        upsampler="pixelshuffledirect",
    )
    for name, parameter in network.named_parameters():
        if "norm" not in name and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.7 * parameter[0].numel() ** -0.5)
    return network.eval().requires_grad_(requires_grad=False)


@contextmanager
def hooked(network: nn.Module, hook: Callable[[int, Tensor], Tensor | None]) -> Iterator[None]:
    """Let a hook read, and replace, the channel weights of every block."""
    blocks = [part for part in network.modules() if isinstance(part, ChannelAttention)]
    handles = [
        block.attention.register_forward_hook(
            lambda module, options, weights, number=number: hook(number, weights)
        )
        for number, block in enumerate(blocks)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def main() -> None:
    """Print a row for each size of tiles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--tiles", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--overlap", type=int, default=16)
    parser.add_argument("--conv-scale", type=float, default=0.01)
    options = parser.parse_args()
    is_generated = options.checkpoint == "generated"
    plain = generated(options.conv_scale) if is_generated else load(options.checkpoint).network
    assert isinstance(plain, HAT)
    network = swap(plain, neutral(plain), "operator")
    multiple, scale = max(plain.window), plain.upscale

    def run(image: Pixels) -> Pixels:
        with torch.inference_mode():
            return network(torch.from_numpy(np.ascontiguousarray(image))).numpy()

    def eight_bit(image: Pixels) -> Pixels:
        return np.moveaxis(np.clip(image[0], 0, 1) * 255, 0, 2).round() / 255

    rows: dict[int, list[tuple[float, float, float, float]]] = {side: [] for side in options.tiles}
    for path in sorted(options.folder.glob("*.png")):
        image = np.moveaxis(read_image(path).pixels, 2, 0)[None].astype(np.float32)
        weights: dict[int, Tensor] = {}
        with hooked(network, weights.__setitem__):
            whole = run(image)
        truth = None
        if options.truth is not None:
            truth = read_image(next(options.truth.glob(f"{path.stem.partition('x')[0]}*"))).pixels
            truth = truth[: whole.shape[2], : whole.shape[3]]
        for side in options.tiles:
            if side >= max(image.shape[2:]):
                continue

            def tiled(side: int = side, image: Pixels = image) -> Pixels:
                return run_tiled(
                    run,
                    image,
                    tile=side,
                    overlap=options.overlap,
                    scale=scale,
                    multiple=multiple,
                )

            own = tiled()
            with hooked(network, lambda number, _, kept=weights: kept[number]):
                shared = tiled()
            lost = 0.0
            if truth is not None:
                lost = psnr(eight_bit(own), truth) - psnr(eight_bit(whole), truth)
            against = [psnr(eight_bit(output), eight_bit(whole)) for output in (own, shared)]
            rows[side].append((lost, float(np.abs(own - whole).max()), *against))
    print(
        "| tile | images | PSNR lost, dB | largest difference | tiles against the whole, dB | "
        "with the whole image's channel weights, dB |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for side, results in rows.items():
        if results:
            lost, largest, own, shared = ([row[place] for row in results] for place in range(4))
            print(
                f"| {side} | {len(results)} | {mean(lost):+.4f} | {max(largest):.3f} | "
                f"{mean(own):.1f} | {mean(shared):.1f} |"
            )


if __name__ == "__main__":
    main()
