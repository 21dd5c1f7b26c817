"""Models whose result depends on the whole image are not cut to fit into the memory."""

from pathlib import Path

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.runtime import ImageData, RunOptions, run_images, write_image
from nystra.runtime.machine.memory import resident_memory
from nystra.runtime.tiling.memory_meter import MemoryLaw, MemoryMeter
from runtime_models import nystra_metadata, save_upscaler

HEIGHT, WIDTH = 200, 300


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose export found that tiles change the result."""
    found = {"nystra.tiling": "discouraged", "nystra.tile_psnr": "[[128, 31.5]]"}
    return save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata() | found)


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes 2,000 bytes a pixel, 120 MB for an image; measurements vary in a used process."""
    monkeypatch.setattr(MemoryMeter, "measure", lambda *_, **__: MemoryLaw(2000.0))


@pytest.fixture
def little_memory(costly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has 64 MiB."""
    monkeypatch.setattr("nystra.runtime.tiling.memory_meter.available_memory", lambda: 1 << 26)


def run(model: Path, folder: Path, **options: int) -> int:
    """Run an image; return the number of tiles."""
    pixels = np.random.default_rng(0).random((HEIGHT, WIDTH, 3), np.float32)
    write_image(folder / "in.png", ImageData(pixels), overwrite=True)
    wanted = RunOptions(overwrite=True, **options)
    return run_images(model, folder / "in.png", folder / "out.png", wanted, threads=1)[0].tiles


@pytest.mark.usefixtures("little_memory")
def test_an_image_that_does_not_fit_is_not_cut_unless_asked(model: Path, tmp_path: Path) -> None:
    with pytest.raises(NystraError, match=r"tiles change .* 31.5 dB .*`max_memory`.*`tile` \d+ to"):
        run(model, tmp_path)
    assert not (tmp_path / "out.png").exists()
    assert run(model, tmp_path, tile=96) > 1
    cut = save_upscaler(tmp_path / "cut.onnx", metadata=nystra_metadata())
    assert run(cut, tmp_path) > 1


@pytest.mark.usefixtures("costly")
def test_a_limit_of_memory_does_not_cut_either(model: Path, tmp_path: Path) -> None:
    limit = (resident_memory() or 0) + (1 << 26)
    with pytest.raises(NystraError, match="does not fit into the memory as a whole, and tiles"):
        run(model, tmp_path, max_memory=limit)
    cut = save_upscaler(tmp_path / "cut.onnx", metadata=nystra_metadata())
    assert run(cut, tmp_path, max_memory=limit) > 1
