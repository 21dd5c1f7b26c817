"""Mechanism ``nystra``: the kernel Nystrom of PnP-Nystra, equations 2-7 and algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....models.geometry import TokenGeometry, WindowGeometry
from ....plugins.operators.window_nystrom.torch_op import window_nystrom, window_nystrom_terms
from ..frame_layout import to_2d, to_3d
from ..implementation import Form, in_form
from ..landmark_tokens import linear_tokens
from .parameters import Nystra


@dataclass(frozen=True)
class Windows:
    """Kernel Nystrom at a window site; a position bias is dropped."""

    mechanism: Nystra
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
        out = in_form(window_nystrom, self.form)(flat, **attributes)
        return to_3d(out, qkv, geometry)

    def with_share(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> tuple[Tensor, float]:
        """Return the attention of qkv, and the share of (token, head) pairs that the guard changes.

        Always in plain PyTorch: no operator returns both.
        """
        flat = to_2d(qkv, geometry)
        out, share = window_nystrom_terms(flat, **self.mechanism.attributes(geometry))
        kept = (share < 1).double().mean()
        return to_3d(out, qkv, geometry), float(kept)


@dataclass(frozen=True)
class Tokens:
    """Kernel Nystrom at a token site, from standard operators and the pseudoinverse."""

    mechanism: Nystra
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
        mechanism = self.mechanism
        more = {"threshold": mechanism.threshold, "guard": mechanism.guard}
        return linear_tokens("nystrom_attention", q, k, v, geometry, mechanism, self.form, **more)
