"""``nystra build --dry-run``: asks TensorRT, without a GPU, whether it accepts a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core.errors import BackendUnavailableError
from ...core.ports.examples import batch_sizes, example_arrays
from ...core.ports.port import Size, image_size
from ..compiled.model import EngineModel, make_profile
from ..engines.build import BuildOptions
from ..engines.builder import Refusal, find_builder, find_unsupported, plugin_nodes
from ..engines.worker import CPU_ONLY_REFUSED
from ..model.model_facts import ModelFacts
from ..model.onnx_graph import read_facts

NOT_SHOWN = "numbers, speed, memory and loading of an engine: they need a GPU"
"""What a dry run cannot check."""

_CHECK_SECONDS = 600.0


@dataclass
class ShapeCase:
    """The output shapes of one size in both programs.

    Attributes:
        inputs: Input name -> shape.
        onnxruntime: Shapes of the outputs there.
        engine: Shapes of the outputs in TensorRT.
    """

    inputs: dict[str, list[int]]
    onnxruntime: list[list[int]]
    engine: list[list[int]] = field(default_factory=list)


@dataclass
class DryRunReport:
    """What a dry run found.

    Attributes:
        backend: ``tensorrt`` or ``tensorrt-rtx``.
        version: Its full version.
        refusal: What was refused, or None.
        layers: Layers of the parsed network.
        nodes: Nodes of nystra in the file that have a plugin, themselves or in their body.
        plugins: Plugins of the parsed network.
        checked: What was checked, in words.
        shapes: The output shapes that were compared.
        notes: What could not be checked, and why.
    """

    backend: str
    version: str = ""
    refusal: Refusal | None = None
    layers: int = 0
    nodes: int = 0
    plugins: int = 0
    checked: list[str] = field(default_factory=list)
    shapes: list[ShapeCase] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Whether nothing was refused."""
        return self.refusal is None


def default_sizes(facts: ModelFacts) -> list[Size]:
    """Return five sizes: the window, no multiple of it, oblong ones, and the smallest."""
    height, width = (16, 16, *(facts.window or ()))[-2:]
    minimum = facts.size_minimum
    sizes = [
        (height, width),
        (height + 1, width + 7),
        (2 * height, 3 * width),
        (3 * height - 5, width + 2),
        (minimum, minimum + 3),
    ]
    return [image_size(max(h, minimum), max(w, minimum)) for h, w in sizes]


def dry_run(
    model: EngineModel,
    options: BuildOptions,
    *,
    sizes: Sequence[Size] | None = None,
) -> DryRunReport:
    """Ask a builder whether it accepts a model.

    Args:
        model: The model and its plugin library.
        options: How the engine would be built.
        sizes: Sizes of the inputs whose output shapes are compared; None: five. A model of one
            height and width is compared at three batches.

    Raises:
        NystraError: Bad input.
        BackendUnavailableError: The builder is not installed.
    """
    builder = find_builder(options.backend)
    targets = options.choose_targets(builder, "no GPU is needed")
    builder.require()
    report = DryRunReport(builder.name, nodes=len(plugin_nodes(model.path)))
    report.shapes = _onnxruntime_shapes(model, sizes, report.notes)
    parsed = builder.ask(model, "parse", cases=[shape.inputs for shape in report.shapes])
    report.version = parsed.get("version", "")
    report.refusal = parsed["refusal"]
    if report.refusal is not None:
        return report
    report.layers, report.plugins = parsed["layers"], len(parsed["plugins"])
    report.checked = ["parser", "types", "symbolic shapes"]
    for case, shapes in zip(report.shapes, parsed["shapes"], strict=True):
        case.engine = shapes
    report.refusal = find_unsupported(model, parsed["plugins"]) or _other_shape(report.shapes)
    if report.refusal is not None:
        return report
    if report.shapes:
        report.checked.append("output shapes against onnxruntime")
    profile = make_profile(read_facts(model.path).inputs, options.shapes, options.tile)
    answer = builder.ask(model, "check", seconds=_CHECK_SECONDS, profile=profile, targets=targets)
    if answer["refusal"] is None:
        engine = f"a whole engine for {', '.join(targets)}"
        report.checked.append(engine if targets else "profile and plugin formats")
    elif CPU_ONLY_REFUSED in answer["refusal"].reason:
        report.notes.append(
            f"profile and plugin formats are not checked: TensorRT {report.version} does not "
            "start a build without a GPU"
        )
    else:
        report.refusal = answer["refusal"]
    return report


def _onnxruntime_shapes(
    model: EngineModel, sizes: Sequence[Size] | None, notes: list[str]
) -> list[ShapeCase]:
    from ..session import Session

    try:
        session = Session(model.path, "ort-cpu")
    except BackendUnavailableError as error:
        notes.append(f"output shapes are not compared: {error}")
        return []
    own = session.facts.sides
    if own is None:
        requested = list(sizes or default_sizes(session.facts))
    else:
        requested = batch_sizes(session.facts.inputs, own)
    cases = []
    for size in requested:
        feeds = example_arrays(session.facts.inputs, size)
        outputs = session.run(feeds)
        cases.append(
            ShapeCase(
                {name: list(array.shape) for name, array in feeds.items()},
                [list(outputs[output.name].shape) for output in session.outputs],
            )
        )
    return cases


def _other_shape(cases: Sequence[ShapeCase]) -> Refusal | None:
    """Return a refusal of the first case whose shapes differ."""
    for case in cases:
        if case.onnxruntime != case.engine:
            return Refusal(
                "",
                f"the output shapes for the inputs {case.inputs} are {case.engine}, in onnxruntime "
                f"{case.onnxruntime}",
            )
    return None
