"""What loading has in common for networks that are written here: arguments, building, weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import nn

from ..plugins.errors import CheckpointError, NystraError
from .architecture import Hyper, Request, State

Network = TypeVar("Network", bound=nn.Module)


def told(read: Hyper, request: Request, build: Callable[..., nn.Module]) -> Hyper:
    """Return the hyper-parameters that a checkpoint tells: its metadata before its tensors.

    Args:
        read: What the tensors tell.
        request: What the metadata and the caller say.
        build: The network's class.

    Raises:
        NystraError: the caller asks for what the network has not.
    """
    known = set(inspect.signature(build).parameters)
    for key in request.asked:
        if key not in known:
            raise NystraError(
                f"{build.__name__} has no hyper-parameter {key!r}; it has: "
                f"{', '.join(sorted(known))}"
            )
    return read | dict(request.stored)


def require(hyper: Hyper, source: str, flags: Mapping[str, str]) -> None:
    """Check that hyper-parameters without a default are there.

    Args:
        hyper: All that was told.
        source: Name of the file.
        flags: Hyper-parameter -> the flag that gives it.

    Raises:
        NystraError: one is missing; the flag is named.
    """
    for key, flag in flags.items():
        if hyper.get(key) is None:
            raise NystraError(
                f"{source}: its tensors do not tell {key} (there is no position bias "
                f"table or mask to read it from); give {flag}"
            )


def construct(build: Callable[..., Network], hyper: Hyper, source: str) -> Network:
    """Return a network of these hyper-parameters.

    Raises:
        NystraError: they contradict each other.
    """
    try:
        return build(**hyper)
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
        raise NystraError(
            f"{source}: a {build.__name__} of {hyper} cannot be built: {error}"
        ) from error


def fill(
    network: nn.Module, state: State, source: str, optional_keys: tuple[str, ...] = ()
) -> None:
    """Give a network its weights.

    Args:
        network: Changed in place.
        state: Its state dict.
        source: Name of the file.
        optional_keys: Endings of keys that may be there or not: buffers the network makes itself.

    Raises:
        CheckpointError: missing, surplus or misshapen tensors; the first of each are listed.
    """
    wanted = {key: value.shape for key, value in network.state_dict().items()}
    given = {key: value.shape for key, value in state.items()}
    missing = [key for key in wanted if key not in given]
    surplus = [key for key in given if key not in wanted and not key.endswith(optional_keys)]
    misshapen = [
        f"{key} {tuple(given[key])} instead of {tuple(shape)}"
        for key, shape in wanted.items()
        if key in given and given[key] != shape
    ]
    faults = [
        f"{len(keys)} {what}: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}"
        for what, keys in (("missing", missing), ("surplus", surplus), ("misshapen", misshapen))
        if keys
    ]
    if faults:
        raise CheckpointError(
            f"{source} does not fit {type(network).__name__} as its tensors describe it. "
            + "; ".join(faults)
        )
    network.load_state_dict({key: state[key].to(torch.float32) for key in wanted})
