"""Stage 1: the network is loaded and everything that was asked is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ...models.loading import LoadedModel, load
from ...plugins.errors import NystraError, UnsupportedModelError
from ..attention.plan import Plan
from ..options import OPSETS, ExportOptions
from ..pictures import Feeds, calibration_feeds, judged_feeds
from ..transforms import Transform, find_transform


@dataclass(frozen=True)
class Prepared:
    """What an export starts from.

    Attributes:
        options: How to export.
        loaded: The network, at the window that was asked for.
        trained: The network at its trained window, or None where that is the same.
        transform: What changes the arithmetic of the graph.
        feeds: Inputs at each validation size: references, lowering and judging take the same.
        samples: Inputs that the plan is judged on, by name of the picture.
    """

    options: ExportOptions
    loaded: LoadedModel
    trained: nn.Module | None
    transform: Transform
    feeds: list[Feeds]
    samples: dict[str, Feeds]


def prepare(checkpoint: Path, options: ExportOptions, progress: Callable[[str], None]) -> Prepared:
    """Load a checkpoint and the pictures; nothing is computed.

    Raises:
        NystraError: Bad input.
    """
    if options.opset not in OPSETS:
        raise NystraError(f"opset {options.opset} is none of {', '.join(map(str, OPSETS))}")
    transform = find_transform(options.precision, options.target)
    progress("load")
    asked = options.plan if isinstance(options.plan, Plan) else Plan()
    loaded = load_for(checkpoint, asked, options.hyper)
    facts = loaded.facts
    _check_static(loaded, options.static)
    transform.allow(facts.architecture)
    return Prepared(
        options,
        loaded,
        _trained(loaded, options.hyper),
        transform,
        judged_feeds(facts, options.static),
        calibration_feeds(facts, options.calibrate, options.static),
    )


def load_for(checkpoint: Path, plan: Plan, hyper: Mapping[str, Any]) -> LoadedModel:
    """Load a checkpoint at the window that a plan is for.

    Raises:
        NystraError: The checkpoint is bad, or the plan is for another window than asked, or than
            this checkpoint was trained at where it was made for another one.
    """
    asked = dict(hyper)
    if plan.window is not None:
        window = asked.setdefault("window_size", list(plan.window))
        sides = [window, window] if isinstance(window, int) else list(window)
        if sides != list(plan.window):
            raise NystraError(
                f"the plan is for window {plan.window}, but window {window} was given"
            )
    loaded = load(checkpoint, **asked)
    foreign = plan.source_sha256 not in ("", loaded.checkpoint.sha256)
    if plan.window is not None and foreign and loaded.retargeted and "window_size" not in hyper:
        rows, columns = plan.window
        raise NystraError(
            f"the plan was made for another checkpoint, at window {rows}x{columns}, which "
            f"{checkpoint.name} was not trained at: give --window {rows} to run it there, or "
            "take 'window' out of the plan"
        )
    return loaded


def _trained(loaded: LoadedModel, hyper: Mapping[str, Any]) -> nn.Module | None:
    if not loaded.retargeted:
        return None
    others = {key: value for key, value in hyper.items() if key != "window_size"}
    return load(loaded.checkpoint.path, **others).network


def _check_static(loaded: LoadedModel, static: tuple[int, ...] | None) -> None:
    facts = loaded.facts
    if static is None and facts.fixed_size is not None:
        height, width = facts.fixed_size
        raise UnsupportedModelError(
            f"the network has an absolute position embedding and takes {height}x{width} only: "
            f"give --static 1x{facts.input_channels}x{height}x{width}"
        )
    if static is not None and static[1] != facts.input_channels:
        raise NystraError(f"--static has {static[1]} channels, the network {facts.input_channels}")
