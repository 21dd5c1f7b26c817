"""The training of a small SwinIR: deterministic for a seed, and resumable at any step."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from ...plugins.errors import CheckpointError, NystraError
from ..swinir.network import SwinIR
from .data import Pair, draw_batch

_SAVE_SECONDS = 60.0
_WARM_UP = 0.02  # of all steps
_LAST_RATE = 0.005  # of the highest learning rate
_AVERAGE = 0.999  # how much of the moving average a step keeps

OnStep: TypeAlias = Callable[[int, float, Mapping[str, Tensor]], None]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the result of a training, besides the photographs.

    Attributes:
        seed: Of the start weights and of the crops.
        steps: Number of optimiser steps.
        batch: Crops a step.
        patch: Side of a crop of the small picture, in pixels.
        rate: Highest learning rate.
        scale: Output side over input side.
        window: Side of the attention window.
        width: Channels of the map.
        depths: Blocks of each residual group.
        heads: Attention heads of every block.
        position_bias: Attention adds a relative position bias.
        mask: Shifted windows keep apart what the shift made neighbours.
    """

    seed: int = 0
    steps: int = 3000
    batch: int = 4
    patch: int = 48
    rate: float = 2e-3
    scale: int = 2
    window: int = 16
    width: int = 32
    depths: tuple[int, ...] = (6,)
    heads: int = 2
    position_bias: bool = True
    mask: bool = True

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        return {
            "upscale": self.scale,
            "window_size": self.window,
            "img_range": 1.0,
            "depths": list(self.depths),
            "embed_dim": self.width,
            "num_heads": [self.heads] * len(self.depths),
            "mlp_ratio": 2.0,
            "upsampler": "pixelshuffledirect",
            "position_bias": self.position_bias,
            "mask": self.mask,
        }

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then a cosine."""
        warm = max(1, round(self.steps * _WARM_UP))
        if step < warm:
            return self.rate * (step + 1) / warm
        way = (step - warm) / max(1, self.steps - warm)
        return self.rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * way)))


def start_network(recipe: Recipe) -> SwinIR:
    """Return a network that starts as a bilinear enlargement, its transformer nearly silent.

    The published network has no interpolating skip and has to learn one from a random start.
    Here three channels of the first convolution pass the picture on and the last convolution
    enlarges them.
    """
    torch.manual_seed(recipe.seed)
    network = SwinIR(**recipe.hyper())
    first, body = network.conv_first, cast(nn.Conv2d, network.conv_after_body)
    last = cast(nn.Conv2d, network.upsample[0])
    phases = [_linear_phase(phase, recipe.scale) for phase in range(recipe.scale)]
    with torch.no_grad():
        body.weight *= 0.1
        last.weight *= 0.1
        for parameter in (first.weight[:3], cast(Tensor, first.bias)[:3], last.weight[:, :3]):
            parameter.zero_()
        cast(Tensor, last.bias).zero_()
        for channel in range(3):
            first.weight[channel, channel, 1, 1] = 1.0
            for y, rows in enumerate(phases):
                for x, columns in enumerate(phases):
                    output = (channel * recipe.scale + y) * recipe.scale + x
                    last.weight[output, channel] = torch.outer(rows, columns)
    return network


def _linear_phase(phase: int, scale: int) -> Tensor:
    offset = (phase + 0.5) / scale - 0.5
    return torch.tensor([max(0.0, -offset), 1.0 - abs(offset), max(0.0, offset)])


def train(
    recipe: Recipe, pairs: Sequence[Pair], state: Path, on_step: OnStep | None = None
) -> dict[str, Tensor]:
    """Train, going on from the state file where there is one.

    Args:
        recipe: What to train.
        pairs: Photographs, each reduction at least ``recipe.patch`` on both sides.
        state: File of the interrupted training; written every minute, when ``on_step`` raises
            KeyboardInterrupt, and at the end.
        on_step: Called after each step with the number of steps done, the loss and the moving
            average of the weights, which it must not change.

    Returns:
        The moving average of the weights, by state-dict key.

    Raises:
        CheckpointError: The state file is damaged or of another recipe.
        NystraError: The loss is no longer finite, or the state file cannot be written.
    """
    network = start_network(recipe)
    average = {key: value.detach().clone() for key, value in network.state_dict().items()}
    optimizer = torch.optim.Adam(network.parameters(), recipe.rate, betas=(0.9, 0.99), fused=True)
    done = _restore(state, recipe, network, optimizer, average)

    def save() -> None:
        content = {
            "recipe": json.dumps(asdict(recipe), sort_keys=True),
            "done": done,
            "network": network.state_dict(),
            "average": average,
            "optimizer": optimizer.state_dict(),
        }
        write_file(state, lambda file: torch.save(content, file))

    saved = time.monotonic()
    with _deterministic():
        while done < recipe.steps:
            loss = _step(network, optimizer, recipe, pairs, done)
            _follow(average, network, done)
            done += 1
            if on_step is not None:
                try:
                    on_step(done, loss, average)
                except KeyboardInterrupt:
                    save()
                    raise
            if time.monotonic() - saved > _SAVE_SECONDS:
                save()
                saved = time.monotonic()
    save()
    return average


def _step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    pairs: Sequence[Pair],
    step: int,
) -> float:
    small, large = draw_batch(pairs, recipe.patch, recipe.batch, recipe.seed, step)
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate_at(step)
    optimizer.zero_grad(set_to_none=True)
    loss: Tensor = (network(torch.from_numpy(small)) - torch.from_numpy(large)).abs().mean()
    if not math.isfinite(loss.item()):
        raise NystraError(
            f"the loss of step {step} is {loss.item()}: the training diverged; "
            f"delete the state file and train with a --rate below {recipe.rate:g}"
        )
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _follow(average: Mapping[str, Tensor], network: nn.Module, step: int) -> None:
    weight = 1.0 - min(_AVERAGE, (step + 1) / (step + 10))
    for key, value in network.state_dict().items():
        average[key].lerp_(value, weight)


def _restore(
    state: Path,
    recipe: Recipe,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: dict[str, Tensor],
) -> int:
    if not state.exists():
        return 0
    try:
        content = torch.load(state, map_location="cpu", weights_only=True)
        before, done = json.loads(content["recipe"]), int(content["done"])
        parts = content["network"], content["optimizer"], content["average"]
    except Exception as error:  # torch raises what the file provokes: any of it is a bad file
        raise CheckpointError(
            f"{state} is not a whole training state ({type(error).__name__}): "
            "delete it to start again"
        ) from error
    now = json.loads(json.dumps(asdict(recipe)))
    other = [key for key in now if before.get(key) != now[key]]
    if other:
        changes = "; ".join(f"{key} {before.get(key)} there, {now[key]} now" for key in other)
        raise CheckpointError(
            f"{state} belongs to another training ({changes}): "
            "give the same options to go on, or delete it to start again"
        )
    network.load_state_dict(parts[0])
    optimizer.load_state_dict(parts[1])
    average.update(parts[2])
    return done


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def write_file(path: Path, write: Callable[[Any], object]) -> None:
    """Write a file under a temporary name and move it into place.

    Args:
        path: The file.
        write: Is handed the open binary file.

    Raises:
        NystraError: The file cannot be written; what stood there stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            write(file)
        temporary.replace(path)
    except OSError as error:
        raise NystraError(f"{path} cannot be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
