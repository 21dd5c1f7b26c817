"""Follows places and scores through a graph at one size, and records the attention in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from ...runtime.machine.memory import release_free_memory
from ..execute.parts import find_last_uses
from ..execute.sized import Sized
from .layout import Layout, read_layout
from .movement import pad_places, read_integer, read_numbers
from .new_places import combine_places, convolve_places, make_new_map
from .operators import Kind, Operator, find_hint, rule_of
from .places import MOVED, compact, find_agreed, make_places
from .products import (
    PRODUCTS,
    attention_place,
    find_core,
    mask_at,
    place_of,
    product_place,
    read_fused_attention,
    read_product,
)
from .scores import apply_softmax, change_score, find_unserved_reason
from .values import Attention, Hint, Number, Score, Step, Unmatched, Value, as_number

Results = tuple[list[Tensor], list[Score | None]]


class Provenance:
    """Carries values with places through a graph.

    Attributes:
        sized: The graph's shapes and constants.
        values: Value of every tensor that was reached, by its value in the graph.
        cores: The attentions that were found, in the graph's order.
        layouts: Result of an attention -> its layout.
        unmatched: Attention that cannot be replaced.
    """

    def __init__(self, sized: Sized, varying: frozenset[str] = frozenset()) -> None:
        """Take a graph at a size, and the constants whose elements depend on the size."""
        self.sized = sized
        self.varying = varying
        self.values: dict[ir.Value, Value] = {}
        self.cores: list[Attention] = []
        self.layouts: dict[ir.Value, Layout] = {}
        self.unmatched: list[Unmatched] = []

    def value(self, ir_value: ir.Value | None) -> Value | None:
        """Return the value of a tensor of the graph; one that depends on no pixel has no place."""
        if ir_value is None:
            return None
        value = self.values.get(ir_value)
        name = str(ir_value.name)
        if value is None and name in self.sized.shapes:
            value = Value(self.sized.shapes[name])
            self.values[ir_value] = value
        return value

    def run(self, graph: ir.Graph) -> Provenance:
        """Follow all nodes of a graph; return the same object."""
        for ir_value in graph.inputs:
            if self.sized.follows_input(ir_value) and (value := self.value(ir_value)) is not None:
                value.place = make_places(value.shape)
        last = find_last_uses(graph)
        for node in graph:
            self._follow(node)
            for ir_value in last.get(node, ()):
                if (value := self.values.get(ir_value)) is not None:
                    value.forget()
        self._pass_the_rest(graph)
        self.sized.release()
        return self

    def _follow(self, node: ir.Node) -> None:
        data_outputs = []
        for ir_value in node.outputs:
            name = str(ir_value.name)
            if name in self.sized.data and name in self.sized.shapes:
                data_outputs.append(ir_value)
        if not data_outputs:
            return
        read = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
        inputs = [self.value(ir_value) for ir_value in read]
        names = [str(ir_value.name) for ir_value in node.outputs]
        outs = [self.sized.shapes.get(name, ()) for name in names]
        step = Step(node, inputs, outs, self.sized, self.varying)
        rule = rule_of(node)
        readable = rule is not None and all(
            value is not None
            for ir_value, value in zip(read, inputs, strict=True)
            if ir_value is not None
        )
        if rule is None or not readable or not step.data():
            none: list[Score | None] = [None] * len(outs)
            places = combine_places(step)
            scores = none
        else:
            places, scores = self._results(rule, step)
        hint = find_hint(rule, step)
        results = zip(node.outputs, outs, places, scores, strict=False)
        for ir_value, shape, place, score in results:
            if ir_value in data_outputs:
                self.values[ir_value] = Value(shape, place, score, hint)

    def _results(self, rule: Operator, step: Step) -> Results:
        none: list[Score | None] = [None] * len(step.outs)
        if rule.kind is Kind.MOVES or rule.kind is Kind.PADS:
            return self._move(rule, step)
        if rule.kind is Kind.PRODUCT:
            return self._product(step)
        if rule.kind is Kind.FUSED:
            return self._read_fused(step), none
        if rule.kind is Kind.CONVOLUTION:
            return [convolve_places(step)] * len(step.outs), none
        if rule.kind is Kind.REDUCES:
            return [self._reduce(step)], none
        if rule.kind is Kind.SOFTMAX:
            return self._softmax(step)
        scores = [change_score(step, rule.change), *none[1:]]
        return combine_places(step), scores

    def _softmax(self, step: Step) -> Results:
        first = step.inputs[0]
        score = apply_softmax(step)
        if score is None and first is not None and first.hint is Hint.SUMS:
            self._pass(step.node, Hint.SUMS.value)
        return combine_places(step), [score]

    def _move(self, rule: Operator, step: Step) -> Results:
        count = len(step.inputs)
        moving = [at for at in rule.moved or range(count) if at < count]
        others = [at for at in step.data() if at not in moving]
        none: list[Score | None] = [None] * len(step.outs)
        if others:
            moved_places = [torch.tensor(MOVED).expand(out) for out in step.outs]
            return moved_places, none
        move = rule.move
        if move is None:
            return combine_places(step), none
        fixed = {
            at: step.constant(at)
            for at, value in enumerate(step.inputs)
            if value is not None and at not in moving
        }

        def numbers(of: dict[int, Tensor], *, place: bool = False) -> list[Tensor]:
            parts = [of.get(at, fixed.get(at)) for at in range(count)]
            chosen = move
            if place and rule.kind is Kind.PADS:
                chosen = pad_places
            return chosen(step.node, parts, step.outs)

        moving_values = {}
        moving_places = {}
        for at in moving:
            value = step.inputs[at]
            if value is not None:
                moving_values[at] = value
                moving_places[at] = place_of(value)
        places = numbers(moving_places, place=True)
        return [compact(place) for place in places], self._move_scores(
            rule, step, moving_values, numbers
        )

    def _move_scores(
        self,
        rule: Operator,
        step: Step,
        moving_values: dict[int, Value],
        move: Callable[..., list[Tensor]],
    ) -> list[Score | None]:
        hinted = [value.score for value in moving_values.values() if value.score is not None]
        scores = [score for score in hinted if score.hint is None]
        if not scores:
            hint_score = hinted[0] if hinted and len(moving_values) == 1 else None
            if hint_score is None:
                return [None] * len(step.outs)
            return [replace(hint_score, number=_in_order(out)) for out in step.outs]
        names = [str(value.name) for value in step.node.outputs]
        kinds = [self.sized.types.get(name, 1) for name in names]
        if not all(ir.DataType(kind).is_floating_point() for kind in kinds):
            return [None] * len(step.outs)
        base = scores[0]
        if rule.change is None:  # its axes are others
            lowered = None if base.lowered is None else ()
            base = replace(base, axes=(), lowered=lowered)
        same = all(score.product is base.product for score in scores)
        of_input = [value for value in moving_values.values() if value.follows_input]
        if not same or len(scores) < len(of_input):
            mixed = base.but("scores of several products are concatenated")
            return [replace(mixed, number=torch.full(out, -1)) for out in step.outs]
        ordered = rule.ordered or (
            step.node.op_type == "Expand"
            and step.outs[0] == next(iter(moving_values.values())).shape
        )

        def spread(number: Number, value: Value) -> Tensor:
            return as_number(number).expand(value.shape)

        def move_attribute(name: str, default: float, *, needed: bool) -> list[Number]:
            number_of_base = getattr(base, name)
            if not needed and not isinstance(number_of_base, Tensor):
                return [number_of_base] * len(step.outs)
            spreads = {}
            for at, value in moving_values.items():
                number = getattr(value.score, name) if value.score else default
                spreads[at] = spread(number, value)
            return list(move(spreads))

        if ordered and base.number.device.type == "meta":
            moved = [_in_order(out) for out in step.outs]
        else:
            numbers = {}
            for at, value in moving_values.items():
                none = torch.tensor(-1).expand(value.shape)
                numbers[at] = value.score.numbers if value.score else none
            moved = move(numbers)
        alphas = move_attribute("alpha", 0.0, needed=len(scores) > 1)
        betas = move_attribute("beta", 0.0, needed=len(moving_values) > 1)
        results: list[Score | None] = [
            replace(base, number=number, alpha=alpha, beta=beta)
            for number, alpha, beta in zip(moved, alphas, betas, strict=True)
        ]
        return results

    def _product(self, step: Step) -> Results:
        node = step.node
        out = step.outs[0]
        a = step.inputs[0]
        b = step.inputs[1] if len(step.inputs) > 1 else None
        if a is None or b is None:
            return combine_places(step), [None]
        added = None
        if node.op_type == "Gemm" and len(step.inputs) > 2:
            added = step.inputs[2]
        constant = not a.follows_input or not b.follows_input
        weights = []
        for at, value in enumerate((a, b)):
            if value.score is not None and value.score.softmax is not None:
                weights.append(at)
        score = step.inputs[weights[0]].score if weights else None  # type: ignore[union-attr]
        if (
            score is not None
            and score.softmax is not None
            and (reason := find_unserved_reason(score.hint, constant=constant))
        ):
            self._pass(score.softmax, reason)
        product = read_product(node, [a.shape, b.shape])
        if product is None:
            return [make_new_map(out)], [None]
        if constant:
            return [product_place(product, a, b, out)], [None]
        if score is not None:
            place = self._attention(step, (a, b), weights[0], score)
            if place is not None:
                return [place], [None]
        reason = ""
        if added is not None:
            reason = "more than a product is added up"
        new_score = Score(product, _in_order(out), alpha=product.factor, reason=reason)
        return [product_place(product, a, b, out)], [new_score]

    def _attention(
        self,
        step: Step,
        factors: tuple[Value, Value],
        at: int,
        score: Score,
    ) -> Tensor | None:
        """Record the attention that a product completes; return the places of its result."""
        first = score.product
        if first is None or score.softmax is None:
            return None
        left = self.value(first.left)
        right = self.value(first.right)
        scores = self.value(first.node.outputs[0])
        if left is None or right is None or scores is None:
            return None
        core = find_core(step.node, factors, at, (left, right), scores.shape)
        if isinstance(core, str):
            self._pass(score.softmax, core)
            return None
        self._record(core)
        return attention_place(core, step.outs[0])

    def _read_fused(self, step: Step) -> list[Tensor]:
        core = read_fused_attention(step.node, step.inputs)
        rest = [make_new_map(out) for out in step.outs[1:]]
        if isinstance(core, str):
            self._pass(step.node, core)
            return [*combine_places(step)[:1], *rest]
        at = mask_at(step.node)
        if len(step.inputs) > at and step.inputs[at] is not None:
            core = self._with_mask(core, step, at)
        self._record(core)
        place = attention_place(core, step.outs[0])
        return [make_new_map(step.outs[0]) if place is None else place, *rest]

    def _with_mask(
        self,
        core: Attention,
        step: Step,
        at: int,
    ) -> Attention:
        ir_value = step.node.inputs[at]
        value = step.inputs[at]
        core = replace(core, mask=ir_value, by_size=tuple(step.list_varying_inputs()))
        if value is None or value.place is not None:
            return replace(core, by_data=True)
        mask = step.constant(at)
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        tokens = core.q_place.shape[1]
        keys = core.k_place.shape[1]
        bias = as_number(mask).expand(*core.groups, tokens, keys)
        return replace(core, beta=bias)

    def _record(self, core: Attention) -> None:
        """Record an attention and its layout; free its values per pair of tokens."""
        self.layouts[core.out] = read_layout(core)
        self.cores.append(core.without_pairs())
        release_free_memory()

    def _pass(self, node: ir.Node, reason: str) -> None:
        if all(item.softmax is not node for item in self.unmatched):
            self.unmatched.append(Unmatched(node, reason))

    def _reduce(self, step: Step) -> Tensor:
        value = step.inputs[0]
        if value is None or value.place is None:
            return make_new_map(step.outs[0])
        dims = self._reduced_axes(step, len(value.shape))
        dims = [dim % len(value.shape) for dim in dims]
        reduced = find_agreed(value.place, dims)[0] if dims else value.place
        return reduced.reshape(step.outs[0])

    @staticmethod
    def _reduced_axes(step: Step, rank: int) -> list[int]:
        if step.node.op_type.startswith("Arg"):
            return [read_integer(step.node, "axis")]
        axes = None
        if len(step.inputs) > 1 and step.inputs[1] is not None:
            axes = step.constant(1)
        listed = read_numbers(step.node, [None, axes], "axes", 1)
        if listed or read_integer(step.node, "noop_with_empty_axes"):
            return listed or []
        return list(range(rank))

    def _pass_the_rest(self, graph: ir.Graph) -> None:
        """Record every softmax of scores that is in no attention."""
        used = {core.softmax for core in self.cores}
        self.unmatched = [item for item in self.unmatched if item.softmax not in used]
        used |= {item.softmax for item in self.unmatched}
        for node in graph:
            value = self.values.get(node.outputs[0]) if node.outputs else None
            score = None if value is None else value.score
            if node in used:
                continue
            if value is not None and score is None and _weighs(node):
                self.unmatched.append(Unmatched(node, "its scores are not followed from a product"))
            if score is None or score.hint is not None or score.softmax is not node:
                continue
            reason = score.reason or "its weights are not multiplied with values"
            self.unmatched.append(Unmatched(node, reason))


def _in_order(shape: Shape) -> Tensor:
    """Return the numbers of a score in the order of its product: only their shape."""
    return torch.empty(shape, dtype=torch.int64, device="meta")


def _weighs(node: ir.Node) -> bool:
    """Return whether a softmax gives the factor of a product of matrices, perhaps moved."""
    todo = [node] if node.op_type == "Softmax" else []
    while todo:
        uses = todo.pop().outputs[0].uses()
        for user in [use.node for use in uses]:
            rule = rule_of(user)
            if user.op_type in PRODUCTS:
                return True
            if rule is not None and rule.kind is Kind.MOVES:
                todo.append(user)
    return False
