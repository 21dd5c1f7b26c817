"""What a network's calls have to do with one another: images of a batch, random numbers, state."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError
from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from .given import GivenNetwork

_ALLOWED = 1e-4
"""Largest difference by rounding in float32, relative to the largest value."""

_ALLOWED_DOUBLE = 1e-7
"""The same in float64."""

_FAILS = "a batch of 2 fails"
_MIXES = "the result for an image depends on the others of a batch"

_LEVELS = (1.0, 0.25)
"""Brightness of the images of a batch: statistics of the batch differ from those of each."""

_DEEPEST = 4
"""Levels of attributes of objects that are compared."""


def is_close(given: Sequence[Tensor], expected: Sequence[Tensor], allowed: float) -> bool:
    """Return whether tensors differ by at most a share of the largest expected value of each."""
    for one, other in zip(given, expected, strict=True):
        if one.shape != other.shape:
            return False
        limit = allowed * float(other.abs().max()) if other.numel() else 0.0
        if not torch.allclose(one, other.to(one.dtype), rtol=0.0, atol=limit, equal_nan=True):
            return False
    return True


def batch_fault(given: GivenNetwork, ports: Sequence[Port], size: tuple[int, ...]) -> str:
    """Return why a network takes one image at a time, or "".

    Two different images are run as a batch and one by one. What float32 changes by rounding is run
    again in float64.

    Args:
        given: The network.
        ports: Its inputs.
        size: Height and width.
    """
    inputs = _batch(ports, size)
    singles = [[tensor[at : at + 1] for tensor in inputs] for at in range(len(_LEVELS))]
    for double, allowed in ((False, _ALLOWED), (True, _ALLOWED_DOUBLE)):
        try:
            whole = given.run(inputs, double=double)
            each = [given.run(single, double=double) for single in singles]
        except UnsupportedModelError:  # its outputs are wrong at any size
            raise
        except Exception:  # noqa: BLE001 - it takes no batch, or has no float64
            return _MIXES if double else _FAILS
        joined = [torch.cat(parts) for parts in zip(*each, strict=True)]
        if is_close(whole, joined, allowed):
            return ""
        if [one.shape for one in whole] != [one.shape for one in joined]:
            return _FAILS
    return _MIXES


def _batch(ports: Sequence[Port], size: tuple[int, ...]) -> list[Tensor]:
    arrays = example_arrays(ports, {"batch": len(_LEVELS)} | image_size(*size))
    inputs = [torch.from_numpy(array) for array in arrays.values()]
    levels = torch.tensor(_LEVELS).reshape(-1, *[1] * (inputs[0].dim() - 1))
    return [inputs[0] * levels.to(inputs[0].dtype), *inputs[1:]]


def random_state() -> tuple[Any, ...]:
    """Return the states of the generators that a network may draw from, to be compared."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - networks draw from it
    torch_state = torch.get_rng_state().numpy().tobytes()
    return random.getstate(), str(kind), np.asarray(keys).tobytes(), str(rest), torch_state


def refuse_kept_state(
    given: GivenNetwork, ports: Sequence[Port], sizes: Sequence[tuple[int, ...]], source: str
) -> None:
    """Raise if the result of a call depends on the calls before.

    Attributes that forward sets are compared after one and after two calls; where it sets any, the
    results of a network that ran another size, and another image, are compared with those of one
    that did not.

    Args:
        given: The network.
        ports: Its inputs.
        sizes: Heights and widths that it takes, of at least one size.
        source: Name of the network, for the message.

    Raises:
        UnsupportedModelError: It does.
    """
    images = [_image(ports, size, 1.0) for size in (sizes[0], sizes[-1])]
    images.append(_image(ports, sizes[0], 0.5))
    network = given.fresh()
    before = _attributes(network)
    given.run_on(network, images[0])
    after = _attributes(network)
    changed = [name for name, value in after.items() if before.get(name, "") != value]
    if not changed:
        return
    given.run_on(network, images[0])
    again = _attributes(network)
    counted = [name for name, value in again.items() if after.get(name, "") != value]
    if counted:
        raise UnsupportedModelError(_describe_kept(source, counted[0]))
    for first, second in ((0, 1), (1, 0), (0, 2), (2, 0)):
        used = given.fresh()
        try:
            given.run_on(used, images[first])
            returned = given.run_on(used, images[second])
        except Exception:  # noqa: BLE001 - it takes each of the two by itself
            raise UnsupportedModelError(_describe_kept(source, changed[0])) from None
        if not is_close(returned, given.run(images[second]), _ALLOWED):
            raise UnsupportedModelError(_describe_kept(source, changed[0]))


def _describe_kept(source: str, name: str) -> str:
    return (
        f"{source}: forward sets {name.removeprefix('network.')!r} and its result depends on "
        "earlier calls: an exported file keeps nothing between calls, so compute it in each call "
        "or in __init__"
    )


def _image(ports: Sequence[Port], size: tuple[int, ...], level: float) -> list[Tensor]:
    arrays = example_arrays(ports, {"batch": 1} | image_size(*size))
    first, *others = (torch.from_numpy(array) for array in arrays.values())
    return [(first * level).to(first.dtype), *others]


def _attributes(network: nn.Module) -> dict[str, Any]:
    """Return what can be compared of the attributes of all modules, by path."""
    found: dict[str, Any] = {}
    for path, module in network.named_modules():
        own = {**vars(module), **module._buffers}
        for name, value in own.items():
            if name.startswith("_") and name in _OF_MODULES:
                continue
            found[f"{path}.{name}" if path else name] = _describe(value, 0)
    return found


_OF_MODULES = frozenset(vars(nn.Module()))


def _describe(value: Any, depth: int) -> Any:
    if isinstance(value, nn.Module):
        return id(value)
    if isinstance(value, Tensor):
        values = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return (
            tuple(value.shape),
            str(value.dtype),
            hashlib.sha256(values.numpy().tobytes()).hexdigest(),
        )
    if isinstance(value, np.ndarray):
        return value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if value is None or isinstance(value, (int, float, complex, str, bytes)):
        return value
    if depth >= _DEEPEST:
        return id(value)
    if isinstance(value, Mapping):
        return [(str(key), _describe(each, depth + 1)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [_describe(each, depth + 1) for each in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if hasattr(value, "__dict__") and not callable(value):
        return [(name, _describe(each, depth + 1)) for name, each in vars(value).items()]
    return id(value)
