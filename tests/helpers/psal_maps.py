"""Maps, matches and the formulas of PSAL, pixel by pixel."""

import torch
from torch import Tensor


def maps(*shapes: tuple[int, ...], grad: bool = True) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return [array.requires_grad_(grad) for array in tensors]


def field(batch: int, k: int, size: tuple[int, int], keys: int) -> Tensor:
    """Return matches without duplicates in a row."""
    generator = torch.Generator().manual_seed(5)
    order = torch.rand(batch, *size, keys, generator=generator).argsort(-1)
    return order[..., :k].permute(0, 3, 1, 2).to(torch.int32)


def patch(image: Tensor, y: int, x: int, side: int) -> Tensor:
    """Return the patch (C, side, side) around a pixel of (C, H, W), coordinates clamped."""
    r = side // 2
    rows = torch.arange(y - r, y + r + 1).clamp(0, image.shape[1] - 1)
    columns = torch.arange(x - r, x + r + 1).clamp(0, image.shape[2] - 1)
    return image[:, rows][:, :, columns]


def pair(q: Tensor, k: Tensor, metric: str) -> Tensor:
    if metric == "l2":
        return -(q - k).square().sum()
    product = (q * k).sum()
    return product if metric == "dot" else product / (q.norm() * k.norm())


def slow_aggregate(
    index: Tensor, score: Tensor, value: Tensor, side: int, mask: Tensor | None, votes: bool
) -> Tensor:
    """Equation 10 and the overlap-add of votes, pixel by pixel for one image."""
    k, height, width = index.shape
    rows, columns = value.shape[1:]
    r, out = side // 2, torch.zeros(value.shape[0], height, width, dtype=value.dtype)
    for y in range(height):
        for x in range(width):
            weights, taken = [], []
            for a in range(max(0, y - r), min(height, y + r + 1)):
                for b in range(max(0, x - r), min(width, x + r + 1)):
                    here = score[:, a, b].softmax(0) if votes else score[:, a, b].exp()
                    for j in range(k):
                        v = int(index[j, a, b]) // columns - (a - y)
                        u = int(index[j, a, b]) % columns - (b - x)
                        v, u = min(max(v, 0), rows - 1), min(max(u, 0), columns - 1)
                        if mask is None or mask[v, u] > 0:
                            weights.append(here[j])
                            taken.append(value[:, v, u])
            if weights:
                w = torch.stack(weights)
                out[:, y, x] = (torch.stack(taken, 1) * w).sum(1) / w.sum()
    return out
