"""Transformers as other libraries write them are exported with every mechanism."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.vision_transformer import VisionTransformer

from later import full, release
from nystra.export import ExportOptions, Plan, export_module, mechanism
from studies.tokens.restorer import Conditional

SIDE, WIDTH, HEADS = 32, 32, 2


class Mlp(nn.Sequential):
    """Two linear layers with an activation."""

    def __init__(self, activation: Callable[[], nn.Module] = nn.GELU) -> None:
        super().__init__(nn.Linear(WIDTH, 2 * WIDTH), activation(), nn.Linear(2 * WIDTH, WIDTH))


class QuickGelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class ClipBlock(nn.Module):
    """Attention by nn.MultiheadAttention with the tokens first."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = Mlp(QuickGelu)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        z: Tensor = x + self.mlp(self.ln_2(x))
        return z


class Clip(nn.Module):
    """The image tower of CLIP: a class token, a norm before the blocks, a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, 8, 8, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(WIDTH))
        self.positional_embedding = nn.Parameter(torch.randn(17, WIDTH))
        self.ln_pre, self.ln_post = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(ClipBlock(), ClipBlock())
        self.proj = nn.Parameter(torch.randn(WIDTH, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(x).flatten(2).permute(0, 2, 1)
        first = self.class_embedding + torch.zeros(y.shape[0], 1, WIDTH)
        y = self.ln_pre(torch.cat([first, y], 1) + self.positional_embedding)
        y = self.blocks(y.permute(1, 0, 2)).permute(1, 0, 2)
        z: Tensor = self.ln_post(y[:, 0]) @ self.proj
        return z


class SeparateBlock(nn.Module):
    """Attention of transformers' ViT: separate projections, a softmax, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.dense, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)
        self.before, self.after, self.mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Mlp()

    def heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (self.heads(layer(y)) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
        context = torch.matmul(self.dropout(F.softmax(scores, dim=-1)), v)
        context = context.permute(0, 2, 1, 3).contiguous().view(*x.shape)
        x = self.dense(context) + x
        z: Tensor = x + self.mlp(self.after(x))
        return z


class Separate(nn.Module):
    """A classifier with a class token and two register tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, 8, 8)
        self.tokens = nn.Parameter(torch.randn(1, 3, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 16, WIDTH))
        self.blocks, self.head = nn.Sequential(*(SeparateBlock() for _ in range(2))), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x).flatten(2).transpose(1, 2) + self.places
        y = self.blocks(torch.cat([self.tokens.expand(y.shape[0], -1, -1), y], 1))
        z: Tensor = self.head(y[:, 0])
        return z


class Ipt(nn.Module):
    """An image processing transformer: patches of features, encoder layers, folded back."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 3, 3, 1, 1)
        self.places = nn.Parameter(torch.randn(64, 1, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 64, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(x)
        patches = F.unfold(y, 4, stride=4).permute(2, 0, 1)
        patches = self.encoder(patches + self.places) + patches
        z: Tensor = self.tail(F.fold(patches.permute(1, 2, 0), (SIDE, SIDE), 4, stride=4) + y)
        return z


def torchvision_vit() -> nn.Module:
    """Return torchvision's vision transformer with two small layers."""
    return VisionTransformer(SIDE, 8, 2, HEADS, WIDTH, 2 * WIDTH, num_classes=8)


def dit() -> nn.Module:
    """Return a diffusion transformer with adaLN, rotary positions and qk-norm."""
    return Conditional(blocks=2)


TOWERS = {
    "torchvision": torchvision_vit,
    "CLIP": Clip,
    "transformers": Separate,
    "IPT": Ipt,
    "DiT": dit,
}


@pytest.mark.parametrize(
    ("tower", "name"),
    [
        *full(("torchvision", "full"), ("IPT", "nystra"), ("transformers", "full")),
        *release(
            ("torchvision", "cluster"), ("transformers", "nystra"), ("transformers", "cluster")
        ),
        *release(("transformers", "nystra"), ("transformers", "cluster")),
        *release(("DiT", "cluster")),  # its other tokens of any number: test_conditions_export
    ],
)
def test_attention_of_every_layer_is_replaced(tower: str, name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = TOWERS[tower]().eval()
    static = None if tower == "DiT" else (2, 3, SIDE, SIDE)
    options = ExportOptions(Plan(mechanism(name)), static=static, speed=False)
    result = export_module(network, tmp_path / "tower.onnx", options)
    assert result.validation.passed
    assert [chosen.name for chosen in result.source.resolved.values()] == [name, name]
