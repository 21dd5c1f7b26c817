"""Small networks whose attention is written in various ways."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def lively(network: nn.Module) -> nn.Module:
    """Set fixed weights with which attention affects the output."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            fan = parameter[0].numel() if parameter.dim() > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=random) * 1.3 / fan**0.5)
    return network.eval().requires_grad_(requires_grad=False)


class Toy(nn.Module):
    """A convolution, projections, attention of them, and a skip: (B, 3, H, W) to (B, dim, H, W)."""

    def __init__(self, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.stem = nn.Conv2d(3, dim, 3, padding=1)
        self.qkv = nn.Conv2d(dim, 3 * dim, 1)
        self.proj = nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        q, k, v = self.qkv(x).chunk(3, 1)
        return x + self.proj(self.attend(q, k, v))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        raise NotImplementedError


def position_bias(table: Tensor, side: int) -> Tensor:
    """Return biases (heads, N, N) of a table (heads, 2 side - 1, 2 side - 1)."""
    place = torch.arange(side)
    offset = place[:, None] - place + side - 1
    bias = table[:, offset[:, None, :, None], offset[None, :, None, :]]
    return bias.flatten(3).flatten(1, 2)


def windows_of(t: Tensor, side: int) -> Tensor:
    """Return (B, rows, columns, N, C) of a map (B, C, H, W)."""
    cut = t.unflatten(3, (-1, side)).unflatten(2, (-1, side))
    return cut.permute(0, 2, 4, 3, 5, 1).flatten(3, 4)


def map_of(t: Tensor, side: int) -> Tensor:
    """Undo `windows_of`."""
    cut = t.unflatten(3, (side, side)).permute(0, 5, 1, 3, 2, 4)
    return cut.flatten(4, 5).flatten(2, 3)


def heads_of(t: Tensor, heads: int) -> Tensor:
    """Return (..., heads, N, d) of tokens (..., N, C)."""
    return t.unflatten(-1, (heads, -1)).transpose(-2, -3)


class EinsumKeysFirst(Toy):
    """Einsum over seven axes, keys before queries, a learned temperature, a bias table."""

    def __init__(self) -> None:
        super().__init__(heads=4)
        self.temperature = nn.Parameter(torch.rand(4, 1, 1))
        self.table = nn.Parameter(torch.randn(4, 7, 7))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, c, h, w = q.shape
        q, k, v = (t.reshape(b, 4, c // 4, h // 4, 4, w // 4, 4) for t in (q, k, v))
        scores = torch.einsum("bhcypxr,bhcymxn->bhyxmnpr", q, k)
        offset = torch.arange(4)[:, None] - torch.arange(4) + 3
        bias = self.table[:, offset][:, :, :, offset].permute(0, 2, 4, 1, 3)
        scores = scores * self.temperature.view(-1, 1, 1, 1, 1, 1, 1) + bias[:, None, None]
        weights = scores.flatten(4, 5).softmax(4).unflatten(4, (4, 4))
        return torch.einsum("bhyxmnpr,bhcymxn->bhcypxr", weights, v).reshape(b, c, h, w)


class RearrangedByHand(Toy):
    """Reshapes and permutes, heads inside windows, biases added as a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, 15, 15))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (heads_of(windows_of(t, 8), 2) for t in (q * 8**-0.5, k, v))
        weights = (q @ k.mT + position_bias(self.table, 8)).softmax(-1)
        return map_of((weights @ v).transpose(-2, -3).flatten(-2), 8)


class ShiftedWithBooleanMask(Toy):
    """scaled_dot_product_attention with a mask of the regions of a cyclic shift, q and k normed."""

    side = 8

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        side, half = self.side, self.side // 2
        region = torch.zeros(1, 1, *q.shape[2:])
        for i, rows in enumerate((slice(0, -side), slice(-side, -half), slice(-half, None))):
            for j, columns in enumerate((slice(0, -side), slice(-side, -half), slice(-half, None))):
                region[:, :, rows, columns] = 3 * i + j
        marks = windows_of(region, side)[..., 0]
        mask = (marks[..., None] == marks[..., None, :])[:, :, :, None]
        q, k, v = (
            heads_of(windows_of(torch.roll(t, (-half, -half), (2, 3)), side), 2) for t in (q, k, v)
        )
        q, k = F.normalize(q, dim=-1) * 4, F.normalize(k, dim=-1)
        shape = q.shape
        q, k, v = (t.flatten(0, 2) for t in (q, k, v))
        mask = mask.expand(shape[0], -1, -1, -1, -1, -1).flatten(0, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        whole = map_of(out.unflatten(0, shape[:3]).transpose(-2, -3).flatten(-2), side)
        return torch.roll(whole, (half, half), (2, 3))


class RolledByCat(Toy):
    """A cyclic shift by slices and cat, without a mask."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def rolled(t: Tensor, by: int) -> Tensor:
            t = torch.cat((t[:, :, by:], t[:, :, :by]), 2)
            return torch.cat((t[..., by:], t[..., :by]), 3)

        q, k, v = (heads_of(windows_of(rolled(t, 2), 4), 2) for t in (q, k, v))
        out = map_of(((q @ k.mT).softmax(-1) @ v).transpose(-2, -3).flatten(-2), 4)
        return rolled(out, -2)


class StridedSlices(Toy):
    """A grid on NCHW: windows of every n-th position, by strided slices."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, columns = q.shape[2] // 4, q.shape[3] // 4
        out = torch.zeros_like(v)
        for i in range(rows):
            for j in range(columns):
                a, b, c = (
                    t[:, :, i::rows, j::columns].flatten(2).unflatten(1, (2, -1)) for t in (q, k, v)
                )
                weights = (a.mT @ b).softmax(-1)
                found = (weights @ c.mT).mT.flatten(1, 2).unflatten(2, (4, 4))
                out[:, :, i::rows, j::columns] = found
        return out


class Grid(Toy):
    """A grid by reshaping: windows of every n-th position."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def cut(t: Tensor) -> Tensor:
            cells = t.unflatten(3, (4, -1)).unflatten(2, (4, -1))
            return heads_of(cells.permute(0, 3, 5, 2, 4, 1).flatten(3, 4), 2)

        q, k, v = (cut(t) for t in (q, k, v))
        out = ((q @ k.mT).softmax(-1) @ v).transpose(-2, -3).flatten(-2)
        return out.unflatten(3, (4, 4)).permute(0, 5, 3, 1, 4, 2).flatten(4, 5).flatten(2, 3)


class MultiheadWindows(Toy):
    """nn.MultiheadAttention on windows, batch in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tokens = windows_of(v, 4)
        flat = tokens.flatten(0, 2).transpose(0, 1)
        out = self.attention(flat, flat, flat)[0].transpose(0, 1)
        return map_of(out.unflatten(0, tokens.shape[:3]), 4)


class SharedWeights(RearrangedByHand):
    """One attention run twice with the same weights."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(2):
            x = x + self.proj(self.attend(*self.qkv(x).chunk(3, 1)))
        return x


class Whole(Toy):
    """All positions of the map."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.flatten(2).unflatten(1, (2, -1)) for t in (q * 0.3, k, v))
        out = ((q.mT @ k).softmax(-1) @ v.mT).mT.flatten(1, 2)
        return out.unflatten(2, (self.rows, -1))

    def forward(self, x: Tensor) -> Tensor:
        self.rows = x.shape[2]
        return super().forward(x)


class ClassTokenBesideWindows(Toy):
    """Every window has a learned token in front of its positions."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 1, 1, 16))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tokens = windows_of(v, 4)
        tokens = torch.cat((self.token.expand(*tokens.shape[:3], -1, -1), tokens), 3)
        heads = heads_of(tokens, 2)
        out = ((heads @ heads.mT).softmax(-1) @ heads).transpose(-2, -3).flatten(-2)
        return map_of(out[..., 1:, :], 4)


class BiasOfPairs(Toy):
    """A bias for each pair of query and key that is not a table of offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(2, 16, 16))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (heads_of(windows_of(t, 4), 2) for t in (q, k, v))
        weights = (q @ k.mT + self.bias).softmax(-1)
        return map_of((weights @ v).transpose(-2, -3).flatten(-2), 4)


class PairsBesideRegions(BiasOfPairs):
    """The same in shifted windows; the scores are reshaped to images and windows for their mask."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        images, _, rows, columns = q.shape
        below, right = torch.arange(rows) >= rows - 2, torch.arange(columns) >= columns - 2
        region = (2.0 * below[:, None] + right)[None, None]
        marks = windows_of(region, 4)[0, ..., 0].flatten(0, 1)
        mask = (marks[:, None] != marks[:, :, None]) * -100.0

        def cut(t: Tensor) -> Tensor:
            rolled = torch.roll(t, (-2, -2), (2, 3))
            return heads_of(windows_of(rolled, 4).flatten(0, 2), 2)

        q, k, v = map(cut, (q * 0.5, k, v))
        scores = (q @ k.mT + self.bias).view(images, -1, 2, 16, 16) + mask[:, None]
        out = (scores.view(-1, 2, 16, 16).softmax(-1) @ v).transpose(1, 2).flatten(2)
        whole = map_of(out.reshape(images, rows // 4, columns // 4, 16, 16), 4)
        return torch.roll(whole, (2, 2), (2, 3))


class OverlappingKeys(Toy):
    """Keys of a window and a margin around it, by unfold, zero beyond the map."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def around(t: Tensor) -> Tensor:
            cells = F.unfold(t, 8, stride=4, padding=2)  # (B, C * 64, windows)
            return cells.unflatten(1, (2, -1, 64)).permute(0, 4, 1, 3, 2)

        q = heads_of(windows_of(q, 4).flatten(1, 2), 2)
        weights = (q @ around(k).mT).softmax(-1)
        out = (weights @ around(v)).transpose(-2, -3).flatten(-2)
        return map_of(out.unflatten(1, (self.rows, -1)), 4)

    def forward(self, x: Tensor) -> Tensor:
        self.rows = x.shape[2] // 4
        return super().forward(x)


class OverlappingPatches(Toy):
    """Patches at steps smaller than their side, merged by the mean of their centers."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def cut(t: Tensor) -> Tensor:
            return F.unfold(t, 4, stride=2).unflatten(1, (2, -1, 16)).permute(0, 4, 1, 3, 2)

        q, k, v = (cut(t) for t in (q, k, v))
        out = ((q @ k.mT).softmax(-1) @ v).permute(0, 2, 4, 3, 1).flatten(1, 3)
        return F.fold(out, self.sides, 4, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        self.sides = (x.shape[2], x.shape[3])
        return super().forward(x)


class Neighbourhood(Toy):
    """Each position attends to the 3x3 positions around it, by unfold."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        b, c, h, w = q.shape
        k, v = (F.unfold(t, 3, padding=1).view(b, 2, c // 2, 9, h * w) for t in (k, v))
        q = q.reshape(b, 2, c // 2, h * w)
        weights = torch.einsum("bhcn,bhckn->bhnk", q, k).softmax(-1)
        return torch.einsum("bhnk,bhckn->bhcn", weights, v).reshape(b, c, h, w)


class Elementwise(Toy):
    """(q * k).sum() over shifted copies: no matrix product."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (torch.stack([torch.roll(t, i, 2) for i in (-1, 0, 1)], 1) for t in (k, v))
        weights = (q[:, None] * k).sum(2, keepdim=True).softmax(1)
        return (weights * v).sum(1)


class ConstantKeys(Toy):
    """Keys and values that are learned and do not depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(12, 16))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (windows_of(q, 4) @ self.keys.T).softmax(-1)
        return map_of(weights @ self.keys, 4)


class ConstantQueries(Toy):
    """Learned queries, one for each position of a window."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(16, 16))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = windows_of(k, 4), windows_of(v, 4)
        return map_of((self.queries @ k.mT).softmax(-1) @ v, 4)


class LinearAttention(Toy):
    """Softmaxes of features, queries times a product of keys and values: no attention weights."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Parameter(torch.randn(16, 16))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (windows_of(t, 4) @ self.features for t in (q, k, v))
        return map_of(q.softmax(-1) @ (k.softmax(-2).mT @ v), 4)


class Router(Toy):
    """Three maps weighed by a softmax of a linear layer of their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.choose = nn.Linear(16, 3, bias=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = self.choose((q + k).mean((2, 3))).softmax(-1)
        return (torch.stack((q, k, v), 1) * weights[:, :, None, None, None]).sum(1)


class Padded(Toy):
    """Queries, keys and values of one layer, padded together to multiples of the window's side."""

    def __init__(self, mode: str = "constant", value: float | None = None) -> None:
        super().__init__()
        self.qkv, self.mode, self.value = nn.Linear(16, 48), mode, value

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        batch, dim, rows, columns = x.shape
        packed = self.qkv(x.flatten(2).mT).unflatten(2, (3, dim)).permute(2, 0, 1, 3)
        packed = packed.reshape(3 * batch, rows, columns, dim).permute(0, 3, 1, 2)
        amounts = (0, -columns % 8, 0, -rows % 8)
        packed = F.pad(packed, amounts, self.mode, self.value)
        q, k, v = (heads_of(windows_of(t, 8), 2) for t in packed.unflatten(0, (3, batch)).unbind())
        out = F.scaled_dot_product_attention(*(t.flatten(0, 2) for t in (q, k, v)))
        out = map_of(out.reshape(q.shape).transpose(-2, -3).flatten(-2), 8)
        return x + self.proj(out[:, :, :rows, :columns])


class Channels(Toy):
    """Channels attend to channels."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.flatten(2).unflatten(1, (2, -1)) for t in (q, k, v))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        out = (q @ k.mT).softmax(-1) @ v
        return out.flatten(1, 2).unflatten(2, (self.rows, -1))

    def forward(self, x: Tensor) -> Tensor:
        self.rows = x.shape[2]
        return super().forward(x)


class ClassToken(nn.Module):
    """Tokens of patches behind a class token, a learned position each: one size only."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, dim))
        self.position = nn.Parameter(torch.randn(1, 49, dim))
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        t = self.patch(x).flatten(2).mT[:, :48]
        t = torch.cat((self.token.expand(len(t), -1, -1), t), 1) + self.position
        return t + self.attention(t, t, t, need_weights=False)[0]
