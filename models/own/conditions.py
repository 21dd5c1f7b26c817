"""The conditions that a module takes besides its image, found by running it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from itertools import product

import torch
from torch import nn

from ...core.ports.examples import example_arrays
from ...core.ports.port import CONDITION, CONDITION_AXES, Port, image_size
from ..sizes.plain_run import plain_run

_SIDES = (64, 48, 56)
_MOST_WIDTHS = 8
_MOST_RUNS = 400


def with_conditions(module: nn.Module, image: Port) -> tuple[Port, ...]:
    """Return the image with a port for each further argument that a module requires.

    An argument is the first that runs of a number for each image (float32, then int64), a vector,
    and a list of tokens, as wide as the input of one of its linear layers. The image alone if there
    is none, or nothing runs.

    Args:
        module: In evaluation mode; called with two images, since one would hide wrong shapes.
        image: The port of its first argument, of free height and width.
    """
    names = _required(module)[1:]
    if not names:
        return (image,)
    with torch.no_grad(), warnings.catch_warnings(), plain_run():
        warnings.simplefilter("ignore")
        for place, (side, conditions) in enumerate(product(_SIDES, _guesses(module, names))):
            if place == _MOST_RUNS:
                break
            ports = (image, *conditions)
            arrays = example_arrays(ports, {"batch": 2, **image_size(side, side)})
            try:
                module(*map(torch.from_numpy, arrays.values()))
            except Exception:  # any error means that it does not take them
                continue
            return ports
    return (image,)


def found_text(ports: tuple[Port, ...]) -> list[str]:
    """Return the sentence on conditions that were found, if there are any."""
    words = [f"{port.name} as {_in_words(port)}" for port in ports if port.role == CONDITION]
    if not words:
        return []
    wrong = "declare all inputs as ports of an OwnNetwork if that is wrong"
    return [f"it takes {', '.join(words)}, found by trial: {wrong}"]


def _in_words(port: Port) -> str:
    kinds = ("a number", f"{port.channels} numbers", f"a list of tokens of {port.channels} numbers")
    return f"{kinds[len(port.axes) - 1]} for each image ({port.dtype})"


def _required(module: nn.Module) -> list[str]:
    """Return the arguments of a module that have no default, by position."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # not written in Python
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty]
    return [each.name for each in needed if each.kind in positional]


def _guesses(module: nn.Module, names: list[str]) -> Iterator[tuple[Port, ...]]:
    layers = (part for part in module.modules() if isinstance(part, nn.Linear))
    widths = list(dict.fromkeys(layer.in_features for layer in layers))[:_MOST_WIDTHS]
    number, vector, tokens = CONDITION_AXES
    kinds: list[tuple[tuple[str, ...], dict[str, int], str]]
    kinds = [(number, {}, "float32"), (number, {}, "int64")]
    kinds += [(axes, {"classes": n}, "float32") for axes in (vector, tokens) for n in widths]
    return product(
        *(
            [
                Port(name, CONDITION, axes, lengths, range=None, dtype=dtype)
                for axes, lengths, dtype in kinds
            ]
            for name in names
        )
    )
