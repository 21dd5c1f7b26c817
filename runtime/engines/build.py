"""``nystra build``: from a model file to an engine in the cache, and from there elsewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.option import Options, option
from ...core.option_kinds import Number, Words
from ...core.ports.input_shapes import InputShapes
from ..compiled import cache
from ..compiled.cache import Engine, EngineRecord
from ..compiled.model import ENGINE_TILE, REBUILD, EngineModel, EngineShapes, make_profile
from ..machine import gpu
from ..model.onnx_graph import read_facts
from .builder import Builder, find_builder, find_unsupported

_LONGEST_BUILD = 24 * 3600.0


@dataclass(frozen=True)
class BuildOptions(Options):
    """How an engine is built by the builder of this name, ``tensorrt`` or ``tensorrt-rtx``."""

    backend: str
    shapes: EngineShapes = field(default_factory=EngineShapes)
    tile: int | None = option(ENGINE_TILE)
    targets: tuple[str, ...] = option(
        Words(
            (),
            "GPUs for tensorrt-rtx, such as sm86,sm89,sm120",
            default_text="the one of this machine, else sm80 and newer",
            flag="--target",
        )
    )
    rebuild: bool = option(REBUILD)
    level: int | None = option(
        Number(
            None,
            "effort of the search for fast kernels: 0 builds fastest, 5 gives the fastest engine",
            0,
            5,
            default_text="chosen by the builder",
            metavar="N",
        )
    )

    def choose_targets(self, builder: Builder, device: gpu.Device | str) -> list[str]:
        """Return the GPUs to build for ahead of time; none: the one of this machine.

        Raises:
            NystraError: This builder has no targets, or one is no name of a GPU.
        """
        if self.targets and not builder.targets:
            raise NystraError(
                f"`targets` does not apply to {self.backend}: it builds for the GPU of its machine"
            )
        if wrong := [target for target in self.targets if not re.fullmatch(r"sm\d{2,3}", target)]:
            raise NystraError(f"`targets` has {', '.join(wrong)}, expected names such as sm86")
        default = builder.targets if isinstance(device, str) else ()
        return sorted(set(self.targets or default), key=lambda target: (len(target), target))


def build_engine(
    model: EngineModel,
    options: BuildOptions,
    progress: Callable[[str], None] = lambda _: None,
) -> Engine:
    """Build an engine, or find it in the cache; ``progress`` is called with each step.

    Raises:
        NystraError: Bad input.
        BackendUnavailableError: The builder is not installed, or cannot build on this machine.
        ExportError: The builder refused the model, died, or took too long.
    """
    builder, device = find_builder(options.backend), gpu.find_device()
    targets = options.choose_targets(builder, device)
    builder.require()
    if isinstance(device, str) and not targets:
        raise BackendUnavailableError(
            f"TensorRT builds engines only on a machine with an NVIDIA GPU ({device}). Without "
            "one: nystra build --dry-run, or `backend` tensorrt-rtx, which builds ahead of time; "
            "see docs/gpu.md"
        )
    progress("parse")
    parsed = builder.ask(model, "parse", cases=[])
    refusal = parsed["refusal"] or find_unsupported(model, parsed["plugins"])
    if refusal is not None:
        raise ExportError(str(refusal))
    record = EngineRecord(
        backend=builder.name,
        version=parsed["version"],
        model=model.path.name,
        hashes=model.hashes(),
        profile=make_profile(read_facts(model.path).inputs, options.shapes, options.tile),
        targets=targets,
        device={} if isinstance(device, str) or targets else asdict(device),
        flags=[] if options.level is None else [f"LEVEL_{options.level}"],
        plugins=sorted(parsed["plugins"]),
    )
    cached = None if options.rebuild else cache.find(record.key)
    if cached is not None:
        return cached
    progress("build")
    with scratch_folder() as folder:
        engine = folder / "engine"
        answer = builder.ask(
            model,
            "build",
            seconds=_LONGEST_BUILD,
            profile=record.profile,
            targets=targets,
            level=options.level,
            output=str(engine),
        )
        if (refusal := answer["refusal"]) is not None:
            raise ExportError(f"{builder.name} {record.version} built no engine: {refusal}")
        if model.hashes() != record.hashes:
            raise ExportError(
                f"{model.path} or one of its files changed during the build: build again"
            )
        return cache.store(record, engine, fresh=True)


def take_engine(model: EngineModel, engine: Path, *, trust: bool) -> Engine:
    """Add an engine that was built elsewhere, with its record next to it, to the cache.

    Raises:
        NystraError: The user does not trust its author, or it is of another model or library.
    """
    if not trust:
        raise NystraError(
            f"the engine {engine} was built elsewhere, and an engine is executable code: build "
            "it here, or add `trust` if you trust its author; see docs/gpu.md"
        )
    record = Engine.beside(engine).record
    hashes = model.hashes()
    if record.hashes != hashes:
        raise NystraError(
            f"the engine {engine} was built from {record.hashes}; here they are {hashes}: use "
            "the model and the plugin library that it was built with; see docs/gpu.md"
        )
    return cache.store(record, engine)


def equal_commands(model: EngineModel, built: Engine) -> dict[str, str]:
    """Return the commands that build the same engine of TensorRT, by the name of the program.

    ``polygraphy`` also runs the engine and compares it with onnxruntime. There are none for
    TensorRT-RTX: Polygraphy leaves TF32 on there.
    """
    record = built.record
    if find_builder(record.backend).rtx:
        return {}
    major = int(record.version.partition(".")[0])
    trtexec = ["trtexec", f"--onnx={model.path}", f"--saveEngine={built.path}", "--noTF32"]
    trtexec += ["--stronglyTyped"] if major < 11 else []
    polygraphy = ["polygraphy", "run", str(model.path), "--trt", "--strongly-typed", "--onnxrt"]
    polygraphy += ["--save-engine", str(built.path)]
    if model.library is not None:
        trtexec.append(f"--dynamicPlugins={model.library}")
        shim = model.library.with_name(f"libnystra_trt_register{major}.so")
        polygraphy += ["--plugins", str(shim)]
    for index, end in enumerate(("min", "opt", "max") if record.profile else ()):
        shapes = {name: row[index] for name, row in record.profile.items()}
        trtexec.append(f"--{end}Shapes={InputShapes(None, '').show(shapes)}")
        polygraphy.append(f"--trt-{end}-shapes")
        polygraphy += [f"{name}:{list(shape)}".replace(" ", "") for name, shape in shapes.items()]
    return {"trtexec": shlex.join(trtexec), "polygraphy": shlex.join(polygraphy)}
