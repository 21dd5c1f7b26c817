"""Keys and tensors as the network has them: without the wrappers and parametrizations of PyTorch.

``torch.compile``, FSDP, activation checkpointing and DataParallel put names into the keys;
``weight_norm``, ``spectral_norm`` and pruning replace a weight by several tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from .rebuilding import Unreadable

Leaf: TypeAlias = Tensor | Unreadable
Leaves: TypeAlias = Mapping[str, Leaf]

_WRAPPERS = frozenset(
    (
        *("_orig_mod", "_fsdp_wrapped_module", "_fpw_module", "_checkpoint_wrapped_module"),
        "_forward_module",
    )
)
"""Names of PyTorch's wrappers, which no network has."""

_PARALLEL = "module"
"""The name of DataParallel, which a network may have too."""

_PARAMETRIZED = ".parametrizations."
_ALIGNED = 0.5  # cosine between u and W v from which on u and v are of this matrix


def unwrap(state: Leaves, *, parallel: bool) -> Leaves:
    """Return a state dict with the keys and weights that the network itself has.

    Args:
        state: The tensors by key.
        parallel: Whether the name of DataParallel is removed within keys, too.

    Returns:
        The same object if there is nothing to change, or if two keys would become one.
    """
    names = _WRAPPERS | {_PARALLEL} if parallel else _WRAPPERS
    renamed = {_without(key, names): value for key, value in state.items()}
    if len(renamed) < len(state):
        return state
    folded = _fold_weights(renamed)
    return state if folded.keys() == state.keys() else folded


def _without(key: str, names: frozenset[str]) -> str:
    if not any(name in key for name in names):
        return key
    first, *rest = key.split(".")  # the first name is a prefix, which others may not have
    return ".".join([first, *(part for part in rest if part not in names)])


def _fold_weights(state: dict[str, Leaf]) -> dict[str, Leaf]:
    """Return a state dict with plain weights in place of those that PyTorch computes."""
    folded = dict(state)
    for ending, partners, rule in _FORMS:
        for key in state:
            start = key.removesuffix(ending)
            keys = [key, *(start + partner for partner in partners)]
            target = start.replace(_PARAMETRIZED, ".")
            if start == key or target in folded or any(each not in folded for each in keys):
                continue
            values = [folded[each] for each in keys]
            tensors = [value for value in values if isinstance(value, Tensor)]
            weight = rule(*tensors) if len(tensors) == len(keys) else None
            if weight is not None:
                folded[target] = weight
                for each in keys:
                    del folded[each]
    return folded


def _norm(magnitude: Tensor, direction: Tensor) -> Tensor | None:
    """``weight_norm``: w = g v / |v|, the norm over all axes along which g has one element."""
    if magnitude.dim() not in (0, direction.dim()) or not _floats(magnitude, direction):
        return None
    sides = zip(magnitude.shape, direction.shape, strict=False)
    if any(ours not in (1, theirs) for ours, theirs in sides):
        return None
    axes = [axis for axis, side in enumerate(magnitude.shape) if side == 1]
    axes = axes if magnitude.dim() else list(range(direction.dim()))
    if not axes:
        return magnitude * direction.sign()
    length: Tensor = torch.linalg.vector_norm(direction, dim=axes, keepdim=True)
    return direction * (magnitude / length)


def _spectral(weight: Tensor, u: Tensor, v: Tensor) -> Tensor | None:
    """``spectral_norm`` in evaluation mode: w / (u . (W v)), W with the axis of u first."""
    if u.dim() != 1 or v.dim() != 1 or not weight.dim() or not _floats(weight, u, v):
        return None
    best: tuple[float, Tensor] | None = None
    for axis in range(min(weight.dim(), 2)):  # 1: a transposed convolution
        matrix = weight.movedim(axis, 0).flatten(1)
        if matrix.shape != (u.numel(), v.numel()):
            continue
        image = matrix @ v
        sigma = torch.dot(u, image)
        cosine = float(sigma / (torch.linalg.vector_norm(image) + 1e-12))
        if cosine > _ALIGNED and (best is None or cosine > best[0]):
            best = cosine, weight / sigma
    return None if best is None else best[1]


def _mask(weight: Tensor, mask: Tensor) -> Tensor | None:
    """``torch.nn.utils.prune``: w times its mask."""
    return weight * mask if weight.shape == mask.shape else None


def _floats(*tensors: Tensor) -> bool:
    return (
        all(tensor.is_floating_point() for tensor in tensors)
        and len({tensor.dtype for tensor in tensors}) == 1
    )


_FORMS: tuple[tuple[str, tuple[str, ...], Callable[..., Tensor | None]], ...] = (
    ("_g", ("_v",), _norm),
    ("_orig", ("_u", "_v"), _spectral),
    ("_orig", ("_mask",), _mask),
    (".original0", (".original1",), _norm),
    (".original", (".0._u", ".0._v"), _spectral),
)
"""(ending of a key, endings of its partners, the weight of their tensors, or None)."""
