"""Replaces found attention by sites of token lists."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from ..rewrite.site_modules import FoundTokens, NotOnMap, token_geometry
from ..search.layout import Layout
from .biases_by_replay import Shapes, replayed
from .file_values import is_value, result_of, stacked, unstacked
from .map_form import add_constant, is_symbolic, tentative
from .rules import Provenance
from .values import Core

aten = torch.ops.aten


def put_tokens(
    graph: fx.GraphModule, run: Provenance, core: Core, layout: Layout, name: str, others: Shapes
) -> tuple[fx.Node, fx.Node]:
    """Write an attention as a site of tokens.

    Args:
        graph: The graph; nodes are added before the attention's result.
        run: The search that has run on it.
        core: The attention.
        layout: The layout of its tokens.
        name: Name of the submodule of the site.
        others: Shapes of the graph's tensors at another image size.

    Returns:
        The node whose value the site computes, and the new node that has that value.

    Raises:
        NotOnMap: The attention is not one of token lists; the graph is unchanged.
    """
    geometry, goal = token_geometry(layout), result_of(run, core)
    call = graph.graph.call_function
    with tentative(graph.graph, core.out):
        q, k, v, bias = _tokens(graph, run, core, layout, others)
        graph.add_submodule(name, FoundTokens(geometry))
        out: fx.Node = graph.graph.call_module(name, (q, k, v, bias))
        if not core.fused:
            out = call(torch.squeeze, (out, 1))
            if core.v_left:
                out = call(torch.transpose, (out, 1, 2))
            if _dims(run, core.out) == 2:
                out = call(torch.squeeze, (out, 0))
            out = unstacked(graph, run, core, out, goal)
    return goal, out


def _dims(run: Provenance, node: fx.Node) -> int:
    value = run.values[node]
    return int((value[0] if isinstance(value, (list, tuple)) else value).data.dim())


def _tokens(
    graph: fx.GraphModule, run: Provenance, core: Core, layout: Layout, others: Shapes
) -> tuple[fx.Node, fx.Node, fx.Node, fx.Node | None]:
    """Return nodes of q, k, v (B, h, N, d) and of the term that is added to the scores, or None."""
    call = graph.graph.call_function
    if core.fused:
        if _dims(run, core.q) != 4:
            raise NotOnMap("its queries have no heads")
        if not all(map(is_value, (core.q, core.k, core.v))):
            raise NotOnMap("its queries, keys and values are not values of the file")
        return core.q, core.k, core.v, _mask(graph, run, core)
    q, k, v = (stacked(graph, run, node) for node in (core.q, core.k, core.v))
    if core.swapped:
        q = call(torch.transpose, (q, -2, -1))
    else:
        k = call(torch.transpose, (k, -2, -1))
    if core.v_left:
        v = call(torch.transpose, (v, -2, -1))
    if _dims(run, core.product) == 2:
        q, k, v = (call(torch.unsqueeze, (node, 0)) for node in (q, k, v))
    bias = None
    if isinstance(core.beta, Tensor) and (core.by_data or bool((core.beta != 0).any())):
        scores = replayed(graph, run, core, q, others)
        shape = (layout.keys, layout.tokens) if core.swapped else (layout.tokens, layout.keys)
        bias = call(torch.reshape, (scores, (-1, *shape)))
        bias = call(torch.transpose, (bias, 1, 2)) if core.swapped else bias
        bias = call(torch.unsqueeze, (bias, 1))
    q = _scaled(graph, core, layout, q)
    q, k, v = (call(torch.unsqueeze, (node, 1)) for node in (q, k, v))
    return q, k, v, bias


def _scaled(graph: fx.GraphModule, core: Core, layout: Layout, q: fx.Node) -> fx.Node:
    """Return queries times the factor of their head, if factors differ between heads."""
    if not isinstance(core.alpha, Tensor) or isinstance(layout.scale, float):
        if isinstance(core.alpha, Tensor) and layout.scale != float(core.alpha.flatten()[0]):
            raise NotOnMap("its scores have a factor that differs between tokens")
        return q
    factors = core.alpha[:, 0, 0]
    heads = layout.heads
    rows = factors.reshape(-1, heads) if len(factors) % heads == 0 else factors[None]
    if is_symbolic(graph) and not bool((rows == rows[:1]).all()):
        raise NotOnMap("factors of heads in another order than the heads")
    call = graph.graph.call_function
    if not bool((rows == rows[:1]).all()):
        factor = add_constant(graph, factors.float().reshape(-1, 1, 1))
        return call(torch.mul, (q, factor))
    apart = call(torch.unflatten, (q, 0, (-1, heads)))
    factor = add_constant(graph, rows[0].float().reshape(-1, 1, 1))
    return call(torch.flatten, (call(torch.mul, (apart, factor)), 0, 1))


def _mask(graph: fx.GraphModule, run: Provenance, core: Core) -> fx.Node | None:
    """Return the mask of a fused operator as an additive term of the scores."""
    kwargs = core.out.kwargs
    mask: Any = kwargs.get("attn_mask", core.out.args[3] if len(core.out.args) > 3 else None)
    if not isinstance(mask, fx.Node):
        return None
    value = run.values[mask]
    if value.data.dtype != torch.bool:
        return mask
    call = graph.graph.call_function
    zeros = call(torch.zeros_like, (mask,), {"dtype": run.values[core.q].data.dtype})
    return call(torch.masked_fill, (zeros, call(torch.logical_not, (mask,)), -math.inf))
