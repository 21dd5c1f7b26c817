"""A small vision transformer that classifies images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Choice, Number
from nystra.models.vit.network import ViT

from .labeled import Labeled, read_labeled
from .recipe import Recipe

_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10's training images
_BORDER = 4  # black pixels around an image that crops are taken from
_JUDGED = 500  # images at once
_ATTENTIONS = ("full", "linformer", "performer", "nystromformer")


@dataclass(frozen=True)
class Classifying(Recipe):
    """The training of a vision transformer on images in a folder for each class.

    One recipe for every attention: nothing but the attention differs. Images are moved by up to
    4 pixels and mirrored.

    Attributes:
        attention: What it is trained with.
        classes: Folders of images.
        side: Of an image, in pixels.
        patch_size: Side of a patch, in pixels.
        width: Channels of a token.
        hidden: Channels inside the feed-forward.
        depth: Blocks.
        heads: Attention heads of every block.
        rank: Tokens of ``linformer``, features of ``performer``, landmarks of ``nystromformer``.
        stem: ``patches``, or ``convolutions`` before them.
        decay: Weight decay of AdamW.
    """

    architecture: ClassVar[str] = "vit"
    stored: ClassVar[torch.dtype] = torch.float16

    batch: int = option(Number(128, "images a step", 1))
    attention: str = option(Choice("full", "what it is trained with", _ATTENTIONS))
    classes: int = option(Number(10, "folders of images", 1))
    side: int = option(Number(32, "side of an image, in pixels", 1))
    patch_size: int = option(Number(4, "side of a patch, in pixels", 1))
    width: int = option(Number(48, "channels of a token", 1))
    hidden: int = option(Number(192, "channels inside the feed-forward", 1))
    depth: int = option(Number(4, "blocks", 1))
    heads: int = option(Number(4, "attention heads of every block", 1))
    rank: int = option(Number(32, "tokens of linformer, features of performer, landmarks", 1))
    stem: str = option(
        Choice("patches", "or convolutions before them", ("patches", "convolutions"))
    )
    decay: float = option(Number(0.0, "weight decay of AdamW", 0.0))

    @property
    def weight_decay(self) -> float:
        """Weight decay of AdamW."""
        return self.decay

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        ranks: dict[str, dict[str, Any]] = {
            "linformer": {"linformer_k": self.rank},
            "performer": {"rp_dim": self.rank},
            "nystromformer": {"num_landmarks": self.rank, "start": "exact"},
        }
        return {
            "image_size": [self.side, self.side],
            "patch_size": self.patch_size,
            "num_classes": self.classes,
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "depth": self.depth,
            "num_heads": self.heads,
            "norm": "tokens",
            "gelu": "none",
            "stem": self.stem,
            "attention": self.attention,
            **ranks.get(self.attention, {}),
        }

    def metadata(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return the constructor arguments, the preprocessing and the class names."""
        prepared = {
            "resize": {"sides": [self.side, self.side], "filter": "bilinear", "antialias": True},
            "mean": list(_MEAN),
            "std": list(_STD),
            "labels": list(cast(Labeled, examples).names),
        }
        return {**self.hyper(), "preprocessing": prepared}

    def check(self) -> None:
        """Check the settings against each other."""
        for flag, size, of, part in (
            ("width", self.width, "heads", self.heads),
            ("side", self.side, "patch-size", self.patch_size),
        ):
            if size % part:
                raise NystraError(f"--{flag} {size} must be a multiple of --{of} {part}")

    def network(self) -> ViT:
        """Return a network with random weights."""
        torch.manual_seed(self.seed)
        return ViT(**self.hyper())

    def training_set(self, data: Path) -> Labeled:
        """Return the images below ``train/``."""
        return self._read(data / "train")

    def held_out(self, data: Path) -> Labeled:
        """Return the images below ``test/``."""
        return self._read(data / "test")

    def _read(self, folder: Path) -> Labeled:
        images = read_labeled(folder, self.side)
        if len(images.names) != self.classes:
            raise NystraError(
                f"{folder} holds {len(images.names)} classes, expected those of --classes "
                f"{self.classes}"
            )
        return images

    def draw(
        self, examples: Sequence[Any], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return shifted and mirrored images, (B, 3, side, side), and their classes (B)."""
        images = cast(Labeled, examples)
        random = np.random.default_rng([self.seed, step])
        chosen = random.integers(len(images), size=self.batch)
        border = ((0, 0), (_BORDER, _BORDER), (_BORDER, _BORDER), (0, 0))
        framed = np.pad(images.pixels[chosen], border)
        corners = random.integers(2 * _BORDER + 1, size=(self.batch, 2))
        mirrored = random.integers(2, size=self.batch)
        crops = [
            image[y : y + self.side, x : x + self.side][:, :: -1 if mirror else 1]
            for image, (y, x), mirror in zip(framed, corners, mirrored, strict=True)
        ]
        return _normalized(np.stack(crops)), images.classes[chosen]

    def loss(self, output: Tensor, wanted: Tensor) -> Tensor:
        """Return the cross entropy."""
        return F.cross_entropy(output, wanted)

    def figure(self, weights: Mapping[str, Tensor], held_out: Sequence[Any]) -> str:
        """Return the accuracy on the held-out images as text."""
        return f"{self.accuracy(weights, cast(Labeled, held_out)):.2%}"

    def accuracy(self, weights: Mapping[str, Tensor], images: Labeled) -> float:
        """Return the share of images whose class has the largest logit."""
        network = self.network().eval()
        network.load_state_dict({key: value.float() for key, value in weights.items()})
        right = 0
        for first in range(0, len(images), _JUDGED):
            part = slice(first, first + _JUDGED)
            batch = torch.from_numpy(_normalized(images.pixels[part]))
            with torch.no_grad():
                best = network(batch).argmax(1).numpy()
            right += int((best == images.classes[part]).sum())
        return right / len(images)


def _normalized(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images (B, H, W, 3) as the input of the network, (B, 3, H, W)."""
    mean, std = (np.array(values, np.float32) for values in (_MEAN, _STD))
    values = (pixels.astype(np.float32) / 255.0 - mean) / std
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
