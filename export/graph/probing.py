"""Runs a float32 graph to measure its inner values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx

from ...core.files.scratch import scratch_folder
from ...core.metadata import key_of
from ...runtime.session import Session
from ..tracing.bodies import attach_bodies


@contextmanager
def open_probe(model: onnx.ModelProto) -> Iterator[Session]:
    """Return a session of a model without bodies, which is not modified."""
    with_bodies = onnx.ModelProto.FromString(model.SerializeToString())
    attach_bodies(with_bodies)
    with_bodies.metadata_props.add(key=key_of("version"), value="0")
    with scratch_folder() as folder:
        path = folder / "probe.onnx"
        path.write_bytes(with_bodies.SerializeToString())
        yield Session(path)
