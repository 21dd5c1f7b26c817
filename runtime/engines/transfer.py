"""Engines that leave this machine's cache, and engines that come into it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.writing import check_writable_folder, file_set
from . import cache
from .build import BuiltEngine
from .model import EngineModel
from .record import EngineRecord


def copy_engine(built: BuiltEngine, output: Path) -> EngineRecord:
    """Copy an engine and its record out of the cache.

    Returns:
        The record, without a seal.

    Raises:
        NystraError: The files cannot be written.
    """
    record = replace(built.record, engine=output.name, seal="")
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
    cache.check_hash(engine, record)
    hashes = model.hashes()
    if record.hashes != hashes:
        raise NystraError(
            f"the engine {engine} was built from {record.hashes}; here they are {hashes}: use "
            "the model and the plugin library that it was built with; see docs/gpu.md"
        )
    return BuiltEngine(cache.store(replace(record, seal=""), engine), record, fresh=False)
