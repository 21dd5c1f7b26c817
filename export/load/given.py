"""What a network returned before anything of nystra's touched it: the last word of an export."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from ...core.arrays import Array
from ...models.sizes.given import GivenNetwork
from ..rewrite.graph_network import GraphNetwork
from ..rewrite.sources import ModuleSource
from .with_preprocessing import Preparation


def run_as_given(network: nn.Module, arrays: Sequence[Array]) -> list[Array] | None:
    """Return the outputs of a network as it was given, called as its user calls it.

    That is the module as it was constructed, or the ONNX file in plain onnxruntime.

    Args:
        network: The loaded network, with the attention that it was trained with.
        arrays: Its inputs, in order.

    Returns:
        None where it does not take these inputs by itself: nystra pads them then.
    """
    inputs = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    for hook in network._forward_pre_hooks.values():
        if isinstance(hook, Preparation):
            inputs[0] = hook.prepare(inputs[0])
    original = _find_given(network)
    if original is None:
        with torch.no_grad():
            returned = network(*inputs)
        outputs = returned if isinstance(returned, tuple) else (returned,)
    else:
        results = original.outputs_for(inputs)
        if results is None:
            return None
        outputs = results
    return [tensor.numpy() for tensor in outputs]


def is_changed(network: nn.Module) -> bool:
    """Return whether a loaded network is another module than the one that was given."""
    return isinstance(network, GraphNetwork) or _find_given(network) is not None


def _find_given(network: nn.Module) -> GivenNetwork | None:
    if isinstance(network, GraphNetwork) and isinstance(network.source, ModuleSource):
        network = network.source.module
    original = getattr(network, "given", None)
    return original if isinstance(original, GivenNetwork) else None
