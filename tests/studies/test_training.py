"""Training of small networks: data, determinism, and errors."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from image_files import rgb
from nystra.core.errors import CheckpointError, NystraError
from nystra.models import load
from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.pretrained import pretrained_path
from nystra.models.swinir.network import SwinIR
from shared import shared_path
from studies.training.__main__ import main, write_weights
from studies.training.data import Pair, draw_batch, read_pairs, reduce_bicubic
from studies.training.denoising import Denoising, with_noise
from studies.training.enlarging import Enlarging
from studies.training.enlarging_by_sst import EnlargingBySst
from studies.training.loop import train
from studies.training.restoring import Restoring, mean_psnr

TINY = Enlarging(steps=6, batch=2, patch=8, window=4, width=8, depths=(2,), heads=2)
FLAGS = [
    *("--steps", "6", "--batch", "2", "--patch", "8"),
    *("--window", "4", "--width", "8", "--depths", "2", "--heads", "2"),
    *("--threads", "1"),
]
NOISE = Denoising(
    steps=2,
    batch=1,
    patch=32,
    window=4,
    width=4,
    depths=(1,) * 9,
    heads=(1, 1, 1, 2, 2, 2, 1, 1, 1),
)


def make_image(seed: int, height: int = 48, width: int = 40) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3))
    return coarse.astype(np.uint8).repeat(8, 0).repeat(8, 1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    for part, count in (("train", 3), ("val", 1)):
        (folder / part).mkdir()
        for number in range(count):
            Image.fromarray(make_image(number)).save(folder / part / f"{number}.png")
    return folder


@pytest.fixture
def pairs(photographs: Path) -> list[Pair]:
    return read_pairs(photographs / "train", TINY.scale, TINY.patch)


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_the_reduction_is_that_of_the_published_test_set(factor: int) -> None:
    for file in sorted(shared_path("data", "set5", "HR").glob("*.png")):
        (published,) = shared_path("data", "set5", "LR_bicubic", f"X{factor}").glob(f"{file.stem}*")
        large = rgb(file)
        height, width = (side // factor * factor for side in large.shape[:2])
        small = reduce_bicubic(large[:height, :width], factor)
        np.testing.assert_array_equal(small, rgb(published), err_msg=file.stem)


def test_a_reduction_by_one_and_of_a_flat_image_change_nothing() -> None:
    large = make_image(0)
    np.testing.assert_array_equal(reduce_bicubic(large, 1), large)
    flat = np.full((6, 4, 3), 77, np.uint8)
    np.testing.assert_array_equal(reduce_bicubic(flat, 2), flat[::2, ::2])


def test_small_and_large_crops_show_the_same_place() -> None:
    small = np.random.default_rng(1).integers(0, 256, (20, 24, 3)).astype(np.uint8)
    pair = Pair(small.repeat(2, 0).repeat(2, 1), small)
    for step in range(5):
        smalls, larges = draw_batch([pair], 8, 8, 0, step)
        assert smalls.shape == (8, 3, 8, 8)
        assert larges.shape == (8, 3, 16, 16)
        np.testing.assert_array_equal(larges[:, :, ::2, ::2], smalls)
        assert 0.0 <= smalls.min() <= smalls.max() <= 1.0
    again = draw_batch([pair], 8, 8, 0, 4)
    np.testing.assert_array_equal(again[0], smalls)
    assert not np.array_equal(draw_batch([pair], 8, 8, 1, 4)[0], smalls)


@pytest.mark.parametrize("scale", [2, 3])
def test_the_start_is_a_bilinear_enlargement(scale: int) -> None:
    network = dataclasses.replace(TINY, scale=scale, width=16).network()
    with torch.no_grad():
        network.conv_after_body.weight.zero_()
        network.conv_after_body.bias.zero_()
        network.upsample[0].weight[:, 3:] = 0
        small = torch.rand(1, 3, 12, 16)
        output = network(small)
    expected = F.interpolate(small, scale_factor=float(scale), mode="bilinear")
    inside = slice(scale, -scale)
    torch.testing.assert_close(output[..., inside, inside], expected[..., inside, inside])


def test_a_seed_decides_the_result(pairs: list[Pair], tmp_path: Path) -> None:
    outputs = []
    for number, seed in enumerate((0, 0, 1)):
        recipe = dataclasses.replace(TINY, seed=seed)
        out = tmp_path / f"{number}.safetensors"
        write_weights(out, train(recipe, pairs, tmp_path / f"{number}.pt"), recipe, pairs)
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1]
    assert outputs[0] != outputs[2]


def test_a_training_that_goes_on_ends_as_one_never_stopped(
    pairs: list[Pair], tmp_path: Path
) -> None:
    whole = train(TINY, pairs, tmp_path / "whole.pt")
    seen: list[int] = []

    def stop(done: int, loss: float, average: object) -> None:
        seen.append(done)
        if done in (2, 3):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(TINY, pairs, tmp_path / "parts.pt", stop)
    parts = train(TINY, pairs, tmp_path / "parts.pt", stop)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert whole.keys() == parts.keys()
    for key in whole:
        assert torch.equal(whole[key], parts[key]), key
    finished = train(TINY, pairs, tmp_path / "parts.pt", stop)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert all(torch.equal(whole[key], finished[key]) for key in whole)


def test_training_lowers_the_loss(pairs: list[Pair], tmp_path: Path) -> None:
    recipe = dataclasses.replace(TINY, steps=60)
    losses: list[float] = []
    weights = train(recipe, pairs, tmp_path / "s.pt", lambda done, loss, _: losses.append(loss))
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    start = recipe.network().state_dict()
    assert mean_psnr(recipe, weights, pairs) > mean_psnr(recipe, start, pairs) + 0.3


def test_psnr_of_a_known_error() -> None:
    small = make_image(3)
    large = np.clip(small.repeat(2, 0).repeat(2, 1).astype(int), 10, 245)
    network = TINY.network()
    with torch.no_grad():
        output = network(torch.from_numpy(small.copy()).permute(2, 0, 1)[None] / 255.0)
    exact = output[0].permute(1, 2, 0).clamp(0, 1).mul(255).round().numpy().astype(int)
    difference = (exact - large) @ np.array([65.481, 128.553, 24.966]) / 255
    expected = 10 * np.log10(255**2 / np.mean(difference[2:-2, 2:-2] ** 2))
    pair = Pair(large.astype(np.uint8), small)
    assert mean_psnr(TINY, network.state_dict(), [pair]) == pytest.approx(expected, abs=1e-4)


def test_a_state_of_another_recipe_is_refused(pairs: list[Pair], tmp_path: Path) -> None:
    state = tmp_path / "state.pt"
    train(TINY, pairs, state)
    with pytest.raises(CheckpointError, match=r"another training \(steps 6 there, 7 now\)"):
        train(dataclasses.replace(TINY, steps=7), pairs, state)
    state.write_bytes(state.read_bytes()[:-500])
    with pytest.raises(CheckpointError, match="not a whole training state"):
        train(TINY, pairs, state)


def test_a_training_can_start_from_weights(pairs: list[Pair], tmp_path: Path) -> None:
    seeded = dataclasses.replace(TINY, seed=7)
    write_weights(tmp_path / "start.safetensors", seeded.network().state_dict(), seeded, pairs)
    start = str(tmp_path / "start.safetensors")
    recipe = dataclasses.replace(TINY, start=start, steps=1, rate=1e-30)
    weights = train(recipe, pairs, tmp_path / "state.pt")
    for key, value in seeded.network().state_dict().items():
        torch.testing.assert_close(weights[key], value)
    other = dataclasses.replace(recipe, width=16)
    with pytest.raises(CheckpointError, match="another network: give the options"):
        train(other, pairs, tmp_path / "other.pt")


def test_a_diverged_training_says_so(pairs: list[Pair], tmp_path: Path) -> None:
    with pytest.raises(NystraError, match=r"diverged.*--rate below 1e\+09"):
        train(dataclasses.replace(TINY, rate=1e9), pairs, tmp_path / "state.pt")


def test_the_command_writes_what_loads(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "small.safetensors"
    assert main(["--data", str(photographs), "--out", str(out), *FLAGS]) == 0
    captured = capsys.readouterr()
    assert "dB on held-out images" in captured.out
    assert "\r" not in captured.err  # a progress bar is for terminals
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "small.safetensors",
        "small.state.pt",
    ]
    checkpoint = read_checkpoint(out)
    hyper = dict(checkpoint.hyper)
    assert (hyper.pop("architecture"), hyper.pop("license")) == ("swinir", "Apache-2.0")
    SwinIR(**hyper).load_state_dict(checkpoint.state)


def test_weights_of_an_earlier_step(photographs: Path, tmp_path: Path) -> None:
    """They are written, and the training can go on to its end."""
    arguments = ["--data", str(photographs), "--out", str(tmp_path / "s.safetensors"), *FLAGS]
    assert main([*arguments, "--until", "1"]) == 0
    early = read_checkpoint(tmp_path / "s.safetensors").state
    state = torch.load(tmp_path / "s.state.pt", weights_only=True)
    assert state["done"] == 1
    torch.testing.assert_close(dict(early), state["average"])
    assert main(arguments) == 0
    late = read_checkpoint(tmp_path / "s.safetensors").state
    assert not torch.equal(early["conv_first.weight"], late["conv_first.weight"])


def test_a_signal_stops_the_command_between_two_steps(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "0 dB"

    monkeypatch.setattr(Restoring, "figure", interrupted)
    arguments = ["--data", str(photographs), "--out", str(tmp_path / "s.safetensors"), *FLAGS]
    assert main(arguments) == 130
    assert [file.name for file in tmp_path.iterdir()] == ["s.state.pt"]
    assert torch.load(tmp_path / "s.state.pt", weights_only=True)["done"] == 2
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--data", "nowhere"], r"nowhere/train is not a folder"),
        (["--out", "small.pth"], r"must end in \.safetensors"),
        (["--out", "nowhere/small.safetensors"], r"there is no folder nowhere"),
        (["--patch", "24"], r"0\.png is 40x48: both sides must be at least 48 pixels"),
        (["--steps", "0"], r"--steps is 0, expected a whole number of 1 or more"),
        (["--heads", "3"], r"--width 8 must be a multiple of --heads 3"),
    ],
)
def test_bad_input_is_a_clear_error(
    change: list[str],
    message: str,
    photographs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "small.safetensors"
    base = ["--data", str(photographs), "--out", str(out), *FLAGS]
    assert main([*base, *change]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_images_and_a_broken_image(tmp_path: Path) -> None:
    with pytest.raises(NystraError, match="holds no images"):
        read_pairs(tmp_path, 2, 8)
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    with pytest.raises(NystraError, match=r"broken\.jpg cannot be read as an image"):
        read_pairs(tmp_path, 2, 8)


def test_an_unknown_checkpoint_is_an_error_that_lists_the_shipped_ones() -> None:
    with pytest.raises(NystraError, match=r"'nothing'.*swinir_x2_w16"):
        pretrained_path("nothing")


def test_finding_a_shipped_checkpoint_imports_no_torch() -> None:
    code = (
        "import sys; from nystra.models.pretrained import pretrained_path; "
        "print(pretrained_path().name, 'torch' in sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.split() == ["swinir_x2_w16.safetensors", "False"]


def test_noise_is_that_of_an_8_bit_file() -> None:
    flat = np.full((100, 100, 3), 128, np.uint8)
    noisy = with_noise(flat, 25.0, (1,))
    assert noisy.std() == pytest.approx(25.0, rel=0.02)
    assert noisy.mean() == pytest.approx(128.0, abs=0.5)
    np.testing.assert_array_equal(noisy, np.round(noisy))
    np.testing.assert_array_equal(with_noise(flat, 25.0, (1,)), noisy)
    assert not np.array_equal(with_noise(flat, 25.0, (2,)), noisy)
    dark = with_noise(np.zeros((8, 8, 3), np.uint8), 25.0, (1,))
    assert dark.min() == 0 < dark.max()


def test_noise_lies_on_what_is_to_be_restored(photographs: Path) -> None:
    pairs = NOISE.read(photographs / "train", NOISE.patch)
    given, wanted = NOISE.draw(pairs, 3)
    assert given.shape == wanted.shape == (1, 3, 32, 32)
    np.testing.assert_array_equal(NOISE.draw(pairs, 3)[0], given)
    again = NOISE.draw(pairs, 4)
    assert not np.array_equal(again[0] - again[1], given - wanted)
    middle = (wanted > 0.4) & (wanted < 0.6)  # far from where noise is clipped
    assert (given - wanted)[middle].std() == pytest.approx(25 / 255, rel=0.2)


def test_a_denoiser_starts_as_the_identity_and_is_written_in_half(
    photographs: Path, tmp_path: Path
) -> None:
    image = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(NOISE.network()(image), image)
    out = tmp_path / "d.safetensors"
    sizes = ["--steps", "2", "--batch", "1", "--patch", "32", "--window", "4", "--width", "4"]
    stages = ["--depths", *"111111111", "--heads", *"111222111"]
    arguments = ["--network", "uformer", "--data", str(photographs), "--out", str(out), *sizes]
    assert main([*arguments, *stages, "--threads", "1"]) == 0
    checkpoint = read_checkpoint(out)
    assert {value.dtype for value in checkpoint.state.values()} == {torch.float16}
    assert load(out).facts.architecture == "uformer"
    assert main([*arguments, *stages, "--patch", "24"]) == 2


def test_large_windows(photographs: Path, tmp_path: Path) -> None:
    flags = ["--network", "sst", "--windows", "4", "8", "--ranks", "2", "3", "--blocks", "1"]
    flags += ["--steps", "2", "--batch", "1", "--patch", "8", "--width", "8", "--threads", "1"]
    out = tmp_path / "sst.safetensors"
    assert main([*flags, "--data", str(photographs), "--out", str(out)]) == 0
    loaded = load(out)
    assert loaded.facts.architecture == "sst"
    assert loaded.hyper["window_sizes"] == [4, 8]


def test_large_windows_in_bfloat16() -> None:
    """Windows of 1,024 tokens are rounded, as the published code does; smaller ones are not."""
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for side, rounded in ((16, False), (32, True)):
        recipe = EnlargingBySst(windows=(side,), ranks=(4,), blocks=1, width=8)
        exact = recipe.network()(image)
        found = dataclasses.replace(recipe, bfloat16=True).network()(image)
        assert torch.equal(found, exact) is not rounded
        assert torch.allclose(found, exact, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 32}, "--patch 32 is below the largest of --windows, 64"),
        ({"ranks": (16,)}, "--ranks has 1 numbers, --windows 3"),
        ({"heads": 3}, "multiple of --heads 3"),
    ],
)
def test_large_windows_that_do_not_fit(changes: dict[str, int], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        EnlargingBySst(**changes).check()
