"""``NystraWindowNystrom`` in torch: a plain function and ``torch.ops.nystra.window_nystrom``."""

from __future__ import annotations

from torch import Tensor

from ..attention_torch import nystrom_terms
from ..landmark_windows_torch import landmark_problem
from ..operator_torch import register
from ..window_geometry import WindowGeometry
from ..windows_torch import check_map, empty_map, merge
from .schema import SCHEMA


def window_nystrom_terms(qkv: Tensor, **attributes: float) -> tuple[Tensor, Tensor]:
    """Return the kernel Nystrom attention (B, H, W, h e) and t (B, H, W, h), differentiable.

    Args:
        qkv: (B, H, W, h(2d+e)), packed q, k, v and each (head, channel).
        **attributes: Those of the schema.

    Returns:
        The attention, and t: the share of the Nystrom form in a token's result, 1 if the guard did
        not change it.

    Raises:
        NystraError: The schema refuses the attributes (a cut cell among them), or the map does
            not fit them.
    """
    checked = SCHEMA.validate(attributes)
    geometry = WindowGeometry.of(checked)
    check_map(SCHEMA.name, qkv, geometry)
    out, t = nystrom_terms(
        **landmark_problem(qkv, geometry, checked),
        threshold=checked["threshold"],
        guard=checked["guard"],
    )
    sides = qkv.shape[1:-1]
    return merge(out, sides, geometry), merge(t.unsqueeze(-1), sides, geometry)


def window_nystrom(qkv: Tensor, **attributes: float) -> Tensor:
    """Return the kernel Nystrom attention in windows (B, H, W, h e), differentiable.

    Attributes and errors as in :func:`window_nystrom_terms`.
    """
    return window_nystrom_terms(qkv, **attributes)[0]


register(SCHEMA, window_nystrom, empty_map(SCHEMA.name))
