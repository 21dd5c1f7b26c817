"""Builds a network and fills it with the tensors of a checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from ...core.errors import CheckpointError, NystraError
from ..architecture import Hyper, Request, State
from .hyper_types import check_types
from .tensor_checks import MAX_BLOCKS

Network = TypeVar("Network", bound=nn.Module)


def shape_of(state: State, key: str, rank: int) -> tuple[int, ...]:
    """Return the shape of a tensor from which hyper-parameters are read.

    Raises:
        CheckpointError: It is missing, of another rank, or empty.
    """
    if key not in state:
        raise CheckpointError(f"the file has no {key}")
    shape = tuple(state[key].shape)
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(f"{key} has the shape {shape}; expected {rank} sizes of 1 and more")
    return shape


def depths_of(
    keys: Iterable[str], pattern: re.Pattern[str], groups: Sequence[str] | None = None
) -> list[int]:
    """Return the number of blocks of each group, by their numbers in the keys of a state dict.

    Args:
        keys: The keys.
        pattern: Matches the beginning of a key of a block, with the group and the number of the
            block; with the number alone if all are one group.
        groups: The names of the groups, in order, each with a block; None: they are numbered.

    Raises:
        CheckpointError: There are no blocks, more than `MAX_BLOCKS`, or not all before one of
            them.
    """
    matches = filter(None, map(pattern.match, keys))
    prefixes = {("0", *match.groups())[-2:] for match in matches}
    places = {name: place for place, name in enumerate(groups or ())}
    blocks = {(int(places.get(name, -1) if groups else name), int(n)) for name, n in prefixes}
    counts = Counter(group for group, _ in blocks)
    depths = [counts[group] for group in range(len(groups or counts))]
    expected = {(group, n) for group, depth in enumerate(depths) for n in range(max(depth, 1))}
    if blocks != expected or not 0 < len(blocks) <= MAX_BLOCKS:
        also = f" in each of {', '.join(groups)}" if groups else ""
        raise CheckpointError(
            f"{len(blocks)} blocks; expected 1{also} to {MAX_BLOCKS} in all, numbered from 0 "
            f"without a gap, with keys like {pattern.pattern}"
        )
    return depths


def merge_hyper(read: Hyper, request: Request) -> Hyper:
    """Merge hyper-parameters: the caller's, then the metadata's, then those read from tensors."""
    return read | dict(request.stored) | dict(request.overrides)


def require(hyper: Hyper, source: str, names: Sequence[str]) -> None:
    """Check that hyper-parameters without a default are given.

    Args:
        hyper: The known hyper-parameters.
        source: Name of the file.
        names: Required hyper-parameters.

    Raises:
        NystraError: One is missing.
    """
    for key in names:
        if hyper.get(key) is None:
            raise NystraError(
                f"{source}: {key} cannot be read from its tensors (no position bias table and no "
                f"mask): give `{key}`"
            )


def construct(
    build: type[Network],
    hyper: Hyper,
    state: State,
    source: str,
    optional_keys: tuple[str, ...] = (),
) -> Network:
    """Return a network of these hyper-parameters with the weights of a state dict.

    The network is first built without memory, so that nothing is allocated unless the tensors of
    the file fit.

    Args:
        build: The network's class.
        hyper: Its constructor's arguments.
        state: The tensors by key.
        source: Name of the file, for messages.
        optional_keys: Endings of optional keys: buffers that the network computes itself.

    Raises:
        NystraError: The hyper-parameters are of another type or contradict each other.
        CheckpointError: Tensors are missing, surplus, or have wrong shapes or types; the first of
            each are listed.
    """
    check_types(build, hyper, source)
    try:
        with torch.device("meta"):
            outline = build(**hyper).state_dict()
        check_fit(
            outline,
            state,
            f"{source} does not fit {build.__name__} as its tensors describe it",
            optional_keys,
        )
        network = build(**hyper)
    except (TypeError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise NystraError(
            f"{source}: {build.__name__} cannot be built with {hyper!s:.600}: {reason}"
        ) from error
    weights = {key: state[key].to(torch.float32) for key in outline}
    beyond = [key for key, value in weights.items() if not bool(torch.isfinite(value).all())]
    if beyond:
        raise CheckpointError(f"{source}: {beyond[0]} has values beyond the range of float32")
    network.load_state_dict(weights)
    return network


def check_fit(
    outline: Mapping[str, Tensor], state: State, what: str, optional_keys: tuple[str, ...] = ()
) -> None:
    """Check that the tensors of a file are those of a network.

    Args:
        outline: The state dict of the network.
        state: The tensors of the file, by key.
        what: How the message begins: ``a.pth does not fit MyNet``.
        optional_keys: Endings of optional keys.

    Raises:
        CheckpointError: They are not; the first of each kind of error are listed.
    """
    missing = [key for key in outline if key not in state]
    surplus = [key for key in state if key not in outline and not key.endswith(optional_keys)]
    shared = [key for key in outline if key in state]
    misshapen = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(outline[key].shape)}"
        for key in shared
        if state[key].shape != outline[key].shape
    ]
    types = [
        f"{key} {_type(state[key])} instead of {_type(outline[key])}"
        for key in shared
        if state[key].is_floating_point() != outline[key].is_floating_point()
    ]
    faults = [
        f"{len(keys)} {kind}: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}"
        for kind, keys in (
            ("missing", missing),
            ("surplus", surplus),
            ("misshapen", misshapen),
            ("of another type", types),
        )
        if keys
    ]
    if faults:
        raise CheckpointError(f"{what}: " + "; ".join(faults))


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
