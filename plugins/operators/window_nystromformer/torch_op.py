"""``NystraWindowNystromformer`` in torch: plain and as ``torch.ops.nystra``."""

from __future__ import annotations

from torch import Tensor

from ..attention_torch import nystromformer_attention
from ..landmark_windows_torch import landmark_problem
from ..operator_torch import register
from ..window_geometry import WindowGeometry
from ..windows_torch import check_map, empty_map, merge
from .schema import SCHEMA


def window_nystromformer(qkv: Tensor, **attributes: float) -> Tensor:
    """Return the row-normalized Nystrom attention in windows (B, H, W, h e), differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        **attributes: Those of the schema.

    Raises:
        NystraError: The schema refuses the attributes (a cut cell among them), or the map does
            not fit them.
    """
    checked = SCHEMA.validate(attributes)
    geometry = WindowGeometry.of(checked)
    check_map(SCHEMA.name, qkv, geometry)
    out = nystromformer_attention(**landmark_problem(qkv, geometry, checked))
    return merge(out, qkv.shape[1:-1], geometry)


register(SCHEMA, window_nystromformer, empty_map(SCHEMA.name))
