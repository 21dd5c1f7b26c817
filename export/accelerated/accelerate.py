"""`accelerate`: a module in, a faster module with the same call out."""

from __future__ import annotations

import copy
import sys
from typing import Any

from torch import Tensor, nn

from ...core.errors import NystraError
from ...models.sizes.borders import Sides
from ...models.sizes.padded_network import PaddedNetwork
from ...models.spandrel.network import TraceableCall, ports_of
from ...runtime.backends import find_backend
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.registry import mechanism
from .frozen import Accelerated
from .problem import AUTO, Request

_PRECISIONS = (None, "fp32", "bf16")


def accelerate(
    module: nn.Module | Any,
    attn: str | Mechanism | Plan = "full",
    backend: str = AUTO,
    precision: str | None = None,
    example: Tensor | tuple[Any, ...] | None = None,
) -> Accelerated:
    """Return a module with the same call that computes the same, faster.

    The result is frozen: it computes the weights and settings that the module has now, by a model
    file in a session, and nothing of the module is watched later; `Accelerated.refresh` takes
    another state. The file is exported and validated once and kept in a cache: at the first call,
    or here if there is an example. ``.report`` then says what was gained, and that the result was
    compared with that of the module.

    Images of any size and batch that the module takes are taken. What the file does not take
    (arguments of another kind or value, a size that it does not have, a module that reads values of
    its input) a frozen copy of the module computes, with one warning. Everything is computed in
    evaluation mode and without gradients.

    Args:
        module: A module of images: float tensors (B, C, H, W) or (B, T, C, H, W) in, and out
            images of a whole scale or logits (B, K), alone or in tuples, lists and dictionaries.
            Or a descriptor of spandrel, ``ModelLoader().load_from_file(...)``, whose own call
            (padding, cropping, values in 0..1) the result has. It is not modified; it is copied.
        attn: The mechanism of its attention: ``full`` for the same result, ``cluster`` or another
            one for linear attention, with parameters as a `Mechanism` or a `Plan`.
        backend: The name of a backend, or ``auto``: the fastest of ``ort-cpu``, ``openvino`` and
            the copy of the module, measured in interleaved calls. For tensors on other devices than
            the CPU ``auto`` takes the copy.
        precision: ``bf16`` lets an engine that can (``openvino``) compute in bfloat16; None is
            float32, for modules in half precision too.
        example: An input, or a tuple of the positional arguments, of a usual size: decide now.

    Returns:
        The module, which has no parameters and no submodules.

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
    if backend != AUTO:
        find_backend(backend)
    request = Request(_plan(attn), backend, precision)
    kind = AcceleratedDescriptor if _is_descriptor(module) else Accelerated
    fast = kind(module, request)
    if example is not None:
        fast(*example) if isinstance(example, tuple) else fast(example)
    return fast


def _plan(attn: str | Mechanism | Plan) -> Plan:
    if isinstance(attn, Plan):
        return attn
    if attn == AUTO:
        raise NystraError(
            'attn="auto" chooses by a limit for the difference: find the plan with '
            "`nystra-export --attn auto --min-psnr`, and give that plan as attn"
        )
    if isinstance(attn, str):
        attn = mechanism(attn)
    if not isinstance(attn, Mechanism):
        raise NystraError(
            f"attn is a {type(attn).__name__}, expected the name of a mechanism, a Mechanism or "
            "a Plan"
        )
    return Plan(default=attn)


def _is_descriptor(module: object) -> bool:
    spandrel = sys.modules.get("spandrel")  # there if the object is one of its descriptors
    return spandrel is not None and isinstance(module, spandrel.ModelBase)


class AcceleratedDescriptor(Accelerated):
    """An accelerated network of spandrel, which is called as its descriptor is."""

    def __init__(self, descriptor: Any, request: Request) -> None:
        if not _is_descriptor(descriptor):
            raise NystraError(f"got a {type(descriptor).__name__}, expected a descriptor")
        call = TraceableCall(descriptor._call_fn)
        _, outputs = ports_of(descriptor)
        padded = PaddedNetwork(descriptor.model, Sides(), outputs, call)
        super().__init__(padded, request)
        facts = copy.copy(descriptor)
        facts._model = None
        self._frozen.descriptor = copy.deepcopy(facts)

    def forward(self, *images: Tensor) -> Any:
        """Return what the descriptor returned for an image, and its mask if it takes one."""
        descriptor = copy.copy(self._frozen.descriptor)
        descriptor._model, descriptor._call_fn = self, Accelerated.forward
        return descriptor(*images)

    def __getattr__(self, name: str) -> Any:
        """Return a fact of the descriptor: ``scale``, ``tiling``."""
        fact = getattr(self._frozen.descriptor, name, None)
        return super().__getattr__(name) if fact is None or callable(fact) else fact
