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


def copy_network(network: OwnNetwork) -> nn.Module:
    """Return a copy of the module of a network, in evaluation mode; the module is unchanged.

    Weights that are float32 on the CPU are shared with it, others are converted.

    Raises:
        NystraError: It is a compiled program, holds tensors without values, or cannot be copied.
    """
    module = unwrap_module(network.module)
    if isinstance(module, torch.jit.ScriptModule):
        raise NystraError(
            f"{network.title} is a scripted module: pass the module that it was scripted from; "
            "see docs/own.md"
        )
    copies = {}
    for tensor in tensors_of(module):
        if tensor.is_meta:
            raise NystraError(
                f"{network.title} is on the device 'meta': its weights have no values"
            )
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        copies[tensor] = tensor.detach().to("cpu", dtype)
    return copy_with(module, copies, network.title)


def copy_with(module: nn.Module, replacements: Mapping[Tensor, Tensor], title: str) -> nn.Module:
    """Return a copy of a module in evaluation mode that holds other tensors.

    Args:
        module: The module.
        replacements: A tensor of the module -> the one of the copy; parameters become parameters.
        title: The module's name in the message.

    Raises:
        NystraError: It cannot be copied.
    """
    memo = {
        id(own): nn.Parameter(other, requires_grad=False)
        if isinstance(own, nn.Parameter)
        else other
        for own, other in replacements.items()
    }
    try:
        return copy.deepcopy(module, memo).eval()
    except Exception as error:  # it may hold any kind of object
        reason = foreign_reason(error, 200)
        raise NystraError(f"{title} cannot be copied: {reason}; see docs/own.md") from error


def content(tensor: Tensor) -> bytes:
    """Return the bytes of the values of a tensor."""
    values = tensor.detach().cpu().contiguous().reshape(-1)
    return values.view(torch.uint8).numpy().tobytes()


def state_sha256(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their keys."""
    digest = hashlib.sha256()
    for key in sorted(state):
        tensor = state[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(content(tensor))
    return digest.hexdigest()


def unwrap_module(module: nn.Module) -> nn.Module:
    """Return the module without the wrappers of torch.compile and of parallel training."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def tensors_of(module: nn.Module) -> Iterator[Tensor]:
    """Yield the weights and buffers, and tensors in other attributes.

    Those may be in lists and dictionaries, or in objects that hooks belong to, and may be results
    of a computation, of which PyTorch makes no copies.
    """
    seen: set[int] = set()
    todo: list[object] = [module]
    while todo:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _SHARED_BY_COPIES):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, (list, tuple, set)):
            todo += value
        elif isinstance(value, MethodType):
            todo.append(value.__self__)
        else:
            todo += getattr(value, "__dict__", {}).values()
