"""``nystra build``: from a model file to an engine in the cache, and from there elsewhere."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ...core.errors import BackendUnavailableError, ExportError, NystraError
from ...core.files.scratch import scratch_folder
from ...core.files.writing import check_writable_folder, file_set
from ...core.option import Options, option
from ...core.option_kinds import Number, Words
from ..machine import gpu
from ..workers.child import Progress
from . import cache, toolkit
from .cache import EngineRecord
from .child import ask, unsupported_reason
from .model import ENGINE_TILE, REBUILD, EngineModel, EngineShapes, profile_text


@dataclass(frozen=True)
class BuildOptions(Options):
    """How an engine is built.

    Attributes:
        backend: ``tensorrt`` or ``tensorrt-rtx``.
        shapes: The requested profile.
    """

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
    seconds: float | None = option(
        Number(None, "time limit of the build, in seconds", 0, real=True, above=True, metavar="S")
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
    builder_threads: int | None = option(
        Number(
            None,
            "threads of the builder",
            1,
            default_text="chosen by the builder",
            metavar="N",
            most=512,
        )
    )


@dataclass(frozen=True)
class BuiltEngine:
    """A finished engine.

    Attributes:
        path: Where it is in the cache.
        record: Its record.
        fresh: It was built now, not found in the cache.
    """

    path: Path
    record: EngineRecord
    fresh: bool


def build_engine(
    model: EngineModel,
    options: BuildOptions,
    progress: Progress = lambda _what, _done, _total: None,
    announce: Callable[[str], None] = lambda _: None,
) -> BuiltEngine:
    """Build an engine, or find it in the cache.

    Args:
        model: The model and its plugin library.
        options: How.
        progress: Is called at every step of the builder.
        announce: Called with progress messages.

    Raises:
        NystraError: Bad input.
        BackendUnavailableError: The builder is not installed, or cannot build on this machine.
        ExportError: The builder refused the model, died, or took too long.
    """
    device = gpu.find_device()
    targets = targets_of(options, device)
    toolkit.require(options.backend)
    if isinstance(device, str) and not targets:
        raise BackendUnavailableError(
            f"TensorRT builds engines only on a machine with an NVIDIA GPU ({device}). Without "
            "one: nystra build --dry-run, or `backend` tensorrt-rtx, which builds ahead of time; "
            "see docs/gpu.md"
        )
    announce("parse")
    parsed = ask({**model.request(options.backend), "do": "parse", "cases": []})
    if (refusal := parsed.refusal) is not None:
        raise ExportError(str(refusal))
    record = EngineRecord(
        backend=options.backend,
        version=parsed.values["version"],
        model=model.path.name,
        hashes=model.hashes(),
        library="" if model.library is None else model.library.name,
        profile=model.profile(parsed.values["inputs"], options.shapes, options.tile),
        targets=targets,
        device={} if isinstance(device, str) or targets else asdict(device),
        flags=toolkit.flags_at(options.level),
        plugins=sorted(parsed.values["plugins"]),
    )
    if (refusal := unsupported_reason(model, record.plugins)) is not None:
        raise ExportError(str(refusal))
    cached = None if options.rebuild else cache.find(record.key)
    if cached is not None:
        return BuiltEngine(*cached, fresh=False)
    announce("build")
    with scratch_folder() as folder:
        engine = folder / "engine"
        answer = ask(
            {
                **model.request(options.backend),
                "do": "build",
                "profile": record.profile,
                "targets": record.targets,
                "seconds": options.seconds,
                "level": options.level,
                "threads": options.builder_threads,
                "timing_cache": _timing_cache(record),
                "output": str(engine),
            },
            seconds=24 * 3600.0 if options.seconds is None else 2 * options.seconds + 120,
            progress=progress,
        )
        if (refusal := answer.refusal) is not None:
            raise ExportError(f"{options.backend} {record.version} built no engine: {refusal}")
        if model.hashes() != record.hashes:
            raise ExportError(
                f"{model.path} or one of its files changed during the build: build again"
            )
        return BuiltEngine(cache.store(record, engine), record, fresh=True)


def copy_engine(built: BuiltEngine, output: Path) -> EngineRecord:
    """Copy an engine and its record out of the cache; return the record.

    Raises:
        NystraError: The files cannot be written.
    """
    record = replace(built.record, engine=output.name)
    check_writable_folder(output.parent)
    with file_set(output) as files:
        shutil.copyfile(built.path, files.temporary(output))
        files.write(EngineRecord.path_for(output), record.as_json())
    return record


def take_engine(model: EngineModel, engine: Path, *, trust: bool) -> BuiltEngine:
    """Add an engine that was built elsewhere to this machine's cache.

    Args:
        model: The model it must have been built from.
        engine: The file, its record next to it.
        trust: The user trusts who made it.

    Raises:
        NystraError: It is not trusted, was changed, or is of another model or plugin library.
    """
    record = EngineRecord.read(EngineRecord.path_for(engine))
    if not trust:
        raise NystraError(
            f"the engine {engine} was built elsewhere, and an engine is executable code: build "
            "it here, or add `trust` if you trust its author; see docs/gpu.md"
        )
    cache.read(engine, record)
    hashes = model.hashes()
    if record.hashes != hashes:
        raise NystraError(
            f"the engine {engine} was built from {record.hashes}; here they are {hashes}: use "
            "the model and the plugin library that it was built with; see docs/gpu.md"
        )
    return BuiltEngine(cache.store(record, engine), record, fresh=False)


def equal_commands(model: EngineModel, record: EngineRecord, output: Path) -> dict[str, str]:
    """Return the commands that build the same engine of TensorRT, by the name of the program.

    ``polygraphy`` also runs the engine and compares it with onnxruntime. For TensorRT-RTX there is
    none: Polygraphy leaves TF32 on there.
    """
    if toolkit.BUILDERS[record.backend].targets:
        return {}
    major = int(record.version.split(".")[0])
    trtexec = ["trtexec", f"--onnx={model.path}", f"--saveEngine={output}", "--noTF32"]
    trtexec += ["--stronglyTyped"] if major < 11 else []
    polygraphy = ["polygraphy", "run", str(model.path), "--trt", "--strongly-typed", "--onnxrt"]
    polygraphy += ["--save-engine", str(output)]
    if model.library is not None:
        trtexec.append(f"--dynamicPlugins={model.library}")
        shim = model.library.with_name(f"libnystra_trt_register{major}.so")
        polygraphy += ["--plugins", str(shim)]
    for index, end in enumerate(("min", "opt", "max") if record.profile else ()):
        trtexec.append(f"--{end}Shapes={profile_text(record.profile, index)}")
        rows = (f"{name}:{list(row[index])}" for name, row in record.profile.items())
        polygraphy += [f"--trt-{end}-shapes", *(row.replace(" ", "") for row in rows)]
    return {"trtexec": shlex.join(trtexec), "polygraphy": shlex.join(polygraphy)}


def targets_of(options: BuildOptions, device: gpu.Device | str) -> list[str]:
    """Return the GPUs that an engine is built for ahead of time; none: the one of this machine.

    Raises:
        NystraError: This builder has no targets.
    """
    usual = toolkit.find_builder(options.backend).targets
    if options.targets and not usual:
        raise NystraError(
            f"`targets` does not apply to {options.backend}: it builds for the GPU of its machine"
        )
    if options.targets:
        return sorted(set(options.targets), key=toolkit.by_number)
    return list(usual) if isinstance(device, str) else []


def _timing_cache(record: EngineRecord) -> str | None:
    """Return the timing cache of a builder's version and a device; TensorRT-RTX times nothing."""
    if toolkit.BUILDERS[record.backend].targets:
        return None
    name = f"{record.backend}-{record.version}-{record.device.get('capability', 'none')}.timing"
    return str(cache.cache_folder() / name)


def engine_name(model: EngineModel, record: EngineRecord) -> str:
    """Return the name of an engine file: model, builder and target."""
    target = "-".join(record.targets) or str(record.device.get("capability", "any"))
    return f"{model.path.stem}_{record.backend}_{target}.engine"
