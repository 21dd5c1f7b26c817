"""Self-attention of a vision transformer: one projection to all heads, the site, one back."""

from __future__ import annotations

from torch import Tensor, nn

from ..geometry import TokenGeometry
from ..sites import TokenSite


class Attention(TokenSite):
    """Exact attention, as built; the other attentions of the network are subclasses."""

    def __init__(
        self, width: int, heads: int, grid: tuple[int, int], *, bias: bool, project: bool
    ) -> None:
        """Build the projections.

        Args:
            width: Channels of a token.
            heads: Attention heads, each width / heads channels.
            grid: Rows and columns of the tokens; a class token may come before them.
            bias: Queries, keys and values have one.
            project: The heads' results are mixed by a linear layer.

        Raises:
            ValueError: The heads do not divide the width.
        """
        if width % heads:
            raise ValueError(f"{heads} heads do not divide {width} channels")
        super().__init__(TokenGeometry(grid, grid, (width // heads) ** -0.5))
        self.heads = heads
        self.qkv_projection = nn.Linear(width, 3 * width, bias)
        self.output_projection = nn.Linear(width, width) if project else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of the tokens x (B, N, width), shaped as they are."""
        packed = self.qkv_projection(x).unflatten(-1, (3, self.heads, -1))
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        mixed = self.attend(q, k, v).transpose(1, 2).flatten(2)
        out: Tensor = self.output_projection(mixed)
        return out
