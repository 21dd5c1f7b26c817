"""``NystraWindowOverlap`` in torch: a plain function and ``torch.ops.nystra.window_overlap``."""

from __future__ import annotations

from torch import Tensor

from ..operator_torch import register
from ..window_softmax.torch_op import softmax_windows_of
from ..windows_torch import empty_map
from .schema import SCHEMA


def window_overlap(qkv: Tensor, bias_table: Tensor | None = None, **attributes: float) -> Tensor:
    """Return exact attention (B, H, W, h e) to the keys around each window, differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        bias_table: ((wh+kh-1)(ww+kw-1), h), read with ``bias`` 1 only.
        **attributes: Those of the schema.

    Raises:
        NystraError: The schema refuses the attributes, the map is not a multiple of the window, or
            the table is of another window.
    """
    return softmax_windows_of(SCHEMA, qkv, bias_table, attributes)


register(SCHEMA, window_overlap, empty_map(SCHEMA.name))
