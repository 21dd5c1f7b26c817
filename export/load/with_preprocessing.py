"""A classifier with its preprocessing in PyTorch, the reference of such files.

The graph gets its preprocessing from `graph.preprocessing`, in ONNX's operators; the two are
independent.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ...core.errors import NystraError
from ...core.ports.port import SIDES
from ...core.ports.preprocessing import Preprocessing
from ...models.loading import LoadedModel
from .images import Feeds, Pixels


@dataclass(frozen=True)
class Preparation:
    """Resizes, crops and normalizes images before a network runs: a forward pre-hook."""

    preprocessing: Preprocessing

    def __call__(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with the first, images (B, C, H, W) in 0..1, prepared."""
        image, *others = arguments
        return (self.prepare(image), *others)

    def prepare(self, image: Tensor) -> Tensor:
        """Return (B, C, H', W') for images (B, C, H, W) in 0..1."""
        resize, crop = self.preprocessing.resize, self.preprocessing.crop
        if resize is not None:
            height, width = image.shape[2:]
            size = resize.size(height, width)
            image = interpolate(image, size, mode=resize.filter, antialias=resize.antialias)
        if crop is not None:
            from ...runtime.tasks.classification.classifier import middle

            rows, columns = map(middle, image.shape[2:], crop)
            image = image[:, :, rows, columns]
        if self.preprocessing.mean:
            mean, std = (
                image.new_tensor(values).view(-1, 1, 1)
                for values in (self.preprocessing.mean, self.preprocessing.std)
            )
            image = (image - mean) / std
        return image


def with_preprocessing(loaded: LoadedModel) -> LoadedModel:
    """Return a network that takes images of any size; the given one is left as it is.

    Raises:
        NystraError: The preprocessing is unknown, or does not lead to a size that the network
            takes.
    """
    from ...runtime.tasks.classification.classifier import check_preprocessing

    facts = loaded.facts
    preprocessing, image = facts.preprocessing, facts.inputs[0]
    if preprocessing is None or preprocessing == Preprocessing(labels=preprocessing.labels):
        raise NystraError(
            f"`with_preprocessing`: {loaded.checkpoint.path.name} has no preprocessing (resize, "
            "crop, mean, std): omit it"
        )
    if facts.sides is not None and preprocessing.size is None:
        raise NystraError(
            "`with_preprocessing`: its preprocessing does not lead to the only size that "
            f"{loaded.checkpoint.path.name} takes, {tuple(facts.sides.values())}: omit it"
        )
    sides = None
    if facts.sides is not None:
        sides = (facts.sides["height"], facts.sides["width"])
    check_preprocessing(preprocessing, image.channels or 0, sides, loaded.checkpoint.path.name)
    axes = image.lengths.items()
    lengths = {axis: length for axis, length in axes if axis not in SIDES}
    opened = replace(image, lengths=lengths, multiple=1)
    return replace(
        loaded,
        network=prepare_network(loaded.network, preprocessing),
        facts=replace(
            facts,
            inputs=(opened, *facts.inputs[1:]),
            size_minimum=1,
            preprocessing=preprocessing.within_graph(),
        ),
    )


def prepare_feeds(feeds: Feeds, preprocessing: Preprocessing) -> Feeds:
    """Return the inputs of a network, by name, for images (B, C, H, W) in 0..1 as the first."""
    (name, image), *others = feeds.items()
    tensor = Preparation(preprocessing).prepare(torch.from_numpy(image))
    prepared: Pixels = tensor.numpy()
    return {name: prepared} | dict(others)


def prepare_network(network: nn.Module, preprocessing: Preprocessing) -> nn.Module:
    """Return a copy of a network that prepares its first input; its modules keep their names."""
    copied = copy.deepcopy(network)
    copied.register_forward_pre_hook(Preparation(preprocessing))
    return copied
