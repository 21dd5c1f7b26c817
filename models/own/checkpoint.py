"""From a user's module to a network with nystra's interface and measured facts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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
from .ports import Size, measure_ports
from .tracing import call_with_open_sizes

_TASKS = {"picture": "restoration", "frames": "video", "logits": "classification"}
"""Role of the first output -> task."""


def fill(module: nn.Module, state: State, what: str) -> None:
    """Load the tensors of a checkpoint into a module, in place.

    Raises:
        CheckpointError: They are not exactly those of the module; the first of each kind of fault
            are listed.
    """
    outline = module.state_dict()
    check_fit(outline, state, what)
    module.load_state_dict({key: state[key].to(outline[key].dtype) for key in outline})


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
    declared = bool(network.inputs)
    notes_on_inputs = [] if declared else [*describe_found(inputs), *describe_range(module)]
    notes = (*notes_on_inputs, *trial.warnings, *_autocast(skipped))
    return BuiltNetwork(trial.network, facts, hyper, notes)


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
