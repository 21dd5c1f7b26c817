"""The training of a small network: deterministic for a seed, and resumable at any step."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from nystra.core.errors import CheckpointError, NystraError
from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.pretrained import checkpoint_path

from .recipe import Recipe

_SAVE_SECONDS = 60.0
_AVERAGE = 0.999  # how much of the moving average a step keeps

OnStep: TypeAlias = Callable[[int, float, Mapping[str, Tensor]], None]


def train(
    recipe: Recipe, examples: Sequence[Any], state: Path, on_step: OnStep | None = None
) -> dict[str, Tensor]:
    """Train, continuing from the state file if there is one.

    Args:
        recipe: What to train.
        examples: What `Recipe.training_set` gives.
        state: File of the interrupted training; written every minute, when ``on_step`` raises
            KeyboardInterrupt, and at the end.
        on_step: Called after each step with the number of steps done, the loss and the moving
            average of the weights, which it must not change.

    Returns:
        The moving average of the weights, by state-dict key.

    Raises:
        CheckpointError: The state file is damaged or of another recipe, or the weights to start
            from are of another network.
        NystraError: The loss is no longer finite, or the state file cannot be written.
    """
    network = recipe.network()
    _fill(network, recipe)
    average = {key: value.detach().clone() for key, value in network.state_dict().items()}
    optimizer = torch.optim.AdamW(
        network.parameters(), recipe.rate, (0.9, 0.99), weight_decay=recipe.weight_decay, fused=True
    )
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
            loss = _step(network, optimizer, recipe, examples, done)
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


def _fill(network: nn.Module, recipe: Recipe) -> None:
    """Load weights from a file into a network, if the recipe names one."""
    if not recipe.start:
        return
    checkpoint = read_checkpoint(checkpoint_path(recipe.start))
    try:
        network.load_state_dict(recipe.adapted(checkpoint.state))
    except RuntimeError as error:
        raise CheckpointError(
            f"--start {recipe.start} holds the weights of another network: give the options that "
            f"it was trained with ({str(error).splitlines()[-1].strip():.120})"
        ) from error


def _step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    examples: Sequence[Any],
    step: int,
) -> float:
    inputs, targets = recipe.draw(examples, step)
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate_at(step)
    optimizer.zero_grad(set_to_none=True)
    loss = recipe.loss(network(torch.from_numpy(inputs)), torch.from_numpy(targets))
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
    other = [key for key in now if before.get(key, "") != now[key]]
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
