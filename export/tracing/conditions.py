"""Conditions on sizes in the code of a network, of which a trace follows one branch.

``torch.export`` notes a condition such as ``height == width`` as an assertion of its program and
follows the branch of the example. Where another size decides otherwise, the program and the network
are compared at that size, and it is seen what the network decides there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ...core.errors import UnsupportedModelError, is_out_of_memory
from ...models.sizes.given import copy_sharing_weights
from ...models.sizes.open_caches import open_caches
from ...models.torch_internals import FakeTensorMode, enable_python_dispatcher
from ..differences import relative_difference
from .deciding_sizes import FreeAxes, Lengths, sizes_deciding_otherwise, value_of
from .lowering import CHECKS, name_of
from .repeats import Observed, Repeats
from .shortcuts import trace_settings
from .size_conditions import Condition, record_conditions
from .torch_sizes import DimDynamic, ShapeEnv, StatelessSymbolicContext

_ALLOWED = 1e-4
"""Largest difference of a program and its network, relative to the largest value."""

_CASES = 3
"""Sizes at which a condition is compared: one if PyTorch decides or it was met on another path."""

_MOST_PATHS = 12
"""Runs of a network that show what it decides for another size."""


@dataclass(frozen=True)
class _Path:
    """What a network decides for some lengths.

    Attributes:
        lengths: Of each free axis.
        conditions: In order.
        changed: Those that lead to other lengths than the example's; only later ones are looked at.
    """

    lengths: Lengths
    conditions: Sequence[Condition]
    changed: tuple[Condition, ...] = ()

    def later(self) -> list[tuple[Condition, list[Condition]]]:
        """Return the conditions after the last changed one, with those before each."""
        seen: list[Condition] = []
        conditions = []
        last = self.changed[-1].expression if self.changed else None
        for condition in self.conditions:
            if any(condition.expression == earlier.expression for earlier in seen):
                continue
            if last is None:
                conditions.append((condition, list(seen)))
            elif condition.expression == last:
                last = None
            seen.append(condition)
        return conditions


def refuse_branches(
    program: ExportedProgram,
    conditions: Sequence[Condition],
    network: nn.Module,
    expected: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    axes: FreeAxes,
    observed: Observed | None = None,
) -> None:
    """Raise where a program is another one than its network for sizes that decide otherwise.

    Args:
        program: The program of the branches that the example took.
        conditions: What decided on them.
        network: The network that was traced.
        expected: Returns the outputs of the network for its inputs.
        axes: The free axes of the program.
        observed: As of `export_program`.

    Raises:
        UnsupportedModelError: A size gives other results; the message names the condition.
    """
    comparison = _Comparison(_without_checks(program), expected, axes)
    paths = [_Path(axes.example, conditions)]
    decided: dict[tuple[tuple[str, int], ...], Sequence[Condition]] = {}
    seen = set[tuple[Any, bool]]()
    paths_followed = 0
    while paths:
        path = paths.pop(0)
        for condition, before in path.later():
            is_new = (condition.expression, condition.result) not in seen
            seen.add((condition.expression, condition.result))
            if not is_new and not condition.is_own:
                continue
            limit = _CASES if condition.is_own and is_new else 1
            cases = sizes_deciding_otherwise(condition, before, axes, path.lengths, limit)
            for size in cases:
                if comparison.differs(size):
                    cause = _find_cause(path.conditions, size) or condition
                    raise UnsupportedModelError(_text((*path.changed, cause), size))
            if not cases or not condition.is_own or not is_new or paths_followed == _MOST_PATHS:
                continue
            paths_followed += 1
            key = _key(cases[0])
            if key not in decided:
                decided[key] = conditions_at(network, axes, cases[0], observed)
            changed = (*path.changed, condition)
            paths.append(_Path(cases[0], decided[key], changed))


@dataclass
class _Comparison:
    """Compares a program with its network, at each size once.

    Attributes:
        run: The program, as a function of its inputs.
        expected: As of `refuse_branches`.
        axes: The free axes.
    """

    run: Callable[..., Any]
    expected: Callable[[Sequence[Tensor]], Sequence[Tensor]]
    axes: FreeAxes
    _compared: set[tuple[tuple[str, int], ...]] = field(default_factory=set)

    def differs(self, size: Lengths) -> bool:
        """Return whether the program is off at a size that the network takes, the first time."""
        if _key(size) in self._compared:
            return False
        self._compared.add(_key(size))
        shapes = self.axes.shapes_of(size)
        images = noise(shapes, self.axes.types)
        try:
            right = self.expected(images)
        except Exception as error:  # any other means that it does not take this size
            if is_out_of_memory(error):
                raise
            return False
        is_of_numbers = all(bool(output.isfinite().all()) for output in right)
        return is_of_numbers and not _agrees(self.run, images, right)


def _find_cause(conditions: Sequence[Condition], size: Lengths) -> Condition | None:
    """Return the condition with another result for a size that best explains a difference there.

    That is the first of the network's own ones, else the first of PyTorch's that does not ask
    whether a length is 1: PyTorch asks this for strides, which change no values.
    """
    otherwise = []
    for condition in conditions:
        if value_of(condition, size) is (not condition.result):
            otherwise.append(condition)
    for condition in otherwise:
        if condition.is_own:
            return condition
    for condition in otherwise:
        if not condition.asks_for_one:
            return condition
    return None


def _key(lengths: Lengths) -> tuple[tuple[str, int], ...]:
    """Return lengths as a key of what is known for them."""
    return tuple(sorted(lengths.items()))


def conditions_at(
    network: nn.Module,
    axes: FreeAxes,
    lengths: Lengths,
    observed: Observed | None = None,
) -> list[Condition]:
    """Return what a network decides for some lengths, in the symbols of its axes.

    Args:
        network: It is not modified.
        axes: Its free axes.
        lengths: Of each of them.
        observed: As of `export_program`: modules of the same structure decide the same.
    """
    # Another type than the number of an axis: one that is 1 has no symbol otherwise.
    with trace_settings():
        mode = FakeTensorMode(
            shape_env=ShapeEnv(specialize_zero_one=False, duck_shape=False),
            allow_non_fake_inputs=True,
        )
    symbols: dict[Any, Any] = {}
    named = {str(symbol): symbol for symbol in axes.symbols.values()}
    inputs = []
    tensors = noise(axes.shapes_of(lengths), axes.types)
    for tensor, shape in zip(tensors, axes.shapes, strict=True):
        free = [DimDynamic.DYNAMIC if isinstance(n, str) else DimDynamic.STATIC for n in shape]
        context: Any = StatelessSymbolicContext(dynamic_sizes=free)
        fake = mode.from_tensor(tensor, symbolic_context=context)
        for name, length in zip(shape, fake.shape, strict=True):
            if isinstance(name, str) and isinstance(length, torch.SymInt):
                symbols[length.node.expr] = named[name]
        inputs.append(fake)
    copied = copy_sharing_weights(network)
    if observed is not None:
        Repeats(copied, observed)
    with open_caches(copied), record_conditions() as conditions:
        try:
            # Operators such as interpolate() and unfold() have numbers of sizes in C++ alone.
            with mode, enable_python_dispatcher(), trace_settings(), torch.no_grad():
                copied(*inputs)
        except Exception as error:  # what was decided before it failed is known
            if is_out_of_memory(error):
                raise
    return [condition.rename(symbols) for condition in conditions]


def noise(shapes: Sequence[Sequence[int]], types: Sequence[torch.dtype]) -> list[Tensor]:
    """Return noise in 0..1 of some shapes; zeros where numbers have no fractions."""
    random = torch.Generator().manual_seed(0)
    return [
        torch.rand(*shape, generator=random).to(kind)
        if kind.is_floating_point
        else torch.zeros(*shape, dtype=kind)
        for shape, kind in zip(shapes, types, strict=True)
    ]


def _agrees(run: Callable[..., Any], images: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    try:
        with torch.no_grad():
            returned = run(*images)
    except Exception:  # noqa: BLE001 - the branch of the example does not take this size
        return False
    outputs = (returned,) if isinstance(returned, Tensor) else tuple(returned)
    return relative_difference(outputs, right) <= _ALLOWED


def _text(conditions: Sequence[Condition], size: Lengths) -> str:
    lengths = ", ".join(f"{name} {length}" for name, length in size.items())
    decided = _describe_decided(conditions)
    return (
        f"{decided}, and computes something else for {lengths}: a file holds one of its branches, "
        "so give `static` with a fixed size, or write it without this condition"
    )


def _describe_decided(conditions: Sequence[Condition]) -> str:
    """Return the start of a sentence on conditions that are decided one after the other."""
    last = conditions[-1]
    if last.number is not None:
        return f"the code of the network takes a size as the number {last.number:g} ({last.where})"
    texts = " and ".join(f"{condition.expression!s:.200}" for condition in conditions)
    by = "the code of the network" if last.is_own else "PyTorch, called by the network,"
    return f"{by} decides by {texts} ({last.where})"


def _without_checks(program: ExportedProgram) -> Callable[..., Any]:
    """Return what computes a program at any size, without its assertions."""
    module: Any = program.module(check_guards=False)
    for node in list(module.graph.nodes):
        if name_of(node).startswith(CHECKS):
            module.graph.erase_node(node)
    module.recompile()
    module._forward_pre_hooks.clear()
    return module  # type: ignore[no-any-return]
