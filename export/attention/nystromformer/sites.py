"""Mechanism ``nystromformer``: the row-normalized Nystrom form (Xiong et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....models.geometry import TokenGeometry, WindowGeometry
from ....plugins.operators.window_nystromformer.torch_op import window_nystromformer
from ..frame_layout import to_2d, to_3d
from ..implementation import Form, in_form
from ..landmark_tokens import linear_tokens
from .parameters import Nystromformer


@dataclass(frozen=True)
class Windows:
    """Row-normalized Nystrom at a window site; a position bias is dropped."""

    mechanism: Nystromformer
    form: Form

    def __call__(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> Tensor:
        """Return the attention of qkv; shapes as in ``models.sites.WindowSite``."""
        flat = to_2d(qkv, geometry)
        attributes = self.mechanism.attributes(geometry)
        out = in_form(window_nystromformer, self.form)(flat, **attributes)
        return to_3d(out, qkv, geometry)


@dataclass(frozen=True)
class Tokens:
    """Row-normalized Nystrom at a token site, from standard operators and the pseudoinverse."""

    mechanism: Nystromformer
    form: Form

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        geometry: TokenGeometry,
    ) -> Tensor:
        """Return the attention of q, k, v; shapes as in ``models.sites.TokenSite``."""
        return linear_tokens(
            "nystromformer_attention", q, k, v, geometry, self.mechanism, self.form
        )
