"""`accelerate`: a module in, a faster module with the same call out."""

from __future__ import annotations

import copy
import sys
from typing import Any

from torch import Tensor, nn

from ...core.errors import NystraError
from ...runtime.backends import find_backend
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.registry import mechanism
from .choosing import AUTO, TORCH, Wanted
from .module import Accelerated

_PRECISIONS = (None, "fp32", "bf16")


def accelerate(
    module: nn.Module | Any,
    attn: str | Mechanism | Plan = "full",
    backend: str = AUTO,
    precision: str | None = None,
    example: Tensor | tuple[Any, ...] | None = None,
) -> Accelerated:
    """Return a module with the same call that computes the same, faster.

    It is computed in one of two ways: in PyTorch, with nystra's operators in place of the attention
    of the module's graph (``torch``), or by an engine that runs the module's ONNX file, which is
    exported and validated once and kept in a cache (``ort-cpu``, ``openvino``, ...). Which one is
    decided at the first call, or here if there is an example; that takes as long as an export, and
    seconds in later processes. ``.report`` then says what was gained, and that the result was
    compared with that of the module.

    Images of any size and batch that the module takes are taken. What the chosen way does not take
    (arguments of another kind, a size that the file does not have) the module itself computes, with
    one warning. Everything is computed in evaluation mode and without gradients.

    Args:
        module: A module of images: float tensors (B, C, H, W) or (B, T, C, H, W) in, and out
            images of a whole scale or logits (B, K), alone or in tuples, lists and dictionaries.
            Or a descriptor of spandrel, ``ModelLoader().load_from_file(...)``, whose own call
            (padding, cropping, values in 0..1) the result has. It is not modified; its weights are
            shared.
        attn: The mechanism of its attention: ``full`` for the same result, ``cluster`` or another
            one for linear attention, with parameters as a `Mechanism` or a `Plan`.
        backend: ``torch``, the name of a backend, or ``auto``: the fastest of ``torch``,
            ``ort-cpu``, ``openvino`` and the module itself, measured in interleaved calls. On a
            CUDA device ``auto`` takes ``torch`` or the module.
        precision: ``bf16`` lets an engine that can (``openvino``) compute in bfloat16; None is
            float32,
            for modules in half precision too.
        example: An input, or a tuple of the positional arguments, of a usual size: decide now.

    Returns:
        The module. Its submodules, parameters and ``state_dict`` are those of the module.

    Raises:
        NystraError: An argument is wrong, or, with an example, the backend does not work for this
            module.
        BackendUnavailableError: The backend is not installed.
    """
    if precision not in _PRECISIONS:
        raise NystraError(
            f"`precision` is {precision!r:.40}, expected None, fp32 or bf16; files in fp16 and "
            "int8 are made by export_module"
        )
    if backend not in (AUTO, TORCH):
        find_backend(backend)
    wanted = Wanted(_plan(attn), backend, precision)
    made = _described(module, wanted) if _is_descriptor(module) else _plain(module, wanted)
    if example is not None:
        made(*example) if isinstance(example, tuple) else made(example)
    return made


def _plan(attn: str | Mechanism | Plan) -> Plan:
    if isinstance(attn, Plan):
        return attn
    if isinstance(attn, str):
        if attn == AUTO:
            raise NystraError(
                'attn="auto" chooses by a limit for the difference: find the plan with '
                "`nystra-export --attn auto --min-psnr`, and give that plan as attn"
            )
        attn = mechanism(attn)
    if not isinstance(attn, Mechanism):
        raise NystraError(
            f"attn is a {type(attn).__name__}, expected the name of a mechanism, a Mechanism or "
            "a Plan"
        )
    return Plan(default=attn)


def _plain(module: Any, wanted: Wanted) -> Accelerated:
    if not isinstance(module, nn.Module):
        raise NystraError(
            f"got a {type(module).__name__}, expected a torch.nn.Module with its weights or a "
            "descriptor of spandrel"
        )
    return Accelerated(module, wanted)


def _is_descriptor(module: object) -> bool:
    spandrel = sys.modules.get("spandrel")  # there if the object is one of its descriptors
    return spandrel is not None and isinstance(module, spandrel.ModelBase)


class AcceleratedDescriptor(Accelerated):
    """An accelerated network of spandrel, which is called as its descriptor is."""

    def __init__(self, descriptor: Any, wanted: Wanted) -> None:
        super().__init__(descriptor.model, wanted, descriptor._call_fn)
        self.__dict__["_descriptor"] = copy.copy(descriptor)
        self._descriptor._model = self._own

    def forward(self, *images: Tensor) -> Any:
        """Return what the descriptor returns for an image, and its mask if it takes one."""
        described = copy.copy(self._descriptor)
        described._model, described._call_fn = self, Accelerated.forward
        return described(*images)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the network, or else of the descriptor: ``scale``, ``tiling``."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_descriptor" not in self.__dict__:
                raise
            return getattr(self.__dict__["_descriptor"], name)


def _described(descriptor: Any, wanted: Wanted) -> Accelerated:
    return AcceleratedDescriptor(descriptor, wanted)
