"""Moving averages of the weights: their names, and those that hold tensors without their keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from .unwrapping import Leaf, Leaves

_AVERAGED = re.compile(
    r"((?<![a-zA-Z])(ema|[Aa]veraged?|swa|[Ss]hadow|[Pp]olyak)"
    r"|(?<![A-Z]{2})EMA|(?<![A-Z])(Ema|Averaged?|SWA|Swa))(?![a-z])"
)
_TRAINED = re.compile(r"(^|/)(online_model|current_model_state)([./]|$)")
"""The weights of the training, in ema-pytorch and Lightning, where the others are an average."""

_FACTS = frozenset(("decay", "num_updates"))


@dataclass(frozen=True)
class Average:
    """A moving average: its name in the file, and its tensors by the keys of the network."""

    name: str
    state: Leaves


def is_averaged(name: str) -> bool:
    """Whether a name is that of a moving average, which is the one for inference."""
    return bool(_AVERAGED.search(name)) and not is_trained_beside(name)


def is_trained_beside(name: str) -> bool:
    """Whether a name is that of the weights of the training beside their average."""
    return bool(_TRAINED.search(name))


def averages_of(network: Leaves, inside: Mapping[str, Leaves]) -> Iterator[Average]:
    """Yield the averages of a network whose tensors have other names, or none.

    Buffers, which have no average, are those of the network.

    Args:
        network: The tensors of the network by key.
        inside: All tensors of the file, by the names that they stand under.
    """
    for name, part in _find_unnamed(inside):
        averaged = _by_place(network, part) if _is_list(part) else _remove_dots(network, part)
        if averaged:
            yield Average(name, {**network, **averaged})


def find_unnamed_average(inside: Mapping[str, Leaves]) -> str:
    """Return the name of an average whose tensors have no keys, or ""."""
    return next((name for name, _ in _find_unnamed(inside)), "")


def _find_unnamed(inside: Mapping[str, Leaves]) -> Iterator[tuple[str, Leaves]]:
    for name, state in inside.items():
        if is_averaged(name) and _is_list(state):
            yield name, state
        parts: dict[str, dict[str, Leaf]] = {}
        for key, value in state.items():
            first, _, rest = key.partition(".")
            if rest and rest not in _FACTS:
                parts.setdefault(first, {})[rest] = value
        for first, part in parts.items():
            if is_averaged(first) and len(part) > 1 and not any("." in key for key in part):
                yield f"{name}/{first}" if name else first, part


def _is_list(part: Leaves) -> bool:
    return len(part) > 1 and all(key.isdigit() for key in part)


def _remove_dots(network: Leaves, part: Leaves) -> dict[str, Leaf]:
    """Return an average whose keys are those of the network without dots, after one prefix.

    ``LitEma`` of latent diffusion writes it.
    """
    key_by_name = {key.replace(".", ""): key for key in network}
    for name in part:
        for start in (name.removesuffix(end) for end in key_by_name if name.endswith(end)):
            average = {
                key_by_name[each[len(start) :]]: value
                for each, value in part.items()
                if each.startswith(start) and each[len(start) :] in key_by_name
            }
            if 2 * len(average) >= len(network) and _same_shapes(network, average):
                return average
        return {}
    return {}


def _same_shapes(network: Leaves, part: Leaves) -> bool:
    for key, value in part.items():
        own = network[key]
        if not isinstance(value, Tensor) or not isinstance(own, Tensor):
            return False
        if value.shape != own.shape:
            return False
    return True


def _by_place(network: Leaves, part: Leaves) -> dict[str, Leaf]:
    """Return an average that is a list in the order of the network's parameters.

    Buffers of the network are passed over. Where shapes leave a choice there is no answer.
    """
    tensors = list(part.values())
    first = _match_shapes(list(network.items()), tensors)
    last = _match_shapes(list(network.items())[::-1], tensors[::-1])
    return dict(zip(first, tensors, strict=True)) if first and first == last[::-1] else {}


def _match_shapes(network: list[tuple[str, Leaf]], tensors: list[Leaf]) -> list[str]:
    """Return the first keys, in order, that have the shapes of tensors; [] if there are none."""
    keys: list[str] = []
    for key, own in network:
        if len(keys) == len(tensors):
            break
        other = tensors[len(keys)]
        if (
            isinstance(own, Tensor)
            and isinstance(other, Tensor)
            and own.is_floating_point()
            and own.shape == other.shape
        ):
            keys.append(key)
    return keys if len(keys) == len(tensors) else []
