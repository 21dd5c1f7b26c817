"""``nystra build``: from a model file to an engine in the cache."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...core.errors import BackendUnavailableError, ExportError
from ...core.files.scratch import scratch_folder
from ...core.option import Options, option
from ...core.option_kinds import Number, Words
from ..machine import gpu
from ..workers.child import Progress
from . import cache, toolkit
from .child import ask
from .model import EngineModel
from .profile import ENGINE_TILE, REBUILD, EngineShapes, Profile, profile_text
from .record import EngineRecord
from .refusal import refusal_of, unsupported_reason


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
            usual="the one of this machine, else sm80 and newer",
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
            usual="chosen by the builder",
            metavar="N",
        )
    )
    builder_threads: int | None = option(
        Number(
            None, "threads of the builder", 1, usual="chosen by the builder", metavar="N", most=512
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
    toolkit.require(options.backend)
    device = gpu.find_device()
    if options.backend == toolkit.TENSORRT and isinstance(device, str):
        raise BackendUnavailableError(
            f"TensorRT builds engines only on a machine with an NVIDIA GPU ({device}). Without "
            "one: nystra build --dry-run, or `backend` tensorrt-rtx, which builds ahead of time; "
            "see docs/gpu.md"
        )
    announce("parse")
    parsed = ask({**model.request(options.backend), "do": "parse", "cases": []})
    if (refusal := refusal_of(parsed)) is not None:
        raise ExportError(str(refusal))
    record = EngineRecord(
        backend=options.backend,
        version=parsed.values["version"],
        model=model.path.name,
        hashes=model.hashes(),
        library="" if model.library is None else model.library.name,
        profile=model.profile(parsed.values["inputs"], options.shapes, options.tile),
        targets=_targets(options, device),
        device={}
        if isinstance(device, str) or _is_ahead_of_time(options, device)
        else asdict(device),
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
                "timing_cache": str(_timing_cache(record)),
                "output": str(engine),
            },
            seconds=24 * 3600.0 if options.seconds is None else 2 * options.seconds + 120,
            progress=progress,
        )
        if (refusal := refusal_of(answer)) is not None:
            raise ExportError(f"{options.backend} {record.version} built no engine: {refusal}")
        if model.hashes() != record.hashes:
            raise ExportError(
                f"{model.path} or one of its files changed during the build: build again"
            )
        return BuiltEngine(cache.store(record, engine), record, fresh=True)


def trtexec_line(model: EngineModel, profile: Profile, version: str, output: Path) -> str:
    """Return the trtexec command that builds the same engine."""
    arguments = ["trtexec", f"--onnx={model.path}", f"--saveEngine={output}", "--noTF32"]
    if int(version.split(".")[0]) < 11:
        arguments.append("--stronglyTyped")
    if model.library is not None:
        arguments.append(f"--dynamicPlugins={model.library}")
    if profile:
        for index, name in enumerate(("minShapes", "optShapes", "maxShapes")):
            arguments.append(f"--{name}={profile_text(profile, index)}")
    return shlex.join(arguments)


def _is_ahead_of_time(options: BuildOptions, device: gpu.Device | str) -> bool:
    """Whether the engine is built ahead of time, for GPUs other than this machine's."""
    return options.backend == toolkit.RTX and bool(_targets(options, device))


def _targets(options: BuildOptions, device: gpu.Device | str) -> list[str]:
    if options.backend != toolkit.RTX:
        return []
    if options.targets:
        return sorted(set(options.targets), key=toolkit.by_number)
    return list(toolkit.TARGETS) if isinstance(device, str) else []


def _timing_cache(record: EngineRecord) -> Path:
    """Return the timing cache of a builder's version and a device."""
    device = str(record.device.get("capability", "none"))
    return cache.cache_folder() / f"{record.backend}-{record.version}-{device}.timing"


def engine_name(model: EngineModel, record: EngineRecord) -> str:
    """Return the name of an engine file: model, builder and target."""
    target = "-".join(record.targets) or str(record.device.get("capability", "any"))
    return f"{model.path.stem}_{record.backend}_{target}.engine"
