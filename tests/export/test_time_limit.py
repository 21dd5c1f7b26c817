"""The limit to the processor time of a trace, of its conversion and of a search."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from accelerated import Small, compare, image
from nystra.core.errors import NystraError, TraceError
from nystra.core.ports.port import Port
from nystra.export import (
    ExportOptions,
    Plan,
    accelerate,
    export_model,
    export_module,
    mechanism,
)
from nystra.export.load import searching
from nystra.export.tracing import trace
from nystra.export.tracing.time_limit import BRANCHES, OutOfTime, limit_traces, within_limit

FREE = (Port("input", "image", lengths={"channels": 3}),)
FIXED = (Port("input", "image", lengths={"batch": 1, "channels": 3, "height": 8, "width": 8}),)


def spin(seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        try:
            sum(range(100_000))
        except Exception:  # as tracers do
            continue


def test_what_takes_longer_is_stopped_and_not_tried_again() -> None:
    with limit_traces(0.2):
        for allowed in (30.0, 0.1):
            begun = time.thread_time()
            with (
                pytest.raises(TraceError, match=r"after 0.2 s .*`static` .*batch.*`trace_limit`"),
                within_limit(FREE),
            ):
                spin(30.0)
            assert time.thread_time() - begun < allowed
        with within_limit(FIXED):
            spin(0.01)
        message = "processor time: raise `trace_limit`"
        with pytest.raises(TraceError, match=message), within_limit(FIXED):
            spin(30.0)


@pytest.mark.full
def test_a_step_within_another_has_a_time_of_its_own() -> None:
    with limit_traces(1.0), within_limit(FREE):
        for _ in range(3):
            spin(0.2)
            with within_limit(FREE, BRANCHES):
                spin(0.7)
        message = "decides by sizes was stopped after 1 s"
        with pytest.raises(TraceError, match=message), within_limit(FREE, BRANCHES):
            spin(30.0)


@pytest.mark.full
def test_what_ends_in_time_and_what_sleeps_is_not_stopped() -> None:
    with limit_traces(1.0), within_limit(FREE):
        time.sleep(1.6)
    spin(1.2)
    with limit_traces(0.2):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), within_limit(FREE):
                raise ZeroDivisionError
    with pytest.raises(NystraError, match="trace_limit"):
        ExportOptions(trace_limit=0.0)


class Endless(Small):
    """Does not end while a side has no number."""

    def forward(self, image: Tensor) -> Tensor:
        while isinstance(image.shape[2], torch.SymInt):
            spin(0.1)
        return super().forward(image)


@pytest.mark.full
def test_an_export_says_what_to_do_and_accelerate_takes_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nystra.export.accelerated import choosing

    limited = partial(ExportOptions, trace_limit=1.0)
    module = Endless().eval()
    with pytest.raises(TraceError, match=r"stopped after 1 s of processor time: give `static`"):
        export_module(module, tmp_path / "model.onnx", limited(speed=False))
    assert not [*tmp_path.iterdir()]
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choosing, "ExportOptions", limited)
    fast = accelerate(module, backend="ort-cpu", example=image(1, 3, 32, 48))
    assert fast.report is not None
    assert fast.report.way == "ort-cpu"
    assert compare(fast, module, image(1, 3, 32, 48)) < 1e-5
    with pytest.warns(UserWarning, match=r"got the shape \(1, 3, 40, 48\), expected \(1, 3, 32"):
        assert compare(fast, module, image(1, 3, 40, 48)) == 0.0


class Attended(Small):
    """Attention along rows."""

    def forward(self, image: Tensor) -> Tensor:
        tokens = image.movedim(1, 3)
        mixed = scaled_dot_product_attention(tokens, tokens, tokens)
        return super().forward(image + mixed.movedim(3, 1))


def run_out_of_time(*_: object, **__: object) -> None:
    raise OutOfTime


def test_a_conversion_that_takes_longer_ends_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "convert_program", run_out_of_time)
    options = ExportOptions(speed=False)
    message = "converting its trace to ONNX was stopped after 60 s of processor time: give `static`"
    with pytest.raises(TraceError, match=message):
        export_module(Small().eval(), tmp_path / "model.onnx", options)


@pytest.mark.full
def test_a_search_that_takes_longer_leaves_the_attention_as_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the export goes on, of a network and of a file, and says how to search."""
    monkeypatch.setattr(searching, "find_attention", run_out_of_time)
    message = "the search for its attention was stopped after 60 s of processor time: give `static`"
    options = ExportOptions(Plan(mechanism("full")), speed=False)
    result = export_module(Attended().eval(), tmp_path / "model.onnx", options)
    (said,) = [text for text in result.warnings if message in text]
    assert said.startswith("its attention stays as trained: ")
    again = export_model(result.model, tmp_path / "again.onnx", options)
    (said,) = [text for text in again.warnings if message in text]
    assert said.startswith("its attention stays as it is in the file: ")
    assert again.validation.passed
