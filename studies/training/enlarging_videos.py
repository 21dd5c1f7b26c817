"""A small RVRT that enlarges videos, trained on crops that move over photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nystra.core.option import option
from nystra.core.option_kinds import Number
from nystra.models.rvrt.network import RVRT

from .data import ImageData, Pair, read_pairs
from .recipe import Recipe
from .restoring import psnr_of_error

_SCALE = 4
_SIGMA = 1.6  # of the blur before every fourth pixel is taken, as in the published Vid4
_RADIUS = 6
_MOST_MOTION = 6.0  # pixels of a large frame, from one frame to the next
_SHOWN = (8, 96)  # frames and side of a held-out video


@dataclass(frozen=True)
class EnlargingVideos(Recipe):
    """The training of a small RVRT x4 on videos of a camera that moves over a photograph.

    The camera keeps its velocity, whole pixels of a large frame. The optical flow stays 0 (SpyNet
    is not trained): the guided alignment has to find all of the motion. The rate is that of the
    published training; at 2e-3 all features became constant within 300 steps.

    Attributes:
        patch: Side of a small frame, in pixels.
        frames: Of a video, an even number.
        window: Side of the attention window.
        width: Channels of the features.
    """

    architecture: ClassVar[str] = "rvrt"
    stored: ClassVar[torch.dtype] = torch.float16

    batch: int = option(Number(1, "videos a step", 1))
    rate: float = option(Number(4e-4, "highest learning rate", 0, above=True))
    patch: int = option(Number(32, "side of a small frame, in pixels", 1))
    frames: int = option(Number(4, "frames of a video, an even number", 2))
    window: int = option(Number(16, "side of the attention window", 1))
    width: int = option(Number(24, "channels of the features", 4))

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        return {
            "upscale": _SCALE,
            "window_size": self.window,
            "num_blocks": [1, 1, 1],
            "depths": [2, 2, 2],
            "embed_dim": self.width,
            "num_heads": 2,
            "deformable_groups": 4,
            "attention_heads": 4,
        }

    def network(self) -> RVRT:
        """Return a network that starts as bilinear upscaling, without flow."""
        torch.manual_seed(self.seed)
        network = RVRT(**self.hyper())
        for parameter in network.conv_last.parameters():
            nn.init.zeros_(parameter)
        for name, parameter in network.spynet.named_parameters():
            parameter.requires_grad_(False)
            if name.endswith(("basic_module.8.weight", "basic_module.8.bias")):
                nn.init.zeros_(parameter)
        return network

    def training_set(self, data: Path) -> list[Pair]:
        """Return the photographs below ``train/``."""
        return read_pairs(data / "train", 1, self.patch * _SCALE)

    def held_out(self, data: Path) -> list[Pair]:
        """Return two photographs below ``val/``."""
        return read_pairs(data / "val", 1, _SHOWN[1], most=2)

    def draw(
        self, examples: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return small videos (B, t, 3, p, p) and large ones (B, t, 3, 4 p, 4 p), 0..1."""
        random = np.random.default_rng([self.seed, step])
        videos = []
        for _ in range(self.batch):
            photograph = examples[int(random.integers(len(examples)))].large
            photograph = np.rot90(photograph, int(random.integers(4)))
            videos.append(moving(photograph, self.frames, self.patch * _SCALE, random))
        large = np.stack(videos)
        small = np.stack([[reduced(frame) for frame in video] for video in videos])
        return _unit(small), _unit(large)

    def loss(self, output: Tensor, wanted: Tensor) -> Tensor:
        """Return the mean absolute difference."""
        return (output - wanted).abs().mean()

    def figure(self, weights: Mapping[str, Tensor], held_out: Sequence[Pair]) -> str:
        """Return the mean PSNR over RGB of a video from each held-out photograph."""
        network = self.network().eval()
        network.load_state_dict({key: value.float() for key, value in weights.items()})
        figures = []
        for number, pair in enumerate(held_out):
            video = moving(pair.large, *_SHOWN, np.random.default_rng(number))
            small = _unit(np.stack([reduced(frame) for frame in video])[None])
            with torch.no_grad():
                output = network(torch.from_numpy(small)).clamp(0, 1).mul(255).round()
            figures.append(psnr_of_error(output - 255 * torch.from_numpy(_unit(video[None]))))
        return f"{np.mean(figures):.2f} dB"


def moving(photograph: ImageData, frames: int, side: int, random: np.random.Generator) -> ImageData:
    """Return a video (t, side, side, 3) of a camera that moves over a photograph."""
    room = np.array(photograph.shape[:2]) - side
    most = np.minimum(_MOST_MOTION, room / (frames - 1))
    way = np.rint(random.uniform(-most, most)[None] * np.arange(frames)[:, None]).astype(int)
    first = random.integers(-way.min(0), room - way.max(0) + 1)
    return np.stack([photograph[y : y + side, x : x + side] for y, x in first + way])


def reduced(frame: ImageData) -> ImageData:
    """Return a frame (4 H, 4 W, 3) at a quarter of its sides, blurred and rounded to 8 bit."""
    taps = np.arange(-_RADIUS, _RADIUS + 1)
    weights = np.exp(-0.5 * (taps / _SIGMA) ** 2)
    values = frame.astype(np.float64)
    for axis in (0, 1):
        count = frame.shape[axis] // _SCALE
        framed = np.pad(
            values, [(_RADIUS, _RADIUS) if a == axis else (0, 0) for a in range(3)], "symmetric"
        )
        places = np.arange(count)[:, None] * _SCALE + np.arange(taps.size)
        values = np.moveaxis(np.take(framed, places, axis), axis + 1, -1) @ (
            weights / weights.sum()
        )
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _unit(videos: ImageData) -> NDArray[np.float32]:
    """Return videos (B, t, H, W, 3) as (B, t, 3, H, W), 0..1."""
    return np.ascontiguousarray(videos.transpose(0, 1, 4, 2, 3), np.float32) / np.float32(255.0)
