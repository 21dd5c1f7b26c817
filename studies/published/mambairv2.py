"""MambaIRv2-light (Guo et al., "MambaIRv2: Attentive State Space Restoration"), from its published
weights, with its window attentions as sites.

A layer attends in shifted windows, then scans all pixels in the order of the prompt that each of
them has. ``python -m studies.published`` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite

CHANNELS, HEADS, WINDOW, GROUPS, LAYERS = 48, 4, 16, 4, 5
STATES, RANK, INNER, PROMPTS = 8, 3, 32, 64
MEAN = (0.4488, 0.4371, 0.4040)


class WindowAttention(WindowSite):
    """Attention in windows with a position bias."""

    def __init__(self, shift: int) -> None:
        head = CHANNELS // HEADS
        window, shifts = (WINDOW, WINDOW), (shift, shift)
        super().__init__(
            WindowGeometry(HEADS, head, head, window, shifts, masked=True, scale=head**-0.5)
        )
        table = torch.zeros((2 * WINDOW - 1) ** 2, HEADS)
        self.relative_position_bias_table = nn.Parameter(table)
        self.proj = nn.Linear(CHANNELS, CHANNELS)


class SpatialGate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS // 2)
        self.conv = nn.Conv2d(CHANNELS // 2, CHANNELS // 2, 5, padding=2, groups=CHANNELS // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return one half of the channels of (B, H, W, C), multiplied by the other one."""
        half, gate = x.chunk(2, -1)
        return half * _over_map(self.conv, self.norm(gate))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(CHANNELS, CHANNELS)
        self.sg = SpatialGate()
        self.fc2 = nn.Linear(CHANNELS // 2, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.sg(F.gelu(self.fc1(x))))
        return out


class SelectiveScan(nn.Module):
    """The scan of Mamba (Gu & Dao 2023, algorithm 2), with prompts added to C."""

    def __init__(self) -> None:
        super().__init__()
        self.x_proj_weight = nn.Parameter(torch.zeros(1, RANK + 2 * STATES, CHANNELS))
        self.dt_projs_weight = nn.Parameter(torch.zeros(1, CHANNELS, RANK))
        self.dt_projs_bias = nn.Parameter(torch.zeros(1, CHANNELS))
        self.A_logs = nn.Parameter(torch.zeros(CHANNELS, STATES))
        self.Ds = nn.Parameter(torch.zeros(CHANNELS))

    def forward(self, x: Tensor, prompts: Tensor) -> Tensor:
        """Return the scan (N, C) of tokens (N, C) and their prompts (N, states)."""
        steps, inputs, outputs = (x @ self.x_proj_weight[0].T).split((RANK, STATES, STATES), -1)
        steps = F.softplus(steps @ self.dt_projs_weight[0].T + self.dt_projs_bias)
        decays = (steps.unsqueeze(-1) * -self.A_logs.exp()).exp()
        states = _scan(decays, (steps * x).unsqueeze(-1) * inputs.unsqueeze(1))
        return (states @ (outputs + prompts).unsqueeze(-1)).squeeze(-1) + self.Ds * x


def _scan(decays: Tensor, added: Tensor) -> Tensor:
    """Return h (N, C, states) with h[n] = decays[n] h[n - 1] + added[n].

    Pieces of about the root of N tokens are scanned together, then one after the other.
    """
    length = len(decays)
    piece = max(int(length**0.5), 1)
    rest = -length % piece
    decays = F.pad(decays, (0, 0, 0, 0, 0, rest)).unflatten(0, (-1, piece)).clone()
    states = F.pad(added, (0, 0, 0, 0, 0, rest)).unflatten(0, (-1, piece)).clone()
    for place in range(1, piece):
        states[:, place] += decays[:, place] * states[:, place - 1]
        decays[:, place] *= decays[:, place - 1]
    for number in range(1, len(states)):
        states[number] += decays[number] * states[number - 1, -1]
    return states.flatten(0, 1)[:length]


class AttentiveStates(nn.Module):
    """The scan of all pixels, sorted by the prompt that each of them is routed to."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 1))
        self.CPE = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS))
        self.embeddingB = nn.Embedding(PROMPTS, INNER)
        self.route = nn.Sequential(
            nn.Linear(CHANNELS, CHANNELS // 3), nn.GELU(), nn.Linear(CHANNELS // 3, PROMPTS)
        )
        self.selectiveScan = SelectiveScan()
        self.out_norm = nn.LayerNorm(CHANNELS)
        self.out_proj = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Tensor, basis: Tensor) -> Tensor:
        """Return the scan of a map (1, H, W, C); the basis of prompts is (rank, states)."""
        choice = self.route(x).flatten(0, 2).argmax(-1)
        prompts = (self.embeddingB.weight @ basis)[choice]
        projected = _over_map(self.in_proj, x)
        projected = projected * _over_map(self.CPE, projected).sigmoid()
        order = choice.argsort(stable=True)
        scanned = self.selectiveScan(projected.flatten(0, 2)[order], prompts)
        out = torch.empty_like(scanned)
        out[order] = self.out_proj(self.out_norm(scanned))
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, shift: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.LayerNorm(CHANNELS) for _ in range(4))
        self.scale1 = nn.Parameter(torch.zeros(CHANNELS))
        self.scale2 = nn.Parameter(torch.zeros(CHANNELS))
        self.wqkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.win_mhsa = WindowAttention(shift)
        self.assm = AttentiveStates()
        self.convffn1 = FeedForward()
        self.convffn2 = FeedForward()
        self.embeddingA = nn.Embedding(INNER, STATES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map (1, H, W, C)."""
        attended = self.win_mhsa.attend(self.wqkv(self.norm1(x)))
        own = x + self.win_mhsa.proj(attended)
        own = own + self.convffn1(self.norm2(own))
        x = self.scale1 * x + own
        own = x + self.assm(self.norm3(x), self.embeddingA.weight)
        own = own + self.convffn2(self.norm4(own))
        out: Tensor = self.scale2 * x + own
        return out


class Group(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.residual_group = nn.Module()
        self.residual_group.layers = nn.ModuleList(
            Layer(number % 2 * WINDOW // 2) for number in range(LAYERS)
        )
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the map (1, H, W, C)."""
        done = x
        for layer in self.residual_group.layers:  # type: ignore[union-attr]
            done = layer(done)
        return x + _over_map(self.conv, done)


class MambaIRv2(nn.Module):
    """MambaIRv2-light for one image at a time."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.conv_first = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.patch_embed = nn.Module()
        self.patch_embed.norm = nn.LayerNorm(CHANNELS)
        self.layers = nn.ModuleList(Group() for _ in range(GROUPS))
        self.norm = nn.LayerNorm(CHANNELS)
        self.conv_after_body = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.upsample = nn.Sequential(
            nn.Conv2d(CHANNELS, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale)
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the enlarged image (1, 3, scale H, scale W)."""
        mean = image.new_tensor(MEAN).view(3, 1, 1)
        height, width = image.shape[2:]
        features = self.conv_first(_mirrored(image - mean))
        x = self.patch_embed.norm(features.permute(0, 2, 3, 1))
        for group in self.layers:
            x = group(x)
        features = features + self.conv_after_body(self.norm(x).permute(0, 3, 1, 2))
        out: Tensor = self.upsample(features) + mean
        return out[:, :, : self.scale * height, : self.scale * width]


def _over_map(layer: nn.Module, x: Tensor) -> Tensor:
    """Return a layer of (B, C, H, W) applied to (B, H, W, C)."""
    out: Tensor = layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    return out


def _mirrored(image: Tensor) -> Tensor:
    """Return the image extended by its mirror image to a multiple of the window."""
    for axis in (2, 3):
        beyond = -image.shape[axis] % WINDOW
        image = torch.cat([image, image.flip(axis).narrow(axis, 0, beyond)], axis)
    return image


def build(state: Mapping[str, Tensor]) -> MambaIRv2:
    """Return the network of published weights."""
    network = MambaIRv2(math.isqrt(len(state["upsample.0.weight"]) // 3))
    network.load_state_dict(
        {key: value for key, value in state.items() if key != "relative_position_index_SA"}
    )
    return network
