"""Train a small SwinIR on photographs: ``python -m nystra.models.training --data DIR --out FILE``.

The state file beside the output is written every minute; the same command goes on from it and
ends with the same bytes as one that was never interrupted (same machine, same threads).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from ...plugins.errors import NystraError
from ..swinir.network import SwinIR
from .data import Pair, read_pairs
from .loop import Recipe, train, write_file

_LUMA = (65.481, 128.553, 24.966)  # BT.601 in studio swing, of RGB 0..1
_HELD_OUT = 5  # pictures
_REPORTS = 10  # a training


def psnr(recipe: Recipe, weights: Mapping[str, Tensor], pairs: Sequence[Pair]) -> float:
    """Return the mean PSNR in dB over pictures: luma of BT.601 in studio swing, 8-bit output.

    A border of ``recipe.scale`` pixels does not count.
    """
    network = SwinIR(**recipe.hyper()).eval()
    network.load_state_dict(dict(weights))
    luma, border, figures = torch.tensor(_LUMA), recipe.scale, []
    for pair in pairs:
        small = torch.from_numpy(pair.small).permute(2, 0, 1)[None].float() / 255.0
        with torch.no_grad():
            output = network(small).clamp(0, 1).mul(255.0).round()
        error = output[0].permute(1, 2, 0) - torch.from_numpy(pair.large).float()
        error = ((error / 255.0) @ luma)[border:-border, border:-border]
        figures.append(10 * math.log10(255.0**2 / max(float(error.double().square().mean()), 1e-9)))
    return sum(figures) / len(figures)


def write_weights(path: Path, weights: Mapping[str, Tensor], recipe: Recipe) -> None:
    """Write safetensors, the network's arguments as JSON under ``nystra``; bytes reproducible."""
    from safetensors.torch import save

    facts = {"architecture": "swinir", "license": "Apache-2.0", **recipe.hyper()}
    tensors = {key: weights[key].contiguous() for key in sorted(weights)}
    content = save(tensors, metadata={"nystra": json.dumps(facts, sort_keys=True)})
    write_file(path, lambda file: file.write(content))


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of the scores: without page faults a step takes half the time."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 1 << 28)):  # mmaps, trim, top pad
            mallopt(option, value)


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM, so that no step is cut in two."""
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def remember(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        for number in before:
            signal.signal(number, remember)
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    recipe = Recipe()
    parser = argparse.ArgumentParser(
        prog="python -m nystra.models.training",
        description="Train a small SwinIR on photographs; the same command goes on after a stop.",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and val/")
    parser.add_argument("--out", type=Path, required=True, help=".safetensors file to write")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (2)")
    for name, kind, text in (
        ("seed", int, "of the start weights and of the crops"),
        ("steps", int, "optimiser steps"),
        ("batch", int, "crops a step"),
        ("patch", int, "side of a crop of the small picture, in pixels"),
        ("rate", float, "highest learning rate"),
        ("scale", int, "output side over input side"),
        ("window", int, "side of the attention window"),
        ("width", int, "channels of the map"),
        ("heads", int, "attention heads of every block"),
    ):
        default = getattr(recipe, name)
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{text} ({default})")
    parser.add_argument("--depths", type=int, nargs="+", default=[6], help="blocks a group (6)")
    parser.add_argument("--no-position-bias", action="store_true", help="attention without bias")
    parser.add_argument("--no-mask", action="store_true", help="shifted windows see across the cut")
    return parser


def _recipe(options: Mapping[str, Any]) -> Recipe:
    recipe = Recipe(
        **{key: options[key] for key in ("seed", "steps", "batch", "patch", "rate", "scale")},
        **{key: options[key] for key in ("window", "width", "heads")},
        depths=tuple(options["depths"]),
        position_bias=not options["no_position_bias"],
        mask=not options["no_mask"],
    )
    for key in ("steps", "batch", "patch", "rate", "scale", "window", "width", "heads"):
        if getattr(recipe, key) <= 0:
            raise NystraError(f"--{key} {getattr(recipe, key)} must be above 0")
    if recipe.width % recipe.heads:
        raise NystraError(f"--width {recipe.width} must be a multiple of --heads {recipe.heads}")
    return recipe


def run(recipe: Recipe, data: Path, out: Path) -> None:
    """Train and write the weights.

    Args:
        recipe: What to train.
        data: Folder of photographs with ``train/``, and ``val/`` for the reported figure.
        out: ``.safetensors`` file; the state of the training is ``<stem>.state.pt`` beside it.

    Raises:
        NystraError: Pictures or files that cannot be read or written, or a diverged training.
        KeyboardInterrupt: SIGINT or SIGTERM; the state is saved.
    """
    from tqdm import tqdm

    if out.suffix != ".safetensors":
        raise NystraError(f"--out {out} must end in .safetensors")
    if not out.parent.is_dir():
        raise NystraError(f"--out {out}: there is no folder {out.parent}; create it first")
    pairs = read_pairs(data / "train", recipe.scale, recipe.patch)
    held_out = read_pairs(data / "val", recipe.scale, recipe.scale, most=_HELD_OUT)
    every = max(1, recipe.steps // _REPORTS)
    hidden = not sys.stderr.isatty()
    with _asked_to_stop() as asked, tqdm(total=recipe.steps, unit="step", disable=hidden) as bar:

        def on_step(done: int, loss: float, average: Mapping[str, Tensor]) -> None:
            bar.update(done - bar.n)
            if asked:
                raise KeyboardInterrupt
            if done % every == 0:
                figure = psnr(recipe, average, held_out)
                bar.write(f"step {done}: loss {loss:.4f}, held out {figure:.2f} dB", sys.stderr)

        weights = train(recipe, pairs, out.with_suffix(".state.pt"), on_step)
    write_weights(out, weights, recipe)
    print(f"{out}: {psnr(recipe, weights, held_out):.2f} dB on held-out pictures")  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Train by command line; the result is the exit code."""
    options = vars(_parser().parse_args(arguments))
    torch.set_num_threads(options["threads"])
    try:
        run(_recipe(options), options["data"], options["out"])
    except NystraError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here", file=sys.stderr)  # noqa: T201
        return 130
    return 0


if __name__ == "__main__":
    _keep_freed_memory()
    sys.exit(main())
