"""Stage 1: the network is loaded and everything that was asked is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ...core.errors import NystraError, UnsupportedModelError
from ...core.ports.port import size_text
from ...models.facts import Facts
from ...models.loading import LoadedModel, load
from ...runtime.checking.measures import measure_for
from ..attention.plan import Plan
from ..build.transforms import Transform, find_transform
from ..options import OPSETS, ExportOptions
from .images import Feeds, Pictures, calibration_feeds, sample_side, validation_feeds
from .with_preprocessing import prepared_feeds, prepared_network, with_preprocessing


@dataclass(frozen=True)
class Prepared:
    """What an export starts from.

    Attributes:
        options: How to export.
        loaded: The network, at the window and with the axes fixed that were asked for.
        traced: The same where the graph is to prepare pictures: without that, which is written in
            front of it.
        trained: The network at its trained window, or None where that is the same.
        transform: What changes the arithmetic of the graph.
        feeds: Inputs at each validation size: references, lowering and judging take the same.
        pictures: What the plan is judged on.
    """

    options: ExportOptions
    loaded: LoadedModel
    traced: LoadedModel
    trained: nn.Module | None
    transform: Transform
    feeds: list[Feeds]
    pictures: Pictures

    @property
    def traced_feeds(self) -> list[Feeds]:
        """What `traced` takes at each validation size."""
        preprocessing = self.traced.facts.preprocessing
        if self.traced is self.loaded or preprocessing is None:
            return self.feeds
        return [prepared_feeds(feeds, preprocessing) for feeds in self.feeds]

    @property
    def traced_pictures(self) -> list[Feeds]:
        """What `traced` takes for each calibration picture: the middle, as large as is enough."""
        facts = self.traced.facts
        return list(calibration_feeds(facts, self.options.calibrate, sample_side(facts)).values())

    @property
    def samples(self) -> dict[str, Feeds]:
        """Inputs that the plan is judged on, by name of the picture."""
        return self.pictures.samples


def prepare(checkpoint: Path, options: ExportOptions, progress: Callable[[str], None]) -> Prepared:
    """Load a checkpoint and the pictures; nothing is computed.

    Raises:
        NystraError: Bad input.
    """
    if options.opset not in OPSETS:
        raise NystraError(f"opset {options.opset} is none of {', '.join(map(str, OPSETS))}")
    transform = find_transform(options.precision, options.target)
    if transform.calibrated and options.calibrate is None:
        raise NystraError(
            f"--precision {transform.name} measures how large the maps become on your pictures: "
            "give --calibrate FOLDER, some ten pictures like those that the file will run on"
        )
    progress("load")
    asked = options.plan if isinstance(options.plan, Plan) else Plan()
    loaded = load_for(checkpoint, asked, options.hyper)
    frames = _static_frames(loaded.facts, options.static)
    if frames is not None and "frames" not in options.hyper:
        loaded = load_for(checkpoint, asked, {**options.hyper, "frames": frames})
    facts = fixed_facts(loaded.facts, options.static)
    traced = loaded = replace(loaded, facts=facts)
    trained = _trained(loaded, options.hyper)
    if options.with_preprocessing:
        loaded = with_preprocessing(traced)
        if trained is not None and facts.preprocessing is not None:
            trained = prepared_network(trained, facts.preprocessing)
        facts = loaded.facts
    transform.allow(facts.architecture)
    headline = measure_for(facts.outputs[0]).headline
    if options.min_psnr is not None and headline != "psnr":
        raise NystraError(
            f"--min-psnr is for pictures and frames: outputs of this network ({facts.task}) are "
            f"compared by {headline}; omit it"
        )
    if isinstance(options.plan, Plan):
        pictures = Pictures(calibration_feeds(facts, options.calibrate))
    else:
        pictures = options.plan.pictures(loaded, options.calibrate)
    return Prepared(
        options,
        loaded,
        traced,
        trained,
        transform,
        validation_feeds(facts),
        pictures,
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
        text = "x".join(map(str, plan.window))
        raise NystraError(
            f"the plan was made for another checkpoint, at window {text}, which "
            f"{checkpoint.name} was not trained at: give --window {plan.window[0]} to run it "
            "there, or take 'window' out of the plan"
        )
    return loaded


def _trained(loaded: LoadedModel, hyper: Mapping[str, Any]) -> nn.Module | None:
    if not loaded.retargeted:
        return None
    others = {key: value for key, value in hyper.items() if key != "window_size"}
    return load(loaded.checkpoint.path, **others).network


def _static_frames(facts: Facts, static: Sequence[int] | None) -> int | None:
    """Return how many frames a fixed shape has, where the network takes films."""
    axes = facts.inputs[0].axes
    if static is None or "frames" not in axes or len(static) != len(axes):
        return None
    return static[axes.index("frames")]


def fixed_facts(facts: Facts, static: Sequence[int] | None) -> Facts:
    """Return the facts of a network that is to take one shape only, or any where that is None.

    Raises:
        NystraError: The network does not take that shape, or takes one size and none was given.
    """
    first = facts.inputs[0]
    if static is not None:
        if len(static) != len(first.axes):
            raise NystraError(
                f"--static has {len(static)} numbers, expected {len(first.axes)}: "
                f"{', '.join(first.axes)}"
            )
        if first.channels not in (None, channels := static[first.axes.index("channels")]):
            raise NystraError(f"--static has {channels} channels, the network {first.channels}")
        return facts.fixed(static)
    if facts.sides is not None and "height" in facts.outputs[0].axes:
        shape = first.shape({})
        raise UnsupportedModelError(
            f"the network takes {size_text(facts.sides)} only (its position embedding is "
            f"absolute): give --static {'x'.join(map(str, shape))}"
        )
    return facts
