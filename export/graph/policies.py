"""Layers of an architecture that stay in float32, as declared with its network."""

from __future__ import annotations

import onnx

from ...core.errors import UnsupportedModelError
from ...models.architecture import PrecisionPolicy
from ...models.registry import row_named


def find_precision_policy(architecture: str, precision: str) -> PrecisionPolicy:
    """Return the layers of an architecture that stay float32.

    Raises:
        UnsupportedModelError: The precision was measured not to be safe, or was not measured.
    """
    policy = row_named(architecture).architecture().precision
    if policy is None:
        raise UnsupportedModelError(
            f"{precision} was not measured for {architecture}: use `precision` fp32; "
            "see docs/precision.md"
        )
    if precision in policy.refused:
        raise UnsupportedModelError(
            f"{architecture} in {precision} is not safe: {policy.refused[precision]}. "
            "Use `precision` fp32; see docs/precision.md"
        )
    return policy


def find_int8_policy(architecture: str) -> PrecisionPolicy:
    """Return the layers that an architecture keeps in float32; each export measures the others.

    Raises:
        UnsupportedModelError: The architecture does not support int8.
    """
    policy = row_named(architecture).architecture().precision or PrecisionPolicy()
    if "int8" in policy.refused:
        raise UnsupportedModelError(
            f"{architecture} in int8 is refused: {policy.refused['int8']}. Use `precision` fp32; "
            "see docs/precision.md"
        )
    return policy


def find_exact_nodes(graph: onnx.GraphProto, policy: PrecisionPolicy) -> dict[str, str]:
    """Return the nodes of the layers that a policy keeps in float32: first output -> why.

    A layer is known by the name of its weight or bias, which are those of the network.
    """
    reasons = {}
    for tensor in graph.initializer:
        path = tensor.name.rpartition(".")[0]
        reasons[tensor.name] = policy.exact(path)
    exact = {}
    for node in graph.node:
        reasons_of_node = [reasons.get(name) for name in node.input]
        why = next(filter(None, reasons_of_node), None)
        if why is not None:
            exact[node.output[0]] = why
    return exact
