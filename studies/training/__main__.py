"""Train a small network: ``python -m studies.training --data DIR --out FILE``.

The state file beside the output is written every minute; the same command continues from it, and
the result has the same bytes as without interruption (same machine, same threads).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from nystra.cli.flags.option_flags import flag_of, option_values
from nystra.core.errors import NystraError
from nystra.core.option import spell_names
from nystra.core.option_kinds import Switch

from .classifying import Classifying
from .deblurring import Deblurring
from .denoising import Denoising, DenoisingByDit
from .enlarging import Enlarging, EnlargingByHat
from .enlarging_by_csnln import EnlargingByCsnln
from .enlarging_by_sst import EnlargingBySst
from .enlarging_videos import EnlargingVideos
from .loop import train, write_file
from .recipe import Recipe
from .settings import Counts

RECIPES: dict[str, type[Recipe]] = {
    "swinir": Enlarging,
    "hat": EnlargingByHat,
    "sst": EnlargingBySst,
    "csnln": EnlargingByCsnln,
    "uformer": Denoising,
    "dit": DenoisingByDit,
    "uformer_deblur": Deblurring,
    "rvrt": EnlargingVideos,
    "vit": Classifying,
}
"""Name of a training -> what decides it."""

_REPORTS = 5  # a training


def write_weights(
    path: Path, weights: Mapping[str, Tensor], recipe: Recipe, examples: Sequence[Any]
) -> None:
    """Write safetensors, the network's arguments as JSON under ``nystra``; bytes reproducible."""
    from safetensors.torch import save

    metadata = recipe.metadata(examples)
    facts = {"architecture": recipe.architecture, "license": "Apache-2.0", **metadata}
    tensors = {key: weights[key].to(recipe.stored).contiguous() for key in sorted(weights)}
    content = save(tensors, metadata={"nystra": json.dumps(facts, sort_keys=True)})
    write_file(path, lambda file: file.write(content))


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of the scores; page faults would double the time of a step."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 1 << 28)):  # mmaps, trim, top pad
            mallopt(option, value)


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Record the first SIGINT or SIGTERM, so that no step is interrupted."""
    signals: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def remember(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        for number in before:
            signal.signal(number, remember)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser(recipe: type[Recipe]) -> argparse.ArgumentParser:
    """Return the flags of a training: one for each setting of its recipe."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.training",
        description="Train a small network; the same command goes on after a stop.",
    )
    _add_network(parser)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with train/, and val/ (of classes: test/)"
    )
    parser.add_argument("--out", type=Path, required=True, help=".safetensors file to write")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (2)")
    parser.add_argument("--until", type=int, help="write the weights of that step, and stop")
    for name, kind in recipe.list_options().items():
        flag, how = flag_of(name, kind), {"dest": name, "default": kind.default, "help": kind.help}
        if isinstance(kind, Switch):
            parser.add_argument(flag, action="store_false" if kind.default else "store_true", **how)
        elif isinstance(kind, Counts):
            parser.add_argument(flag, type=int, nargs="+", **how)
        else:
            parser.add_argument(flag, type=partial(kind.read, name), **how)
    return parser


def _add_network(parser: argparse.ArgumentParser) -> None:
    words = (
        "swinir (the default), hat, sst and csnln enlarge, uformer and dit take noise "
        "out, uformer_deblur motion, rvrt enlarges videos, vit classifies"
    )
    parser.add_argument("--network", choices=RECIPES, default="swinir", help=words)


def _recipe(arguments: Sequence[str]) -> tuple[Recipe, argparse.Namespace]:
    """Return what to train and the rest of the command line."""
    first = argparse.ArgumentParser(add_help=False)
    _add_network(first)
    kind = RECIPES[first.parse_known_args(arguments)[0].network]
    options = _parser(kind).parse_args(arguments)
    recipe = kind(**option_values(options, kind))
    recipe.check()
    return recipe, options


def run(recipe: Recipe, data: Path, out: Path, until: int | None = None) -> None:
    """Train and write the weights.

    Args:
        recipe: What to train.
        data: Folder with ``train/``, and ``val/`` or ``test/`` for the reported figure.
        out: ``.safetensors`` file; the state of the training is ``<stem>.state.pt`` beside it.
        until: A step to stop at; the rate follows the recipe's own number.

    Raises:
        NystraError: Images or files that cannot be read or written, or a diverged training.
        KeyboardInterrupt: SIGINT or SIGTERM; the state is saved.
    """
    from tqdm import tqdm

    if out.suffix != ".safetensors":
        raise NystraError(f"--out {out} must end in .safetensors")
    if not out.parent.is_dir():
        raise NystraError(f"--out {out}: there is no folder {out.parent}; create it first")
    examples, held_out = recipe.training_set(data), recipe.held_out(data)
    every = max(1, recipe.steps // _REPORTS)
    hidden = not sys.stderr.isatty()
    with _stop_signals() as signals, tqdm(total=recipe.steps, unit="step", disable=hidden) as bar:
        weights: dict[str, Tensor] = {}

        def on_step(done: int, loss: float, average: Mapping[str, Tensor]) -> None:
            bar.update(done - bar.n)
            if signals:
                raise KeyboardInterrupt
            if until is not None and done >= until:
                weights.update(average)
                raise KeyboardInterrupt
            if done % every == 0:
                figure = recipe.figure(average, held_out)
                bar.write(f"step {done}: loss {loss:.4f}, held out {figure}", sys.stderr)

        try:
            weights = train(recipe, examples, out.with_suffix(".state.pt"), on_step)
        except KeyboardInterrupt:
            if not weights:
                raise
    write_weights(out, weights, recipe, examples)
    weights = {key: value.to(recipe.stored) for key, value in weights.items()}
    print(f"{out}: {recipe.figure(weights, held_out)} on held-out images")


def main(arguments: Sequence[str] | None = None) -> int:
    """Train by command line; the result is the exit code."""
    try:
        recipe, options = _recipe(sys.argv[1:] if arguments is None else arguments)
        torch.set_num_threads(options.threads)
        run(recipe, options.data, options.out, options.until)
    except NystraError as error:
        text = spell_names(str(error), lambda name: f"--{name.replace('_', '-')}")
        print(f"error: {text}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped: the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    _keep_freed_memory()
    sys.exit(main())
