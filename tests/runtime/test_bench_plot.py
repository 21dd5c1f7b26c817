"""The plot of a benchmark: bars for one size, lines for several."""

from pathlib import Path

import pytest

from nystra.core.ports.port import image_size
from nystra.runtime.timing.plot import bars_figure, plot_rows
from nystra.runtime.timing.rows import Row


@pytest.mark.full
def test_one_size_is_drawn_as_bars_from_zero(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="nystra[report] is not installed")
    size = image_size(16, 16)
    rows = [
        Row("/far/away/a.onnx", "ort-cpu", size, [0.003, 0.004, 0.005]),
        Row("/far/away/a.onnx", "tensorrt", size, reason="not available: no GPU", exit_code=3),
        Row("/far/away/b.onnx", "ort-cpu", size, [0.002, 0.002, 0.002]),
    ]
    (axes,) = bars_figure(rows).axes
    assert [bar.get_width() for bar in axes.patches] == [4.0, 2.0]
    assert axes.get_xlim()[0] == 0
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["a.onnx ort-cpu", "a.onnx tensorrt", "b.onnx ort-cpu"], "no paths"
    assert " not available" in {text.get_text() for text in axes.texts}
    plot_rows(rows, tmp_path / "one.svg")
    assert "milliseconds per image of 16x16" in (tmp_path / "one.svg").read_text()
    plot_rows([*rows, Row("b.onnx", "ort-cpu", image_size(32, 32), [1.0])], tmp_path / "two.svg")
    assert "seconds per image (median)" in (tmp_path / "two.svg").read_text()
    same = [Row(f"{folder}/a.onnx", "ort-cpu", size, [1.0]) for folder in "xy"]
    assert {label.get_text() for label in bars_figure(same).axes[0].get_yticklabels()} == {
        "x/a.onnx ort-cpu",
        "y/a.onnx ort-cpu",
    }


@pytest.mark.full
def test_a_name_is_no_formula(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="nystra[report] is not installed")
    sizes = (image_size(16, 16), image_size(32, 32))
    rows = [Row(r"$\frac$.onnx", "ort-cpu", size, [0.1]) for size in sizes]
    plot_rows(rows[:1], tmp_path / "bars.png")
    plot_rows(rows, tmp_path / "lines.png")
    assert (tmp_path / "lines.png").stat().st_size > 0
