"""The conditions that a module takes besides its image, found by running it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import nn

from ...core.ports.examples import example_arrays
from ...core.ports.port import (
    CONDITION,
    CONDITION_AXES,
    NUMBER_AXES,
    PER_TOKEN_AXES,
    TOKENS_AXES,
    VECTOR_AXES,
    Port,
    Size,
    image_size,
)
from ..sizes.plain_run import run_plainly

_SIDES = (64, 48, 56)
_MAX_WIDTHS = 8
_MAX_RUNS = 600
_TRIALS: tuple[dict[str, int], ...] = ({"batch": 2, "steps": 8}, {"batch": 3, "steps": 5})
"""Two sizes: an argument that fits one of them by accident is not found."""


def with_conditions(module: nn.Module, image: Port) -> tuple[Port, ...]:
    """Return the image with a port for each further argument that a module requires.

    An argument is the first that runs of a number for each image (float32, then int64), one for
    each token (float32, bool, then int64), a vector, and a list of tokens, as wide as the input of
    one of its linear layers. The image alone if there is none, or nothing runs.

    Args:
        module: In evaluation mode; called with several images, since one would hide wrong shapes.
        image: The port of its first argument, of free height and width.
    """
    names = _list_required(module)[1:]
    if not names:
        return (image,)
    with torch.no_grad(), warnings.catch_warnings(), run_plainly():
        warnings.simplefilter("ignore")
        for place, (side, conditions) in enumerate(product(_SIDES, _guesses(module, names))):
            if place == _MAX_RUNS:
                break
            ports = (image, *conditions)
            if all(_runs(module, ports, image_size(side, side) | trial) for trial in _TRIALS):
                return ports
    return (image,)


def _runs(module: nn.Module, ports: tuple[Port, ...], size: Size) -> bool:
    arrays = example_arrays(ports, size)
    try:
        module(*map(torch.from_numpy, arrays.values()))
    except Exception:  # noqa: BLE001 - any error means that it does not take them
        return False
    return True


def describe_found(ports: tuple[Port, ...]) -> list[str]:
    """Return the sentence on conditions that were found, if there are any."""
    words = [f"{port.name} as {_in_words(port)}" for port in ports if port.role == CONDITION]
    if not words:
        return []
    wrong = "declare all inputs as ports of an OwnNetwork if that is wrong"
    return [f"it takes {', '.join(words)}, found by trial: {wrong}"]


def _in_words(port: Port) -> str:
    return f"{CONDITION_AXES[port.axes].format(port.channels)} for each image ({port.dtype})"


def _list_required(module: nn.Module) -> list[str]:
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # not written in Python
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty]
    return [each.name for each in needed if each.kind in positional]


def _guesses(module: nn.Module, names: list[str]) -> Iterator[tuple[Port, ...]]:
    layers = (part for part in module.modules() if isinstance(part, nn.Linear))
    widths = list(dict.fromkeys(layer.in_features for layer in layers))[:_MAX_WIDTHS]
    port = partial(Port, CONDITION, CONDITION, range=None)
    ports = [port(NUMBER_AXES, dtype=dtype) for dtype in ("float32", "int64")]
    ports += [port(PER_TOKEN_AXES, dtype=dtype) for dtype in ("float32", "bool", "int64")]
    wide = (VECTOR_AXES, TOKENS_AXES)
    ports += [port(axes, {"classes": n}) for axes in wide for n in widths]
    choices = []
    for name in names:
        choices.append([replace(port, name=name) for port in ports])
    return product(*choices)
