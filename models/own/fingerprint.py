"""What a module computes, as a hash: the operators of two runs with all constants, and its code."""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from ..sizes.plain_run import run_plainly
from ..torch_internals import TorchDispatchMode, tree_flatten, without_observers
from .plain_copy import content

_SIDES = (32, 64, 48, 56, 60, 96, 112, 128, 224, 256)
"""Sides of the images of the runs: the first one that the module takes."""

_PRINTED = (str, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.layout,
            torch.memory_format, torch.SymInt)  # fmt: skip


class _Record(TorchDispatchMode):
    """Hashes the operators of a run: their names, their arguments, and tensors from outside."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.digest = hashlib.sha256()
        self._numbers = WeakIdKeyDictionary()
        self._count = 0
        self._number(inputs)

    def _number(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self._numbers[tensor] = self._count
                self._count += 1

    def _text(self, leaf: Any) -> str:
        if not isinstance(leaf, Tensor):
            return repr(leaf) if isinstance(leaf, _PRINTED) else type(leaf).__name__
        number = self._numbers.get(leaf)
        if number is not None:
            return f"%{number}"
        return f"{leaf.dtype} {tuple(leaf.shape)} {hashlib.sha256(content(leaf)).hexdigest()}"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator and write it down."""
        leaves, spec = tree_flatten((args, kwargs or {}))
        with without_observers():
            texts = [self._text(leaf) for leaf in leaves]
        self.digest.update(f"{func} {spec} {texts}\n".encode())
        returned = func(*args, **(kwargs or {}))
        self._number(tree_flatten(returned)[0])
        return returned


def hash_computation(network: nn.Module, ports: Sequence[Port], examples: Sequence[Tensor]) -> str:
    """Return the SHA-256 of what a network computes.

    Args:
        network: In float32 on the CPU, in evaluation mode.
        ports: Its inputs.
        examples: Inputs that it takes, for a network of one size.
    """
    digest = hashlib.sha256(_source(network).encode())
    for side in _SIDES:
        one = _try_run(network, _tensors(ports, image_size(side, side)))
        if one is not None:
            other = _try_run(network, _tensors(ports, image_size(2 * side, side)))
            digest.update(f"{one} {other}".encode())
            return digest.hexdigest()
    digest.update(_hash_run(network, examples).encode())
    return digest.hexdigest()


def _tensors(ports: Sequence[Port], size: Mapping[str, int]) -> list[Tensor]:
    return [torch.from_numpy(array) for array in example_arrays(ports, size).values()]


def _hash_run(network: nn.Module, inputs: Sequence[Tensor]) -> str:
    """Return the hash of a run."""
    record = _Record(inputs)
    with torch.no_grad(), warnings.catch_warnings(), run_plainly(), record:
        warnings.simplefilter("ignore")
        network(*inputs)
    return record.digest.hexdigest()


def _try_run(network: nn.Module, inputs: Sequence[Tensor]) -> str | None:
    """Return the hash of a run, or None if it fails."""
    try:
        return _hash_run(network, inputs)
    except Exception:  # noqa: BLE001 - any error means that it does not take these inputs
        return None


def _source(network: nn.Module) -> str:
    """Return the source of the classes of a network, which may branch on sizes."""
    texts = {}
    for kind in {type(module) for module in network.modules()}:
        if kind.__module__.partition(".")[0] not in ("torch", "nystra"):
            try:
                texts[kind.__qualname__] = inspect.getsource(kind)
            except (OSError, TypeError):  # written in no file
                texts[kind.__qualname__] = ""
    return repr(sorted(texts.items()))
