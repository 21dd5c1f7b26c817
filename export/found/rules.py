"""Runs a graph on values with places and scores, and records the attention in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from ..search.hints import Hint, unserved
from ..search.layout import Layout, layout_of
from ..search.places import MIXED, agreed, broadcasts, fresh_places
from .copied_parts import CopiedParts
from .hints import hint_of, hinted_score
from .movement import MOVES, PADS, moved_values, name_of, names, padded_places, unfolded
from .products import (
    FUSED,
    PRODUCTS,
    attention_place,
    find_core,
    fused_core,
    fused_place,
    linear_place,
    product_place,
    product_score,
)
from .scores import SOFTMAXES, elementwise_score, softmax_of
from .values import Core, Passed, Score, Value

_REDUCES = names(
    "sum mean amax amin max min var std norm linalg_vector_norm logsumexp prod any all var_mean "
    "std_mean argmax argmin"
)
_NORMS = names(
    "native_layer_norm native_group_norm native_batch_norm cumsum sort batch_norm glu layer_norm "
    "_native_batch_norm_legit_no_training _native_batch_norm_legit_functional group_norm rms_norm "
    "_native_batch_norm_legit cudnn_batch_norm _log_softmax log_softmax _fused_rms_norm "
    "instance_norm"
)
_POINTWISE = names(
    "_to_copy to where masked_fill clone copy dropout native_dropout index_put scatter fill "
    "bernoulli polar view_as_real prelu"
)
_FACTORIES = names(
    "zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty rand_like "
    "new_empty_strided randn_like"
)
_CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "_convolution")
RESIZES = ("pool", "upsample", "pixel", "interpolate")
"""Parts of the names of operators whose result is a new map."""

KNOWN = frozenset((*_REDUCES, *_NORMS, *_POINTWISE, *_FACTORIES, *_CONVOLUTIONS))
"""Names of operators that have a rule here."""

Results = tuple[list[Any], list[Score | None]]


class Provenance(fx.Interpreter):
    """Runs a graph of ATen operators on values with places.

    Attributes:
        cores: The attentions that were found, in the graph's order.
        layouts: Result of an attention -> its layout.
        passed: Attention that cannot be replaced.
        values: Value of every node; of tensors that depend on the input only the shape.
    """

    def __init__(self, graph: fx.GraphModule, *, forgets: bool, by_shape: bool = False) -> None:
        """Take a graph. It is not modified.

        Args:
            graph: The graph.
            forgets: Whether places are freed after their last use, and of parts that differ only in
                weights the first is run: ``copied.originals`` has the corresponding nodes.
            by_shape: Whether of tensors that depend on the input only the shape is computed. The
                run fails if anything depends on their values.
        """
        super().__init__(graph, garbage_collect_values=False)
        self.copied = CopiedParts.of(graph) if forgets else CopiedParts()
        self.forgets, self.by_shape = forgets, by_shape
        self.cores: list[Core] = []
        self.layouts: dict[fx.Node, Layout] = {}
        self.passed: list[Passed] = []
        self._factors: dict[fx.Node, tuple[tuple[Value, Value], tuple[Tensor, Tensor]]] = {}
        self._last = _last_uses(graph)
        self._node: fx.Node

    @property
    def values(self) -> dict[fx.Node, Any]:
        """Value of every node that has run."""
        return self.env

    def depends(self, node: fx.Node) -> bool:
        """Return whether a value of a node depends on the input."""
        value = self.env.get(node)
        each = value if isinstance(value, (list, tuple)) else [value]
        return any(isinstance(one, Value) and one.place is not None for one in each)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return an input with the places of a new map."""
        given = super().placeholder(target, args, kwargs)
        return Value(given, fresh_places(given.shape)) if isinstance(given, Tensor) else given

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return a constant."""
        constant = super().get_attr(target, args, kwargs)
        return Value(constant) if isinstance(constant, Tensor) else constant

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of the graph."""
        return args[0]

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and free what no later node needs."""
        if self.copied.is_copied(n, self.env):
            given = self.copied.given(n)
            self.copied.keep(n, given)
            return given
        self._node = n
        result = super().run_node(n)
        self.copied.keep(n, result)
        if n in self._last:
            self.env[n] = result
            for used in self._last[n]:
                self._free(used)
        return result

    def _free(self, node: fx.Node) -> None:
        value = self.env.get(node)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, Value):
                one.forget(places=self.forgets)
        if isinstance(value, Value) and value.place is None and self._is_spent(node):
            self.env[node] = value.without_data()

    def _is_spent(self, node: fx.Node) -> bool:
        """Return whether a computed constant is needed in no map, but only for scores."""
        if self.forgets or node.op != "call_function":
            return self.forgets
        users = [self.env.get(user) for user in node.users]
        return all(
            isinstance(user, Value)
            and (user.place is None or (user.score is not None and user.score.hint is None))
            for user in users
        )

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the results of an operator, with places and scores."""
        leaves = tree_leaves((args, kwargs), is_leaf=_is_value)
        values = [leaf for leaf in leaves if _is_value(leaf)]

        def pick(of: Callable[[Value], Any]) -> Any:
            return tree_map(
                lambda a: of(a) if _is_value(a) else a, (args, kwargs), is_leaf=_is_value
            )

        if not isinstance(target, torch._ops.OpOverload):  # getitem, arithmetic of sizes
            if values and isinstance(args[0], (list, tuple)):
                return copy.copy(target(*args, **kwargs))  # two nodes may take the same item
            plain_args, plain_kwargs = pick(lambda value: value.data)
            return target(*plain_args, **plain_kwargs)
        name = name_of(target)
        constant = name in _FACTORIES or all(value.place is None for value in values)
        on_meta = self.by_shape and not constant
        plain_args, plain_kwargs = pick(lambda v: v.data.to("meta") if on_meta else v.data)
        data = target(*plain_args, **plain_kwargs)
        if constant or not tree_leaves(data):
            return tree_map(lambda d: Value(d) if isinstance(d, Tensor) else d, data)
        many = isinstance(data, (list, tuple))
        outs = list(data) if many else [data]
        places, scores = self._results(name, target, (args, kwargs), values, outs, pick)
        hint = hint_of(name, values)
        results = [
            Value(out, place, score, hint) if isinstance(out, Tensor) else out
            for out, place, score in zip(outs, places, scores, strict=True)
        ]
        return results if many else results[0]

    def _results(
        self, name: str, target: Any, given: Any, values: list[Value], outs: list[Any], pick: Any
    ) -> Results:
        args, kwargs = given
        none: list[Score | None] = [None] * len(outs)
        first = args[0] if args and _is_value(args[0]) else values[0]
        if name in MOVES:
            return moved_values(target, values, first, outs, pick)
        if name in PADS and first.place is not None:
            return [padded_places(first.place, list(args[1]))], none
        if name == "im2col" and first.place is not None:
            return [unfolded(first.place, args, padded=padded_places)], none
        if name in FUSED:
            return self._fused(args, kwargs, outs), none
        if name in PRODUCTS:
            return self._product(name, args, kwargs, outs[0])
        if name in _CONVOLUTIONS:
            return [_convolved(name, args, outs[0])], none
        if name in _REDUCES and first.place is not None:
            return [_reduced(name, args, first.place, out) for out in outs], none
        if name in SOFTMAXES:
            score = softmax_of(first.score, self._node)
            if score is None:
                score = hinted_score(first.hint, self._node, outs[0])
            if score is None and first.hint is Hint.SUMS:
                self._pass(self._node, Hint.SUMS.value)
            return [first.place], [score]
        return self._elementwise(name, target, given, values, outs)

    def _elementwise(
        self, name: str, target: Any, given: Any, values: list[Value], outs: list[Any]
    ) -> Results:
        args, kwargs = given
        known = torch.Tag.pointwise in target.tags or name in _NORMS or name in _POINTWISE
        broad = [value for value in values if value.place is not None]
        places: list[Any] = []
        for out in outs:
            if not isinstance(out, Tensor):
                places.append(None)
            elif known or (name not in RESIZES and _alike(broad, out)):
                places.append(_combined(broad, out))
            else:
                wide = out.dim() >= 4
                places.append(fresh_places(out.shape) if wide else torch.full(out.shape, MIXED))
        scores: list[Score | None] = [None] * len(outs)
        if known and name not in _NORMS:
            scores[0] = elementwise_score(name, args, kwargs, values, outs[0])
        return places, scores

    def _product(self, name: str, args: Any, kwargs: Any, out: Tensor) -> Results:
        added = None
        if name in ("addmm", "baddbmm"):
            added, args = args[0], args[1:]
        a, b = args[0], args[1]
        constant = a.place is None or b.place is None
        weights = next((value for value in (a, b) if _is_weight(value)), None)
        if weights is not None and (reason := unserved(weights.score.hint, constant=constant)):
            self._pass(weights.score.softmax, reason)
        if constant:
            return [linear_place(name, a, b, out)], [None]
        if weights is not None and weights.score.hint is None and out.dim() >= 2:
            place = self._attention(weights, a, b, out)
            if place is not None:
                return [place], [None]
        factors = (a.without_data(), b.without_data())
        self._factors[self._node] = factors, (a.data == 0, b.data == 0)
        return [product_place(a, b, out)], [product_score(self._node, out, added, kwargs)]

    def _attention(self, weights: Value, a: Value, b: Value, out: Tensor) -> Tensor | None:
        """Record the attention that a product completes; return the places of its result."""
        score = weights.score
        if score is None or score.softmax is None:
            return None
        factors, blanks = self._factors[score.product]
        core = find_core(self._node, weights, (a, b), factors, blanks)
        if isinstance(core, str):
            self._pass(score.softmax, core)
            return None
        self._note(core)
        return attention_place(core, out)

    def _fused(self, args: Any, kwargs: Any, outs: list[Any]) -> list[Any]:
        core = fused_core(self._node, args, kwargs)
        if isinstance(core, str):
            self._pass(self._node, core)
        else:
            self._note(core)
        rest = [torch.full(o.shape, MIXED) if isinstance(o, Tensor) else None for o in outs[1:]]
        return [fused_place(args[0], outs[0]), *rest]

    def _note(self, core: Core) -> None:
        """Record an attention and its layout; free its values per pair of tokens."""
        self.layouts[core.out] = layout_of(core)
        self.cores.append(core.without_pairs())

    def _pass(self, softmax: fx.Node, reason: str) -> None:
        if all(passed.softmax is not softmax for passed in self.passed):
            self.passed.append(Passed(softmax, reason))


def search(
    graph: fx.GraphModule,
    inputs: tuple[Tensor, ...],
    *,
    forgets: bool = False,
    by_shape: bool = False,
) -> Provenance:
    """Run a graph on inputs and return the run, with the attention that it found.

    Args:
        graph: The graph. It is not modified.
        inputs: Inputs of the graph.
        forgets: Whether places are freed after their last use.
        by_shape: As in `Provenance`.

    Returns:
        The run. Its ``passed`` lists every softmax of scores that is in no attention.
    """
    run = Provenance(graph, forgets=forgets, by_shape=by_shape)
    with torch.no_grad():
        run.run(*(tensor.clone() for tensor in inputs))
    used = {core.softmax for core in run.cores}
    run.passed = [passed for passed in run.passed if passed.softmax not in used]
    used |= {passed.softmax for passed in run.passed}
    nodes: list[fx.Node] = list(graph.graph.nodes)
    for node in nodes:
        value = run.values.get(node)
        score = value.score if isinstance(value, Value) else None
        if score is None or score.hint is not None or score.softmax is not node:
            continue
        if node not in used:
            reason = score.reason or "its weights are not multiplied with values"
            run.passed.append(Passed(node, reason))
    return run


def _is_value(value: Any) -> bool:
    return isinstance(value, Value)


def _is_weight(value: Value) -> bool:
    return value.score is not None and value.score.softmax is not None


def _last_uses(graph: fx.GraphModule) -> dict[fx.Node, list[fx.Node]]:
    """Return for each node which nodes it is the last to use."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op == "output":
            continue
        for used in node.all_input_nodes:
            last[used] = node
    uses: dict[fx.Node, list[fx.Node]] = {}
    for used, user in last.items():
        uses.setdefault(user, []).append(used)
    return uses


def _alike(broad: list[Value], out: Tensor) -> bool:
    return any(value.place is not None and value.place.shape == out.shape for value in broad)


def _combined(broad: list[Value], out: Tensor) -> Tensor:
    """Return the places of an element-wise result: those of the largest input that has places."""
    places = [
        v.place for v in broad if v.place is not None and broadcasts(v.place.shape, out.shape)
    ]
    if not places:
        return torch.full(out.shape, MIXED)
    first, *others = sorted(places, key=lambda place: -place.numel())
    place = first.expand(out.shape)
    for other in others:
        better = (place < 0) & (other >= 0)
        if bool(better.any()):
            place = torch.where(better, other, place)
    return place


def _reduced(name: str, args: Any, place: Tensor, out: Tensor) -> Tensor:
    position = 2 if name in ("norm", "linalg_vector_norm") else 1
    dims = args[position] if len(args) > position else None
    if not isinstance(dims, (int, list, tuple)) or isinstance(dims, bool) or dims in ([], ()):
        dims = list(range(place.dim()))
    reduced = agreed(place, dims)[0]
    return (
        reduced.reshape(out.shape) if reduced.numel() == out.numel() else reduced.expand(out.shape)
    )


def _convolved(name: str, args: Any, out: Tensor) -> Tensor:
    """Return the places of a convolution: those of its input if the map stays the same, else new.

    A map with mirrored padding gets new places: one place would belong to several elements.
    """
    x = args[0]
    stride = args[3] if len(args) > 3 else [1]
    transposed = name in ("convolution", "_convolution") and bool(args[6])
    if (
        x.place is None
        or transposed
        or set(stride if isinstance(stride, list) else [stride]) != {1}
    ):
        return fresh_places(out.shape)
    place, exact = agreed(x.place, 1)
    same = out.shape[2:] == x.data.shape[2:] and out.dim() == x.data.dim() and bool(exact.all())
    if same and bool((place >= 0).all()) and len(place.unique()) == place.numel():
        return place.expand(out.shape)
    return fresh_places(out.shape)
