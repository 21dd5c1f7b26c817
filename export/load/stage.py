"""Stage 1: the network is loaded and the options are checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from torch import nn

from ...core.errors import NystraError
from ...models.loading import LoadedModel
from ...models.own.network import OwnNetwork
from ...runtime.metrics.measures import measure_for
from ...runtime.model.onnx_header import read_onnx_header
from ..attention.as_trained.parameters import AsTrained
from ..attention.plan import Plan
from ..auto_options import AutoOptions
from ..options import OPSET, ExportOptions
from ..progress import Progress
from ..rewrite.graph_network import GraphNetwork
from ..rewrite.sources import ModuleSource
from ..sited_graph import DeclaredSites, FoundSites, SitedGraph
from ..targets import Target, find_target
from ..transforms import Transform, find_transform
from .file_type import is_onnx
from .images import Feeds, Images, calibration_feeds, sample_side, validation_feeds
from .network import load_fixed, load_trained_window
from .samples import choose_samples
from .targeted import for_target
from .telling import choose_telling_inputs
from .with_preprocessing import prepare_feeds, prepare_network, with_preprocessing


@dataclass(frozen=True)
class Prepared:
    """The inputs of an export.

    Attributes:
        options: How to export.
        loaded: The network, at the window and with the fixed axes of the options.
        traced: The network to trace: without the preprocessing, which is added to the graph.
        trained: The network at its trained window, or None if that is the same.
        transform: The transform of the graph's arithmetic.
        target: The target of the file, or None.
        feeds: Inputs at each validation size, for references, transform and validation.
        images: The images that the plan is validated on.
    """

    options: ExportOptions
    loaded: LoadedModel
    traced: LoadedModel
    trained: nn.Module | None
    transform: Transform
    target: Target | None
    feeds: list[Feeds]
    images: Images

    @property
    def traced_feeds(self) -> list[Feeds]:
        """The inputs of `traced` at each validation size."""
        preprocessing = self.traced.facts.preprocessing
        if self.traced is self.loaded or preprocessing is None:
            return self.feeds
        return [prepare_feeds(feeds, preprocessing) for feeds in self.feeds]

    @property
    def telling_feeds(self) -> list[Feeds]:
        """Inputs of `traced` of every kind and size, of which the last comparison has the like."""
        traced = self.traced
        inputs = choose_telling_inputs(
            traced.network, traced.facts, photographs_only=False, changed=False
        )
        return [telling.feeds for telling in inputs]

    @property
    def traced_images(self) -> list[Feeds]:
        """The inputs of `traced` for each calibration image: a sufficiently large crop."""
        facts = self.traced.facts
        side = sample_side(facts)
        return list(calibration_feeds(facts, self.options.calibrate, side).values())

    @property
    def opset(self) -> int:
        """The opset of the file."""
        return self.options.opset or OPSET

    @property
    def fused(self) -> bool:
        """Whether all exact attention is written as ONNX's operator ``Attention``."""
        return self.target is not None and self.target.fused

    @cached_property
    def graph(self) -> SitedGraph:
        """The network as a graph, which mechanisms are written into."""
        network, facts = self.traced.network, self.traced.facts
        if isinstance(network, GraphNetwork):
            traced = network.source
            if self.fused and not network.replacements and isinstance(traced, ModuleSource):
                return DeclaredSites(traced.module, facts, self.opset, self.fused)
            return FoundSites(network, facts, self.fused, self.target is not None)
        return DeclaredSites(network, facts, self.opset, self.fused)

    @property
    def samples(self) -> dict[str, Feeds]:
        """Inputs that the plan is validated on, by name of the image."""
        return self.images.samples


def prepare(source: Path | OwnNetwork, options: ExportOptions, progress: Progress) -> Prepared:
    """Load a network and the images; nothing is exported.

    Raises:
        NystraError: Bad input.
    """
    transform = find_transform(options.precision, options.target)
    target = find_target(options.target, transform.name)
    file_opset = 0
    if is_onnx(source) and isinstance(source, Path):
        file_opset = read_onnx_header(source).opsets.get("", 0)
    requested = options.opset
    options = for_target(options, target, file_opset)
    if transform.calibrated and options.calibrate is None:
        raise NystraError(
            f"`precision` {transform.name} measures the range of the feature maps on your "
            "images: give `calibrate` FOLDER, about ten images like those that the file "
            "will run on; see docs/precision.md"
        )
    progress("load")
    plan = options.plan if isinstance(options.plan, Plan) else Plan()
    # The default one converts no ONNX file.
    is_asked = requested is not None or options.opset != OPSET
    opset = options.opset if is_asked else None
    traced = load_fixed(source, plan, options.hyper, options.static, progress, opset)
    loaded = traced
    trained = load_trained_window(loaded, options.hyper)
    if options.with_preprocessing:
        loaded = with_preprocessing(traced)
        if trained is not None and traced.facts.preprocessing is not None:
            trained = prepare_network(trained, traced.facts.preprocessing)
    facts = loaded.facts
    if transform.allow is not None:
        transform.allow()(facts.architecture)
    headline = measure_for(facts.outputs[0]).headline
    if options.min_psnr is not None and headline != "psnr":
        raise NystraError(
            f"`min_psnr` is for images and frames: the outputs of this network ({facts.task}) "
            f"are compared by {headline}; omit it"
        )
    if isinstance(options.plan, AutoOptions):
        images = choose_samples(loaded, options.calibrate, options.plan.keep_full)
    else:
        images = Images(calibration_feeds(facts, options.calibrate))
    return Prepared(
        options,
        loaded,
        traced,
        trained,
        transform,
        target,
        validation_feeds(facts),
        images,
    )


def prepare_as_trained(
    source: Path | OwnNetwork,
    prepared: Prepared,
    reason: str,
    progress: Progress,
) -> Prepared:
    """Prepare again without the sites that were found in the graph of a network.

    Args:
        source: As in `prepare`.
        prepared: The result of `prepare`, with those sites.
        reason: Why they cannot be used, one sentence for a warning.
        progress: As in `prepare`.
    """
    options = replace(prepared.options, plan=Plan(AsTrained()))
    again = prepare(source, options, progress)
    warnings = (*prepared.loaded.warnings, reason)
    return replace(again, loaded=replace(again.loaded, warnings=warnings))
