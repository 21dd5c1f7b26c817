"""Runs foreign code of a network as separate float32 operators, which a tracer can follow.

While it runs, `torch.compile` inside of it compiles nothing, `torch.autocast` changes no type,
flex_attention is two products with a softmax between them, and equal values keep their order.
"""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

# Neither the class of operators that take functions nor the mode in use has a public name.
from torch.overrides import TorchFunctionMode

from ...core.errors import UnsupportedModelError, foreign_reason
from ..torch_internals import HigherOrderOperator, get_proxy_mode, is_observed
from .size_functions import of_free_sizes
from .stable_order import in_stable_order

_COMPILERS = ("torch._dynamo", "torch.nn.attention.flex_attention")
"""Modules without which nothing is compiled: importing them takes a second."""

_QUERIES = ("get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype")
"""Functions that tell a network the type that it is to use."""

_SKIPPED: ContextVar[set[str] | None] = ContextVar("skipped types of autocast", default=None)
"""None in threads that do not run a network plainly: autocast is theirs."""

_ONE_THREAD = threading.RLock()
"""What a plain run changes belongs to the process: two at a time would not restore it."""


@contextmanager
def run_plainly() -> Iterator[set[str]]:
    """Run a network plainly; give the types of the autocasts that were left out, by name."""
    skipped: set[str] = set()
    if torch.compiler.is_dynamo_compiling():  # a benchmark compiles the network as it is
        yield skipped
        return
    with ExitStack() as stack:
        stack.enter_context(_ONE_THREAD)
        before = _SKIPPED.set(skipped)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        if any(name in sys.modules for name in _COMPILERS):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_without_autocast())
        stack.enter_context(_OtherFunctions())
        try:
            yield skipped
        finally:
            _SKIPPED.reset(before)


@contextmanager
def _without_autocast() -> Iterator[None]:
    kind: Any = torch.autocast
    before = {(kind, name): getattr(kind, name) for name in ("__enter__", "__exit__")}
    before |= {(torch, name): getattr(torch, name) for name in _QUERIES if hasattr(torch, name)}
    entered: list[bool] = []

    def enter(autocast: Any) -> Any:
        skipped = _SKIPPED.get()
        if skipped is None:
            return before[kind, "__enter__"](autocast)
        entered.append(bool(autocast._enabled))
        if autocast._enabled:
            skipped.add(str(autocast.fast_dtype).rpartition(".")[2])
        return autocast

    def leave(autocast: Any, *error: Any) -> Any:
        if _SKIPPED.get() is None:
            return before[kind, "__exit__"](autocast, *error)
        if entered:
            entered.pop()
        return None

    def query(real: Callable[..., torch.dtype]) -> Callable[..., torch.dtype]:
        def answer(*device: Any) -> torch.dtype:
            left_out = _SKIPPED.get() is not None and any(entered[-1:])
            return torch.float32 if left_out else real(*device)

        return answer

    kind.__enter__, kind.__exit__ = enter, leave
    for (where, name), real in before.items():
        if where is torch:
            setattr(torch, name, query(real))
    try:
        yield
    finally:
        for (where, name), real in before.items():
            setattr(where, name, real)


class _OtherFunctions(TorchFunctionMode):
    """Computes flex_attention by other operators while operators are recorded or watched.

    Otherwise PyTorch computes it: so a graph is compared with it. Functions that need the value of
    a size are computed by others where it has none, and those that sort are stable.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        is_flex = isinstance(func, HigherOrderOperator) and func.name() == "flex_attention"
        if is_flex and (get_proxy_mode() or is_observed()):
            return _flex_attention(*args, **(kwargs or {}))
        function = of_free_sizes(func, args, kwargs or {})
        return in_stable_order(function)(*args, **(kwargs or {}))


def _flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return attention (B, h, N, e), and the logarithm of its sums and its maxima, to base 2.

    The functions are called once, with all scores and numbers, instead of once a score.

    Args:
        query: (B, h, N, d).
        key: (B or 1, h / g, Nk, d), each head of which g heads of the query share.
        value: (B or 1, h / g, Nk, e).
        score_mod: Changes a score, given the numbers of its batch, head, query and key.
        block_mask: Its last entry tells whether a query sees a key, given the same four numbers.
        scale: Factor of the scores.
    """
    from torch.nn.attention import flex_attention as flex

    shared = query.size(1) // key.size(1)
    if shared > 1:
        key, value = (tensor.repeat_interleave(shared, 1) for tensor in (key, value))
    scores = (query @ key.transpose(-2, -1)) * scale
    numbers = [
        torch.arange(length, device=query.device).reshape(-1, *[1] * (3 - axis))
        for axis, length in enumerate(scores.shape)
    ]
    mask, mask_mod = None, block_mask[-1]
    if score_mod is not flex._identity:
        scores = _of_all(score_mod, (scores, *numbers), scores)
    if mask_mod is not flex.noop_mask:
        mask = _of_all(mask_mod, numbers, scores)
        scores = torch.where(mask, scores, -math.inf)
    out = scores.softmax(-1) @ value
    if mask is not None:  # a query without keys
        out = torch.where(mask.any(-1, keepdim=True), out, 0.0)
    return out, scores.logsumexp(-1) / math.log(2), scores.amax(-1) / math.log(2)


def _of_all(function: Callable[..., Tensor], arguments: Sequence[Tensor], scores: Tensor) -> Tensor:
    try:
        return function(*arguments).expand(scores.shape)
    except Exception as error:  # it is the user's code
        raise UnsupportedModelError(
            "a score_mod or mask_mod of flex_attention cannot be called with all scores at once: "
            f"{foreign_reason(error, 200)}; index a table once, `table[h, q, k]` instead of "
            "`table[h][q, k]`"
        ) from error
