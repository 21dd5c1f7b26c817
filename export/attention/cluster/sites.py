"""Mechanism ``cluster``: clustered keys, and exact attention in the query's own block."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....models.geometry import TokenGeometry, WindowGeometry
from ....plugins.operators.window_cluster.torch_op import window_cluster
from ....plugins.operators.window_covariance.torch_op import window_covariance
from ..implementation import Form, in_form, table_of
from .free_tokens import attend_free
from .parameters import Cluster
from .tokens import attend_tokens


@dataclass(frozen=True)
class Windows:
    """Clustered keys at a window site; interface of ``models.sites.WindowSite``."""

    mechanism: Cluster
    form: Form

    def __call__(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> Tensor:
        """Return the attention of qkv."""
        table = table_of(qkv, bias_table)
        attributes = self.mechanism.attributes(geometry, bias_table is not None)
        operator = window_cluster
        if self.mechanism.order:
            operator = window_covariance
        return in_form(operator, self.form)(qkv, table, **attributes)


@dataclass(frozen=True)
class Tokens:
    """Clustered keys at a token site, from standard operators."""

    mechanism: Cluster
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
        if geometry.before is not None:
            return attend_free(q, k, v, geometry, self.mechanism)
        return attend_tokens(q, k, v, bias, geometry, self.mechanism)
