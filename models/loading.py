"""From a checkpoint file to a network that is ready to run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..plugins.errors import CheckpointError, NystraError
from .checkpoint import Checkpoint, read_checkpoint
from .facts import Facts
from .pretrained import pretrained_path
from .registry import Architecture, find_architecture

_TABLE = ".relative_position_bias_table"
_NOT_HYPER = {"architecture", "license"}


@dataclass(frozen=True)
class LoadedModel:
    """A network with its weights.

    Attributes:
        network: in evaluation mode, float32; (B, C, H, W), and what ``facts.extra_inputs`` lists,
            to (B, C', H', W').
        facts: what it promises.
        hyper: the constructor arguments it was built with.
        checkpoint: the file it came from.
        warnings: what was dropped or assumed, one sentence each.
        retargeted: the window was changed from the trained one.
    """

    network: nn.Module
    facts: Facts
    hyper: dict[str, Any]
    checkpoint: Checkpoint
    warnings: tuple[str, ...] = ()
    retargeted: bool = False


def load(path: str | Path, **hyper: Any) -> LoadedModel:
    """Load a checkpoint, or the shipped one of that name.

    Args:
        path: a ``.safetensors``, ``.pth`` or ``.pt`` file, or the bare name of a shipped one.
        **hyper: constructor arguments that go before what the file says: ``architecture``,
            ``window_size``, ``num_heads``, ``img_range``, ... Order of trust: these arguments,
            the JSON in the file's metadata, the tensors, a documented default.

    Returns:
        The network in evaluation mode with its facts.

    Raises:
        CheckpointError: the file cannot be read, or its keys do not fit; they are listed.
        UnsupportedModelError: no known architecture.
        NystraError: an unknown hyper-parameter, or one that must be given; the flag is named.
    """
    path = _find(Path(path))
    checkpoint = read_checkpoint(path)
    stored = dict(checkpoint.hyper)
    name = hyper.pop("architecture", stored.get("architecture"))
    architecture = find_architecture(checkpoint.state, name)
    known = set(inspect.signature(architecture.build).parameters)
    for key in hyper:
        if key not in known:
            raise NystraError(
                f"{architecture.name} has no hyper-parameter {key!r}; it has: "
                f"{', '.join(sorted(known))}"
            )
    read = architecture.hyper(checkpoint.state)
    told = read | {key: value for key, value in stored.items() if key not in _NOT_HYPER}
    merged, warnings, state, retargeted = _retarget(told, hyper, checkpoint.state)
    for key, flag in architecture.required.items():
        if merged.get(key) is None:
            raise NystraError(
                f"{path.name}: its tensors do not tell {key} (there is no position bias "
                f"table or mask to read it from); give {flag}"
            )
    merged = architecture.defaults(merged) | merged
    _spread_heads(merged)
    try:
        network = architecture.build(**merged)
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as error:
        raise NystraError(
            f"{path.name}: a {architecture.name} of {merged} cannot be built: {error}"
        ) from error
    _fill(network, state, architecture, checkpoint.path)
    network.eval().requires_grad_(requires_grad=False)
    facts = architecture.facts(network, merged, str(stored.get("license", "unknown")))
    return LoadedModel(network, facts, merged, checkpoint, tuple(warnings), retargeted)


def _find(path: Path) -> Path:
    bare = path.name == str(path) and not path.suffix
    return pretrained_path(path.name) if bare and not path.exists() else path


def _spread_heads(hyper: dict[str, Any]) -> None:
    if not {"num_heads", "depths"} <= hyper.keys():
        return
    heads, groups = hyper["num_heads"], len(hyper["depths"])
    if isinstance(heads, int):
        hyper["num_heads"] = [heads] * groups
    elif len(heads) == 1:
        hyper["num_heads"] = list(heads) * groups


def _side(window: Any) -> tuple[int, int]:
    return (window, window) if isinstance(window, int) else (int(window[0]), int(window[1]))


def _retarget(
    told: dict[str, Any], asked: dict[str, Any], state: Mapping[str, Tensor]
) -> tuple[dict[str, Any], list[str], dict[str, Tensor], bool]:
    """Merge hyper-parameters; a window other than the trained one drops position bias and mask."""
    merged = told | asked
    trained, window = told.get("window_size"), asked.get("window_size")
    if window is None or trained is None or _side(window) == _side(trained):
        return merged, [], dict(state), False
    rows, columns = _side(trained)
    merged |= {"position_bias": False, "mask": False}
    merged.pop("img_size", None)
    merged |= {key: value for key, value in asked.items() if key in ("mask", "img_size")}
    tables = [value for key, value in state.items() if key.endswith(_TABLE)]
    kept = {
        key: value
        for key, value in state.items()
        if not key.endswith((_TABLE, ".relative_position_index", ".attn_mask"))
    }
    biggest = max((float(table.abs().max()) for table in tables), default=0.0)
    new = _side(window)
    warning = (
        f"window {new[0]}x{new[1]} instead of the trained {rows}x{columns}: the relative position "
        f"bias of {len(tables)} blocks (largest entry {biggest:.2f} in logits) and the shift mask "
        "are dropped, as PnP-Nystra does"
    )
    return merged, [warning], kept, True


def _fill(
    network: nn.Module, state: Mapping[str, Tensor], architecture: Architecture, path: Path
) -> None:
    wanted = {key: value.shape for key, value in network.state_dict().items()}
    given = {key: value.shape for key, value in state.items()}
    missing = [key for key in wanted if key not in given]
    surplus = [
        key for key in given if key not in wanted and not key.endswith(architecture.optional_keys)
    ]
    misshapen = [
        f"{key} {tuple(given[key])} instead of {tuple(shape)}"
        for key, shape in wanted.items()
        if key in given and given[key] != shape
    ]
    faults = [
        f"{len(keys)} {what}: {', '.join(keys[:5])}{', ...' if len(keys) > 5 else ''}"
        for what, keys in (("missing", missing), ("surplus", surplus), ("misshapen", misshapen))
        if keys
    ]
    if faults:
        raise CheckpointError(
            f"{path} does not fit {architecture.name} as its tensors describe it. "
            + "; ".join(faults)
        )
    network.load_state_dict({key: state[key].to(torch.float32) for key in wanted})


def parameter_count(network: nn.Module) -> int:
    """Return the number of parameters of a network."""
    return sum(math.prod(parameter.shape) for parameter in network.parameters())
