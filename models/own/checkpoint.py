"""From a user's module to a network with nystra's interface and measured facts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn

from ...core.errors import NystraError
from ..architecture import Architecture, BuiltNetwork, PrecisionPolicy, Request, State
from ..checkpoints.construction import check_fit
from ..facts import Facts
from ..registry import OWN
from ..sites import WindowSite
from ..sizes.borders import Sides
from ..sizes.given import GivenNetwork, copy_sharing_weights
from ..sizes.own_padding import own_sides
from ..sizes.padded_network import PaddedNetwork, call_plainly
from ..sizes.python_state import PythonState
from ..sizes.trial import Stated, Trial, is_single, refuse_random, refuse_state, try_sizes
from .conditions import describe_found
from .image_range import describe_range
from .network import OwnNetwork
from .ports import Size, measure_ports, run_once
from .tracing import call_with_open_sizes

_TASKS = {"picture": "restoration", "frames": "video", "logits": "classification"}
"""Role of the first output -> task."""


def fill(
    module: nn.Module, state: State, what: str, build_again: Callable[[], nn.Module | None]
) -> list[str]:
    """Load the tensors of a checkpoint into a module, in place.

    Buffers that its code computes, as indices of positions and masks of windows, may be missing.

    Args:
        module: A new module.
        state: The tensors of the checkpoint, by key.
        what: How the message begins.
        build_again: Returns another new module of the same code, or None if there is one alone.

    Returns:
        A sentence for the user if buffers were missing.

    Raises:
        CheckpointError: They are not those of the module; the first of each kind of fault are
            listed.
    """
    outline = module.state_dict()
    computed = _find_computed(module, outline.keys() - state.keys(), build_again)
    expected = {key: tensor for key, tensor in outline.items() if key not in computed}
    check_fit(expected, state, what)
    weights = {key: state[key].to(tensor.dtype) for key, tensor in expected.items()}
    module.load_state_dict(weights, strict=not computed)
    if not computed:
        return []
    names = ", ".join(computed[:3]) + (", ..." if len(computed) > 3 else "")
    return [f"buffers that the checkpoint lacks are those that the code computes: {names}"]


def _find_computed(
    module: nn.Module, missing: Collection[str], build_again: Callable[[], nn.Module | None]
) -> list[str]:
    """Return the missing buffers that the code computes: alike in two modules, and no plain fill.

    What is filled with one number, as the statistics of a norm, waits for what training found.
    """
    buffers = {
        key: tensor
        for key, tensor in module.named_buffers(remove_duplicate=False)
        if key in missing
    }
    again = build_again() if buffers else None
    if again is None:
        return []
    others = dict(again.named_buffers(remove_duplicate=False))
    return [
        key
        for key, tensor in buffers.items()
        if bool((tensor != tensor.flatten()[:1]).any()) and torch.equal(tensor, others[key])
    ]


def measure_network(
    network: OwnNetwork, module: nn.Module, hyper: dict[str, Any], stated: Size | None = None
) -> BuiltNetwork:
    """Return the module as a network with facts, padded if necessary.

    Args:
        network: The network as declared.
        module: A plain copy of its module.
        hyper: The arguments that it was built with.
        stated: Height and width that it is exported for, if these are known.

    Raises:
        UnsupportedModelError: It fails at every size, or its outputs are not as declared.
    """
    pristine = copy_sharing_weights(module)  # runs may leave something in a module, and in its code
    state = PythonState(module, attributes=False)
    inputs, outputs, works, skipped = measure_ports(module, network.inputs, network.outputs, stated)
    if outputs[0].role not in _TASKS:
        raise NystraError(
            f"the first output of {network.title} has the role {outputs[0].role!r}, expected one "
            f"of {', '.join(_TASKS)}"
        )
    given = GivenNetwork(pristine, call_plainly, inputs, outputs, state)
    trial = _trial(network, module, given, works)
    trial.network.network = pristine
    task = _TASKS[outputs[0].role]
    if any(port.role == "mask" for port in inputs):
        task = "inpainting"
    facts = Facts(
        architecture=f"{OWN.name}:{network.title}",
        task=task,
        inputs=trial.measure_inputs(inputs),
        outputs=outputs,
        size_minimum=trial.minimum,
        tiling="internal" if task == "classification" else "supported",
        license=network.license,
        window=_window(module),
        preprocessing=network.preprocessing,
    )
    notes = [*trial.warnings, *_autocast(skipped)]
    if not network.inputs:

        def run() -> object:
            return run_once(module, inputs, works)

        notes = [*describe_found(inputs), *describe_range(module, run), *notes]
    return BuiltNetwork(trial.network, facts, hyper, tuple(notes))


def _autocast(types: Collection[str]) -> list[str]:
    if not types:
        return []
    names = " and ".join(sorted(types))
    text = f"its autocast to {names} is left out: float32 is used, unless `precision` is given"
    return [text]


def _trial(
    network: OwnNetwork,
    module: nn.Module,
    given: GivenNetwork,
    works: Size | None,
) -> Trial:
    inputs, outputs = given.inputs, given.outputs
    stated = Stated(inputs, works=works, source=network.title)
    if works is None:  # of one size
        fixed = PaddedNetwork(module, Sides(), outputs, call_with_open_sizes, given)
        size = tuple((inputs[0].sides or {}).values())
        refuse_state(fixed, stated, [size])
        refuse_random(fixed, stated, size)
        single, reason = is_single(fixed, stated, size)
        return Trial(fixed, single=single, warnings=reason)
    multiple = inputs[0].multiple
    sides = Sides(multiple) if multiple > 1 else own_sides(module, call_with_open_sizes, inputs)
    return try_sizes(PaddedNetwork(module, sides, outputs, call_with_open_sizes, given), stated)


def _window(module: nn.Module) -> tuple[int, ...] | None:
    windows = {
        tuple(site.geometry.window) for site in module.modules() if isinstance(site, WindowSite)
    }
    return windows.pop() if len(windows) == 1 else None


def _load(_: State, request: Request) -> BuiltNetwork:
    raise NystraError(
        f"{request.source}: your own network needs its code: give `module` FILE.py:CALLABLE; "
        "see docs/own.md"
    )


ARCHITECTURE = Architecture(_load, PrecisionPolicy())
