"""``NystraWindowCosine`` in torch: a plain function and ``torch.ops.nystra.window_cosine``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..operator_torch import register
from ..window_softmax.torch_op import softmax_windows_of
from ..windows_torch import empty_map
from .schema import SCHEMA


def window_cosine(
    qkv: Tensor, bias_table: Tensor | None, logit_scale: Tensor, **attributes: float
) -> Tensor:
    """Return exact window attention by cosines, (B, H, W, h e), differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        bias_table: ((2wh-1)(2ww-1), h), read with ``bias`` 1 only.
        logit_scale: (h), the factor of the scores of each head.
        **attributes: Those of the schema.

    Raises:
        NystraError: The schema refuses the attributes, the map is not a multiple of the window, or
            the table is of another window.
    """
    checked = SCHEMA.validate(attributes)
    unit = normalize(qkv, logit_scale, int(checked["head_dim"]), float(checked["epsilon"]))
    return softmax_windows_of(SCHEMA, unit, bias_table, attributes)


def normalize(qkv: Tensor, logit_scale: Tensor, head_dim: int, epsilon: float) -> Tensor:
    """Return qkv with its queries and keys divided by their norms, and its queries scaled.

    Args:
        qkv: (..., h(2d+e)), packed q, k, v and each (head, channel).
        logit_scale: (h), the factors of the queries of each head.
        head_dim: d.
        epsilon: The least norm that is divided by.
    """
    heads = logit_scale.shape[0]
    width = 2 * heads * head_dim
    tokens = qkv[..., :width].unflatten(-1, (2 * heads, head_dim))
    factors = torch.cat((logit_scale, torch.ones_like(logit_scale)))
    unit = F.normalize(tokens, dim=-1, eps=epsilon) * factors[:, None]
    return torch.cat((unit.flatten(-2), qkv[..., width:]), dim=-1)


register(SCHEMA, window_cosine, empty_map(SCHEMA.name))
