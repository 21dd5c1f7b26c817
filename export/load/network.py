"""The network of an export: at the window of the plan, some axes of its inputs fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from ...core.errors import NystraError
from ...core.ports.port import join_sides
from ...models.facts import Facts
from ...models.loading import LoadedModel, load
from ...models.own.network import OwnNetwork
from ..attention.as_trained.parameters import AsTrained
from ..attention.plan import Plan
from ..attention.site import find_sites
from ..progress import Progress
from .file_type import is_onnx
from .fixed import fix_facts

_MAP_AXES = 4
"""Fewest axes of an input that has a height and a width, its last."""


def load_for(
    source: Path | OwnNetwork,
    plan: Plan,
    hyper: Mapping[str, Any],
    static: Sequence[int] | None = None,
    opset: int | None = None,
) -> LoadedModel:
    """Load a network at the window that a plan is for.

    Args:
        source: A checkpoint, or a network of the user.
        plan: The plan.
        hyper: Hyper-parameters that the checkpoint does not state.
        static: Shape of the first input: an ONNX file gets it, an own network is probed at it too.
        opset: Of an ONNX file, the opset that it is converted to.

    Raises:
        NystraError: The checkpoint is bad, or the plan is for another window than that of the
            network, or, if it was made for another checkpoint, than the trained window of this one.
    """
    if is_onnx(source):
        from .onnx_file import load_onnx

        loaded = load_onnx(source, hyper, static, opset)
    else:
        sides = None
        if static is not None and len(static) >= _MAP_AXES:
            sides = (static[-2], static[-1])
        loaded = load(source, plan_window=plan.window, probe_size=sides, **hyper)
    if is_onnx(source) or loaded.facts.window is not None:  # otherwise a window may still be found
        _check_window(plan, loaded)
    foreign = plan.source_sha256 not in ("", loaded.checkpoint.sha256)
    if plan.window is not None and foreign and loaded.retargeted and "window_size" not in hyper:
        raise NystraError(
            f"the plan was made for another checkpoint, at window {_text(plan.window)}, not the "
            f"trained window of {loaded.checkpoint.path.name}: give `window_size` "
            f"{plan.window[0]} to use it, or remove 'window' from the plan"
        )
    return loaded


def load_fixed(
    source: Path | OwnNetwork,
    plan: Plan,
    hyper: Mapping[str, Any],
    static: Sequence[int] | None,
    progress: Progress = lambda _: None,
    opset: int | None = None,
) -> LoadedModel:
    """Load a network as `load_for` does, for one shape of the first input if that is given.

    If the plan is not the trained attention, that of a network without sites is searched in its
    graph.

    Raises:
        NystraError: As `load_for` and `fix_facts`.
    """
    if is_onnx(source):
        return load_for(source, plan, hyper, static, opset)
    loaded = load_for(source, plan, hyper, static)
    frames = _static_frames(loaded.facts, static)
    if frames is not None and "frames" not in hyper:
        loaded = load_for(source, plan, {**hyper, "frames": frames}, static)
    fixed = replace(loaded, facts=fix_facts(loaded.facts, static))
    if not find_sites(fixed.network):
        from .module_sites import not_searched, with_found_sites

        as_trained = isinstance(plan.default, AsTrained) and not plan.sites
        if as_trained:
            fixed = not_searched(fixed)
        else:
            fixed = with_found_sites(fixed, progress, loaded.facts, opset)
    _check_window(plan, fixed)
    return fixed


def _check_window(plan: Plan, loaded: LoadedModel) -> None:
    if plan.window not in (None, loaded.facts.window):
        raise NystraError(
            f"the plan is for the window {_text(plan.window)}, the network has "
            f"{_text(loaded.facts.window)}"
        )


def load_trained_window(loaded: LoadedModel, hyper: Mapping[str, Any]) -> nn.Module | None:
    """Return the network at its trained window, or None if it is loaded at that one."""
    if not loaded.retargeted:
        return None
    others = {key: value for key, value in hyper.items() if key != "window_size"}
    return load(loaded.checkpoint.path, **others).network


def _text(window: Sequence[int] | None) -> str:
    return "no common one" if window is None else join_sides(window)


def _static_frames(facts: Facts, static: Sequence[int] | None) -> int | None:
    axes = facts.inputs[0].axes
    if static is None or "frames" not in axes or len(static) != len(axes):
        return None
    return static[axes.index("frames")]
