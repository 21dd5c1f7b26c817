"""Compares each inserted site with the attention that it replaces, at two sizes."""

from __future__ import annotations

import torch
from torch import Tensor, fx

from ...core.errors import NystraError, foreign_text
from ..rewrite.site_modules import FoundMap, FoundTokens, FoundWindows, blind
from .graph import Traced, shared_copy
from .regions import Region, values_of

ALLOWED = 1e-5
"""Largest allowed difference of a site's result, relative to its largest value."""
_TELLING = 10.0
"""Attention that ignores its scores must differ by at least this many times more than the site."""


def recorded_values(traced: Traced, names: set[str]) -> list[dict[str, Tensor]]:
    """Return the values of nodes of the original graph at each size.

    Args:
        traced: The graph with inputs of one or two sizes.
        names: Names of the nodes.

    Returns:
        Name of a node -> its tensor, one item per size.
    """
    runs = [_recorded(traced.graph, traced.first, {name: name for name in names})]
    if traced.second is not None:
        known = {name: name for name in names}
        if traced.second_graph is not None:
            of_file = {node.meta.get("onnx"): node.name for node in traced.second_graph.graph.nodes}
            own = {node.name: node.meta.get("onnx") for node in traced.graph.graph.nodes}
            known = {of_file.get(own[name], ""): name for name in names}
        runs.append(_recorded(traced.second_graph or traced.graph, traced.second, known))
    return runs


def _recorded(
    graph: fx.GraphModule, inputs: tuple[Tensor, ...], names: dict[str, str]
) -> dict[str, Tensor]:
    """Return the values of nodes, each under the name that its node maps to."""
    return {names[name]: value for name, value in values_of(graph, names, inputs).items()}


def fault_of(region: Region, runs: list[dict[str, Tensor]]) -> str:
    """Return why a region differs from the graph, or "" if it does not.

    Args:
        region: The region; its inputs and its output are among the recorded values.
        runs: Recorded values of the original graph, one item per size.
    """
    module = shared_copy(region.module)
    errors = []
    for values in runs:
        try:
            errors.append(_difference(module, region, values))
        except _NoResultError as why:
            return str(why)
    worst = max(errors)
    if not worst <= ALLOWED:
        return f"a site in its place differs by {worst:.0e} of its result"
    for part in module.modules():
        if isinstance(part, (FoundWindows, FoundMap, FoundTokens)):
            blind(part)
    least = min(_difference(module, region, values) for values in runs)
    if not least > _TELLING * worst:
        return "its result does not differ from attention that ignores its scores"
    return ""


class _NoResultError(Exception):
    """The region has no result that can be compared; the message says why."""


def _difference(module: fx.GraphModule, region: Region, values: dict[str, Tensor]) -> float:
    """Return the largest difference of a region's result, relative to its largest value.

    Raises:
        _NoResultError: There is no result, or it has another shape.
    """
    if not {*region.inputs, region.output} <= values.keys():
        raise _NoResultError("its inputs or its result do not exist at another image size")
    expected = values[region.output]
    try:
        with torch.no_grad():
            got = module(*(values[name].clone() for name in region.inputs))
    except (RuntimeError, NystraError) as error:  # the site was written for other sizes
        reason = foreign_text(error).partition("\n")[0]
        raise _NoResultError(
            f"a site in its place fails at another image size: {reason:.160}"
        ) from error
    if got.shape != expected.shape:
        one, other = ("x".join(map(str, t.shape)) for t in (got, expected))
        raise _NoResultError(
            f"its result is {other} at another size or number of images, a site there gives {one}"
        )
    return float((got - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def outputs_differ(first: object, second: object) -> float:
    """Return the largest difference of two results, relative to the largest value of the second.

    Results are tensors or nested lists of tensors. It is infinite if their shapes differ.
    """
    ones, others = (
        [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, Tensor)]
        for result in (first, second)
    )
    if [t.shape for t in ones] != [t.shape for t in others]:
        return float("inf")
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))
        for a, b in zip(ones, others, strict=True)
    )
