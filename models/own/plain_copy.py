"""A copy of a module that shares its weights: evaluated in float32 on the CPU, never trained."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import torch
from torch import Tensor, nn

from ...core.errors import NystraError, foreign_reason
from .network import OwnNetwork

_SHARED_BY_COPIES = (type, FunctionType, BuiltinFunctionType, ModuleType, str, bytes, int, float)


def plain_copy(network: OwnNetwork) -> nn.Module:
    """Return a copy of the module of a network, in evaluation mode; the module is unchanged.

    Weights that are float32 on the CPU are shared with it, others are converted.

    Raises:
        NystraError: It is a compiled program, holds tensors without values, or cannot be copied.
    """
    module = unwrapped(network.module)
    if isinstance(module, torch.jit.ScriptModule):
        raise NystraError(
            f"{network.title} is a scripted module: pass the module that it was scripted from; "
            "see docs/own.md"
        )
    memo: dict[int, object] = {}
    for tensor in _tensors(module):
        if tensor.is_meta:
            raise NystraError(
                f"{network.title} is on the device 'meta': its weights have no values"
            )
        memo[id(tensor)] = _shared(tensor)
    try:
        copied = copy.deepcopy(module, memo)
    except Exception as error:  # it may hold any kind of object
        reason = foreign_reason(error, 200)
        raise NystraError(f"{network.title} cannot be copied: {reason}; see docs/own.md") from error
    return copied.eval()


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their keys."""
    digest = hashlib.sha256()
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module without the wrappers of torch.compile and of parallel training."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yield the weights and buffers, and tensors in other attributes.

    Those may be in lists and dictionaries, or in objects that hooks belong to, and may be results
    of a computation, of which PyTorch makes no copies.
    """
    seen: set[int] = set()
    todo: list[object] = [module]
    while todo:
        held = todo.pop()
        if id(held) in seen or isinstance(held, _SHARED_BY_COPIES):
            continue
        seen.add(id(held))
        if isinstance(held, Tensor):
            yield held
        elif isinstance(held, Mapping):
            todo += held.values()
        elif isinstance(held, (list, tuple, set)):
            todo += held
        elif isinstance(held, MethodType):
            todo.append(held.__self__)
        else:
            todo += getattr(held, "__dict__", {}).values()


def _shared(tensor: Tensor) -> Tensor:
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    plain = tensor.detach().to("cpu", dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(plain, requires_grad=False)
    return plain
