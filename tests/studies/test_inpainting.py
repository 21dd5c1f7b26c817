"""The training of the small inpainting generator, and the figures of its sheet."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nystra.core.errors import NystraError
from nystra.export.attention.psal.parameters import Psal
from nystra.export.attention.psal.patches import attend_patches
from nystra.models.layers.patches import usable_keys
from nystra.models.loading import load

pytest.importorskip("skimage")  # and scipy, which it needs

from studies.psal import inpainting_sheet as sheet
from studies.psal import inpainting_train as training
from studies.psal.inpainting_data import discount, draw_crops, photographs, rectangle, strokes

RECIPE = training.Recipe(steps=3, batch=2, side=80, width=6, adversarial_from=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for name in ("b", "a"):
        pixels = random.integers(0, 256, (6, 7, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((112, 96)).save(tmp_path / f"{name}.png")
    return tmp_path


@pytest.mark.full
def test_a_stopped_training_goes_on(folder: Path) -> None:
    """Also in the steps with the discriminator; weights change and the file loads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        files = []
        for stop in (3, 2):
            images, state = photographs(folder), folder / f"{stop}.pt"
            run = training.Training(RECIPE, images, state)
            first = {key: value.clone() for key, value in run.average.items()}
            figures: list[dict[str, Any]] = []
            for _ in range(stop):
                figures.append(run.step())
            run.save()
            run = training.Training(RECIPE, images, state)
            while run.done < RECIPE.steps:
                figures.append(run.step())
            assert all("judge" in figure for figure in figures)
            assert any(not torch.equal(first[key], run.average[key]) for key in first)
            run.write(folder / f"{stop}.safetensors")
            files.append((folder / f"{stop}.safetensors").read_bytes())
        assert files[0] == files[1]
        assert load(folder / "3.safetensors").hyper == {"input_dim": 3, "ngf": 6}
        with pytest.raises(SystemExit, match="is of another training"):
            training.Training(training.Recipe(), photographs(folder), folder / "3.pt")
    finally:
        torch.set_num_threads(threads)


def test_it_starts_by_passing_the_image_on(folder: Path) -> None:
    torch.manual_seed(0)
    network = training.generator(RECIPE)
    crops, masks = draw_crops(photographs(folder), 80, 2, 0, 0)
    image, mask = torch.from_numpy(crops), torch.from_numpy(masks)
    with torch.no_grad():
        stages = network.stages(image * (1 - mask), mask)
    known = (1 - mask).expand_as(image) > 0
    for restored in stages:
        assert float((restored - image).abs()[known].mean()) < 0.3 * float(
            image.abs()[known].mean()
        )


def test_holes(folder: Path) -> None:
    random = np.random.default_rng(0)
    for make in (rectangle, strokes):
        mask = make(128, random)
        assert set(np.unique(mask)) == {0.0, 1.0}
        assert 0.005 < mask.mean() < 0.5
    mask = np.zeros((5, 7), np.float32)
    mask[1:4, 2:5] = 1
    expected = np.zeros((5, 7))
    expected[1:4, 2:5] = 0.5
    expected[2, 3] = 0.25
    np.testing.assert_allclose(discount(mask, 0.5), expected)
    crops, masks = draw_crops(photographs(folder), 80, 2, seed=3, step=5)
    again, _ = draw_crops(photographs(folder), 80, 2, seed=3, step=5)
    other, _ = draw_crops(photographs(folder), 80, 2, seed=3, step=6)
    assert (crops.shape, masks.shape) == ((2, 3, 80, 80), (2, 1, 80, 80))
    assert np.array_equal(crops, again)
    assert not np.array_equal(crops, other)


def test_yardsticks() -> None:
    """Both return a plane unchanged; a wedge only the smooth one."""
    rows, columns = np.mgrid[:24, :24].astype(np.float32)
    mask = np.zeros((1, 1, 24, 24), np.float32)
    mask[0, 0, 8:16, 9:15] = 1
    flat = np.full((1, 3, 24, 24), 0.3, np.float32)
    wedge = np.stack([rows, columns, rows + columns])[None] / 48
    for fill in (sheet.mean_color, sheet.biharmonic):
        holed = np.where(mask > 0, 0, flat)
        np.testing.assert_allclose(fill(holed, mask), flat, atol=1e-5)
    holed = np.where(mask > 0, 0, wedge)
    np.testing.assert_allclose(sheet.biharmonic(holed, mask), wedge, atol=1e-3)
    assert np.abs(sheet.mean_color(holed, mask) - wedge).max() > 0.05
    corner = sheet.place(np.where(columns > 16, np.sin(40 * rows), 0), 4, np.random.default_rng(0))
    assert corner[1] > 8


def test_a_generator_is_trained_with_psal(folder: Path) -> None:
    """Its attention has a gradient, and fills what the exported form fills."""
    recipe = dataclasses.replace(RECIPE, attention="psal")
    network = training.generator(recipe)
    run = training.Training(recipe, photographs(folder), folder / "psal.pt")
    assert np.isfinite(list(run.step().values())).all()
    geometry = network.fine_generator.contextul_attention.geometry
    random = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 24, 24, generator=random).requires_grad_()
    mask = torch.ones(1, 1, 24, 24)
    mask[..., 10:14, 10:14] = 0
    value = torch.where(mask > 0, query.detach(), 1e6)
    got = training.ATTENTIONS["psal"](query, query, value, mask, geometry)
    (gradient,) = torch.autograd.grad(got.square().sum(), query)
    assert float(gradient.abs().max()) > 0
    assert float(got.detach().abs().max()) < 1e3  # nothing of the hole is read
    with torch.no_grad():
        expected = attend_patches(
            query, query, value, mask, geometry, Psal(patch_size=7, full_size=True), "plain"
        )
    # In noise, only a patch that finds itself has a match that both searches must find.
    itself = usable_keys(mask, dataclasses.replace(geometry, patch=7, shrink=1))[..., 3:-3, 3:-3]
    same = (got - expected).abs().amax(1, keepdim=True)[..., 3:-3, 3:-3] < 1e-3
    assert float(same[itself > 0].float().mean()) > 0.95


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"side": 64}, "--side 64: expected a multiple of 8 of at least 72"),
     ({"side": 76}, "--side 76"), ({"attention": "local"}, "expected full or psal")],
)  # fmt: skip
def test_settings_that_cannot_be_trained(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        dataclasses.replace(RECIPE, **changed)


def test_figures_of_a_hole() -> None:
    truth = np.zeros((20, 24, 3))
    filled = truth.copy()
    filled[4:16, 5:17:2] = 0.5
    found = sheet.figures(filled, truth, (4, 5), 12)
    assert found["L1"] == pytest.approx(0.25)
    assert found["L2"] == pytest.approx(0.125)
    assert found["PSNR"] == pytest.approx(10 * np.log10(8))
    assert found["TV"] == pytest.approx(0.5)  # every column differs from the next, no row
    assert found["outside L1"] == 0
    assert sheet.figures(truth, truth, (4, 5), 12)["SSIM"] == pytest.approx(1)
