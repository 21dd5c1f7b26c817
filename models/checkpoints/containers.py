"""Finds the state dict in the dictionaries that trainers save, by their keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from ...core.errors import CheckpointError
from ..registry import read_by_another, recognized

_AVERAGED = ("params_ema", "state_dict_ema", "model_ema", "net_g_ema", "generator_ema", "ema")
"""Names of a moving average of the weights, which is the one for inference."""

_PLAIN = (
    *("params", "state_dict", "model_state_dict", "model", "net", "network", "weights"),
    *("net_g", "netG", "generator", "gen", "G", "module", "_orig_mod", "_forward_module"),
)

_TRAINING_ONLY = (
    *("net_d", "netD", "discriminator", "disc", "D", "loss", "loss_fn", "criterion", "metric"),
    *("metrics", "perceptual", "vgg", "lpips", "n_averaged"),
)
"""Names of entries that only training needs."""

Fits: TypeAlias = Callable[[Mapping[str, Tensor]], bool]
"""Returns whether a state dict has the keys of a network."""

_DEEPEST = 4
_LONGEST_KEY = 400


def unwrap(
    content: Any, path: Path, fits: Fits | None = None
) -> tuple[dict[str, Tensor], str, tuple[str, ...]]:
    """Return the state dict of the network in the content of a checkpoint.

    Args:
        content: The content of the file: a state dict, or dictionaries around one.
        path: The file, for messages.
        fits: As in `read_checkpoint`.

    Returns:
        The tensors by key, without a prefix of the trainer's; the names the state dict stood
        under, joined by ``/``; and sentences that say what was chosen or left out.

    Raises:
        CheckpointError: There is no state dict, or several and no way to tell which is meant.
    """
    wrappers: list[str] = []
    notes: list[str] = []
    while True:
        if not isinstance(content, dict):
            raise CheckpointError(f"{path} holds a {type(content).__name__}, not a state dict")
        name = _container(content, path, notes)
        if name is None or len(wrappers) == _DEEPEST:
            break
        wrappers.append(name)
        content = content[name]
    state = {
        key: value
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    }
    if not state:
        raise CheckpointError(
            f"{path} holds no tensors: its keys are {sorted(map(str, content))[:8]}"
        )
    for key in state:
        if not key.isprintable() or len(key) > _LONGEST_KEY:
            raise CheckpointError(f"{path}: {key[:80]!r} is not the name of a tensor")
    state = _without_prefix(state, path, notes, fits)
    return state, "/".join(wrappers), tuple(notes)


def _container(content: dict[Any, Any], path: Path, notes: list[str]) -> str | None:
    """Return the key of the dictionary that contains the network; None if this is the network."""
    inside = [key for key, value in content.items() if isinstance(key, str) and _leads(value)]
    named = [key for key in inside if key in _AVERAGED or key in _PLAIN]
    if not named and any(isinstance(value, Tensor) for value in content.values()):
        return None
    chosen = _choose(named or inside, path, notes)
    return chosen


def _leads(value: Any, deepest: int = _DEEPEST) -> bool:
    """Whether a value is a state dict or contains one."""
    if not isinstance(value, dict) or deepest == 0:
        return False
    return any(
        isinstance(key, str) and (isinstance(inner, Tensor) or _leads(inner, deepest - 1))
        for key, inner in value.items()
    )


def _choose(names: Collection[str], path: Path, notes: list[str]) -> str | None:
    """Choose among several names: the moving average, or the only one."""
    averaged = [name for name in names if name in _AVERAGED]
    chosen = averaged or list(names)
    if not chosen:
        return None
    if len(chosen) > 1:
        raise CheckpointError(
            f"{path} holds several networks: {', '.join(sorted(chosen)[:8])}. Save the state "
            "dict of one of them with safetensors.torch.save_file"
        )
    others = sorted(set(names) - set(chosen))
    if others:
        notes.append(
            f"{path.name} holds {' and '.join([chosen[0], *others])}: using {chosen[0]}, the "
            "moving average of the weights"
        )
    return chosen[0]


def _without_prefix(
    state: dict[str, Tensor], path: Path, notes: list[str], fits: Fits | None
) -> dict[str, Tensor]:
    """Return the state dict in the form of nystra's networks, otherwise in that of another library.

    That library handles prefixes itself, some of which are parts of its networks' keys.
    """
    stripped, taken = state, list[str]()
    while not (fits or recognized)(stripped):
        inner = _strip(stripped, path, taken)
        if inner is None:
            if fits is not None or read_by_another(state):
                return state
            break
        stripped = inner
    notes += taken
    return stripped


def _strip(state: dict[str, Tensor], path: Path, notes: list[str]) -> dict[str, Tensor] | None:
    """Return the state dict without a trainer's prefix; None if it has none."""
    firsts = {key.partition(".")[0] for key in state}
    names = [name for name in firsts if name in _AVERAGED or name in _PLAIN]
    others = sorted(firsts - set(names))
    if not names or any(name not in _TRAINING_ONLY for name in others):
        return None
    prefix = f"{_choose(names, path, notes)}."
    if others:
        notes.append(f"{path.name}: ignored the tensors of {', '.join(others)}")
    kept = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    return kept or None
