"""What a network's calls have to do with one another: images of a batch, random numbers, state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...core.errors import UnsupportedModelError, is_out_of_memory
from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from .given import GivenNetwork
from .python_state import MISSING, Change, PythonState
from .watched import can_watch, watch

_ALLOWED = 1e-4
"""Largest difference by rounding in float32, relative to the largest value."""

_ALLOWED_DOUBLE = 1e-7
"""The same in float64."""

_FAILS = "a batch of 2 fails"
_MIXES = "the result for an image depends on the others of a batch"

ONE_BY_ONE = "its code runs more operations for more images"

_LEVELS = (4.0, 0.25)
"""Brightness of the images of a batch: its statistics differ from theirs, beyond 0..1 too."""

_LATER = (1, 100, 10_000)
"""Numbers of calls after which a value that each call changes is tried."""

_ORDERS = ((1, 0), (0, 1), (0, 2), (2, 0), (0, 3), (0, 4), (3, 0), (4, 0), (0, 5), (5, 0))
"""Images that are run one after the other. The first is of a size; the others have another height
and width, half of the brightness, another width, another height, another batch."""


def is_close(outputs: Sequence[Tensor], expected: Sequence[Tensor], allowed: float) -> bool:
    """Return whether tensors differ by at most a share of the largest finite value of each."""
    for one, other in zip(outputs, expected, strict=True):
        if one.shape != other.shape:
            return False
        finite = other[other.isfinite()]
        limit = allowed * float(finite.abs().max()) if finite.numel() else 0.0
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
    singles = []
    for at in range(len(_LEVELS)):
        singles.append([tensor[at : at + 1] for tensor in inputs])
    for double, allowed in ((False, _ALLOWED), (True, _ALLOWED_DOUBLE)):
        try:
            with _CallCounter() as of_batch:
                batched = given.run(inputs, double=double)
            with _CallCounter() as of_images:
                each = [given.run(single, double=double) for single in singles]
        except UnsupportedModelError:  # its outputs are wrong at any size
            raise
        except Exception:  # noqa: BLE001 - it takes no batch, or has no float64
            return _MIXES if double else _FAILS
        joined = [torch.cat(parts) for parts in zip(*each, strict=True)]
        if is_close(batched, joined, allowed):
            one_by_one = of_images.count != len(singles) * of_batch.count
            return ONE_BY_ONE if one_by_one else ""
        if [one.shape for one in batched] != [one.shape for one in joined]:
            return _FAILS
    return _MIXES


class _CallCounter(TorchFunctionMode):
    """Counts the calls of PyTorch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count a call, and make it."""
        self.count += 1
        return func(*args, **(kwargs or {}))


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

    A network runs twice with one image, with one of another size, and with the first again. Where
    its code changes attributes, class attributes, globals, closures or caches, the results of a
    network that ran another size, and another image, are compared with those of one that did not;
    what every call changes must not be read.

    Args:
        given: The network; all else that its code keeps is as before any call afterwards.
        ports: Its inputs.
        sizes: Heights and widths that it takes, of at least one size.
        source: Name of the network, for the message.

    Raises:
        UnsupportedModelError: It does.
    """
    (height, width), (other_height, other_width) = sizes[0], sizes[-1]
    images = [_image(ports, size, 1.0) for size in (sizes[0], sizes[-1])]
    images.append(_image(ports, sizes[0], 0.5))
    images += [_image(ports, size, 1.0) for size in ((height, other_width), (other_height, width))]
    images.append(_image(ports, sizes[0], 1.0, ports[0].lengths.get("batch", 2)))
    given.state.restore()
    try:
        name = _find_stored_state(given, images)
    finally:
        given.state.restore()
    if name is not None:
        sets = f"forward sets {name!r} and its result" if name else "the result of forward"
        raise UnsupportedModelError(
            f"{source}: {sets} depends on earlier calls: an exported file keeps nothing between "
            "calls, so compute it in each call or in __init__"
        )


def _find_stored_state(given: GivenNetwork, images: Sequence[list[Tensor]]) -> str | None:
    """Return the name of what decides a later result, "" if it has none; None if nothing does."""
    network = given.fresh()
    generators, start = random_state(), PythonState(network)
    expected = given.run_on(network, images[0])
    if random_state() != generators:
        return None  # they have a message of their own
    changed = start.changes()
    name = changed[0].name if changed else ""
    if changed:
        after = PythonState(network)
        if not is_close(given.run_on(network, images[0]), expected, _ALLOWED):
            return name
        for counted in after.changes():
            if _is_read(given, network, counted, images[0], expected):
                return counted.name
    given.run_on(network, images[1])
    if not is_close(given.run_on(network, images[0]), expected, _ALLOWED):
        return name
    for first, second in _ORDERS if changed else ():
        given.state.restore()
        try:
            right = given.run(images[second])
        except Exception as error:  # it does not take this size
            if is_out_of_memory(error):
                raise
            continue
        if not _is_same_after(given, images[first], images[second], right):
            return name
    return None


def _is_same_after(
    given: GivenNetwork, first: Sequence[Tensor], second: Sequence[Tensor], right: Sequence[Tensor]
) -> bool:
    """Return whether a network that ran another image returns what it should for the second."""
    given.state.restore()
    used = given.fresh()
    try:
        given.run_on(used, first)
    except Exception as error:  # it does not take this size
        if is_out_of_memory(error):
            raise
        return True
    try:
        returned = given.run_on(used, second)
    except Exception as error:  # it takes it by itself
        if is_out_of_memory(error):
            raise
        return False
    return is_close(returned, right, _ALLOWED)


def _is_read(
    given: GivenNetwork,
    network: nn.Module,
    change: Change,
    image: Sequence[Tensor],
    expected: Sequence[Tensor],
) -> bool:
    """Return whether what every call changes decides something: it is read, or results change."""
    reads = list[bool]()
    is_element = isinstance(change.owner, list) and change.before is MISSING
    is_whole = is_element or isinstance(change.owner, Tensor)
    value = change.owner if is_whole else change.after
    if not can_watch(value):
        return True
    state = PythonState(network)
    put = partial(state.replace, value) if is_whole else change.put
    try:
        put(watch(value, lambda: reads.append(True)))
        results = [given.run_on(network, image)]
        for count in _LATER if not is_element else ():
            put(change.after + count * (change.after - change.before))
            results.append(given.run_on(network, image))
        return bool(reads) or not all(is_close(each, expected, _ALLOWED) for each in results)
    except Exception as error:  # it does not take another value
        if is_out_of_memory(error):
            raise
        return True
    finally:
        state.restore()


def _image(
    ports: Sequence[Port], size: tuple[int, ...], level: float, batch: int = 1
) -> list[Tensor]:
    arrays = example_arrays(ports, {"batch": batch} | image_size(*size))
    first, *others = (torch.from_numpy(array) for array in arrays.values())
    return [(first * level).to(first.dtype), *others]
