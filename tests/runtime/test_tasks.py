"""The table of tasks: a new kind of network needs ports and a row."""

from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from frames_classifier import COMMON, FRAMES, JUDGE, LOGITS, Judge, save
from nystra.cli.main import main
from nystra.core.ports.examples import example_arrays
from nystra.core.ports.port import CONDITION, FRAMES_AXES, UNKNOWN, Port, image_size
from nystra.export.load.images import validation_feeds
from nystra.export.plan.naming import output_path
from nystra.models.facts import Facts
from nystra.runtime import ImageData, write_image
from nystra.runtime.model.model_facts import TensorInfo, input_ports
from nystra.runtime.session import Session
from nystra.runtime.tasks import registry as table
from nystra.runtime.tasks.registry import TASKS, task_qualities
from nystra.runtime.tasks.result import Result
from runtime_models import nystra_metadata, save_upscaler


class Slow(nn.Module):
    """A video at twice the size, each frame separately."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Return (B, T, C, 2H, 2W)."""
        return frames.repeat_interleave(2, 3).repeat_interleave(2, 4)


FILM = Facts(
    task="video",
    inputs=(FRAMES,),
    outputs=(Port("output", "frames", FRAMES_AXES, {"channels": 3}, multiple=2),),
    **COMMON,
)


@pytest.mark.full
def test_a_film_goes_by_its_ports(tmp_path: Path) -> None:
    session = Session(save(Slow(), FILM, tmp_path / "film.onnx"), threads=1)
    assert session.inputs[0].shape == ("batch", "frames", 3, "height", "width")
    assert session.outputs[0].shape == ("batch", "frames", 3, "2*height", "2*width")
    assert session.facts.inputs == FILM.inputs
    assert session.facts.outputs == FILM.outputs
    for size in (image_size(4, 7), {"frames": 2, **image_size(1, 1)}):
        feeds = example_arrays(session.facts.inputs, size)
        (output,) = session.run(feeds).values()
        np.testing.assert_array_equal(output[..., ::2, ::2], feeds["frames"])
    for feeds in validation_feeds(FILM):
        with torch.no_grad():
            expected = Slow()(torch.from_numpy(feeds["frames"])).numpy()
        np.testing.assert_array_equal(session.run(feeds)["output"], expected)


@pytest.mark.full
def test_a_film_of_one_size(tmp_path: Path) -> None:
    facts = FILM.fix_lengths((2, 3, 3, 8, 12))
    session = Session(save(Slow(), facts, tmp_path / "film.onnx"), threads=1)
    assert session.inputs[0].shape == (2, 3, 3, 8, 12)
    assert session.outputs[0].shape == (2, 3, 3, 16, 24)
    assert session.facts.inputs == facts.inputs
    assert session.facts.sides == image_size(8, 12)
    assert [feeds["frames"].shape for feeds in validation_feeds(facts)] == [(2, 3, 3, 8, 12)]
    named = output_path(tmp_path, Path("film.pth"), facts, {}, 20)
    assert named.name.startswith("film_2x_2x3x3x8x12_fp32_op20_")


def run_judge(session: Session, source: Path, target: str, *_: Any, **__: Any) -> list[Result]:
    (port,) = session.facts.inputs
    (logits,) = session.run(example_arrays([port], image_size(4, 6))).values()
    Path(target).write_text(str(int(np.argmax(logits))))
    return [Result(str(source), output=target)]


def test_a_new_task_is_a_new_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(Judge(), JUDGE, tmp_path / "judge.onnx")
    arguments = ["run", str(model), "-i", str(tmp_path), "-o", str(tmp_path / "class.txt"), "-q"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "the task 'toy'" in error
    assert "supported are restoration, inpainting, colorization" in error
    row = replace(
        TASKS[0], names=("toy",), inputs=("frames",), output="logits", run=lambda: run_judge
    )
    monkeypatch.setattr(table, "TASKS", [*TASKS, row])
    assert main(arguments) == 0
    assert (tmp_path / "class.txt").read_text() in {"0", "1", "2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nystra.task": "cooking"}, "the task 'cooking', which nystra run does not support"),
        ({"nystra.task": "video"}, "does not take one frames and return one frames"),
        ({"nystra.io": '[{"name": "input", "role": "frames"}]'}, r"it takes input \(frames: "),
        ({"nystra.io": '[{"name": "output", "role": "logits"}]'}, r"returns output \(logits: "),
    ],
)
def test_a_file_that_no_row_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], message: str
) -> None:
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata(**change))
    image = tmp_path / "in.png"
    write_image(image, ImageData(np.zeros((8, 8, 3), np.float32)))
    assert main(["run", str(model), "-i", str(image), "-o", str(tmp_path / "out.png")]) == 2
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(capsys.readouterr().err)
    assert not (tmp_path / "out.png").exists()


class Head(nn.Module):
    """Logits of a list of features."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return (B, 3)."""
        return features.reshape(-1, 3, 4).sum(2)


@pytest.mark.full
def test_sizes_are_refused_where_an_input_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = Port("features", UNKNOWN, ("batch", "channels"), {"channels": 12}, range=None)
    facts = Facts(task="toy", inputs=(port,), outputs=(LOGITS,), **COMMON)
    model = save(Head(), facts, tmp_path / "head.onnx")
    assert main(["bench", str(model), "--sizes", "8x8"]) == 2
    error = capsys.readouterr().err
    assert (
        f"--sizes does not apply to {model}, whose inputs have no height and width: features"
        in error
    )
    assert "Omit --sizes" in error


def test_every_row_loads_what_runs_it() -> None:
    names = [name for row in TASKS for name in row.names]
    assert len(set(names)) == len(names)
    for row in TASKS:
        assert callable(row.run())
        assert all(is_dataclass(record()) for record in row.options)
        assert all(callable(getattr(row.summary(), name)) for name in ("rows", "line", "example"))
        if row.quality is not None:
            quality = row.quality()
            assert quality.name in task_qualities()
            assert set(quality.fixed) < quality.options.list_options().keys()
            assert all(item.needs for item in quality.items.values())
        if row.handler is not None:
            handler = row.handler()
            assert all([handler.media_types, handler.route, handler.summary])
            images = [role for role in row.optional_inputs if role != CONDITION]
            assert handler.parts == (*row.inputs, *images)
            assert all(kind.doc for kind in handler.parameters.list_options().values())


def test_an_input_that_is_no_image_has_ports_too() -> None:
    (tokens,) = input_ports([TensorInfo("tokens", ("n", "t", "d"), "int64")], {})
    assert tokens.shape({"height": 2, "width": 3}) == (3, 2, 3)
