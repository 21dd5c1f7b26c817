"""Why no file can compute a module: it reads values, keeps something, or changes its inputs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

# PyTorch's tensors that have a shape and no values; torch.export traces with them.
from torch._subclasses.fake_tensor import FakeTensorMode

from ...core.errors import UnsupportedModelError, foreign_reason
from ...models.sizes.plain_run import plain_run


def refuse_values_read(network: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Run a network on inputs that have no values: only what reads none can run.

    A graph would hold what was read for one input: ``.item()``, ``.numpy()``, ``if tensor:``.

    Args:
        network: The network, in float32 on the CPU. It is copied: it may keep such tensors.
        inputs: Inputs that it takes.

    Raises:
        UnsupportedModelError: It cannot be run so.
    """
    shared = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    copied = copy.deepcopy(network, shared)
    with (
        warnings.catch_warnings(),
        torch.no_grad(),
        plain_run(),
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
    ):
        warnings.simplefilter("ignore")
        without_values = [mode.from_tensor(tensor) for tensor in inputs]
        try:
            copied(*without_values)
        except Exception as error:  # of its code or of any operator
            raise UnsupportedModelError(
                "the module reads values of its inputs (`.item()`, `.numpy()`, `if tensor:`), or "
                f"uses an operator that needs them: {foreign_reason(error, 200)}"
            ) from error


def refuse_side_effects(
    call: Callable[[Sequence[Tensor]], Sequence[Tensor]], tensors: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Call a module twice, and return what it returns.

    Args:
        call: Calls one copy of the module.
        tensors: The tensors of a call.

    Raises:
        UnsupportedModelError: The results differ, or it writes to its inputs.
    """
    results = []
    for _ in range(2):
        given = [tensor.clone() for tensor in tensors]
        results.append(call(given))
        if not all(_are_equal(*pair) for pair in zip(given, tensors, strict=True)):
            raise UnsupportedModelError("the module writes to its inputs")
    first, second = results
    if len(first) != len(second) or not all(map(_are_equal, first, second)):
        raise UnsupportedModelError(
            "the module returns something else when it is called again: it is random, or keeps "
            "something of a call"
        )
    return first


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
