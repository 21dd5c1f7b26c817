"""Keys of the libraries that vision transformers come from, renamed to those of nystra.

Facts from public documentation: the state-dict keys of ``torchvision.models.VisionTransformer``
and of ``timm``'s ``VisionTransformer``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ...core.errors import CheckpointError
from ..architecture import State

_FAMILY_HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16}
"""Heads of the published networks by their width: tiny, small, base, large, huge."""


@dataclass(frozen=True)
class Layout:
    """The keys of a library.

    Attributes:
        name: Name of the library.
        patches: The key that identifies it.
        renames: Pattern of a key -> our key; other keys are kept.
        hyper: Hyper-parameters of all its networks.
        heads: Width -> attention heads, if not known otherwise.
    """

    name: str
    patches: str
    renames: Mapping[str, str] = field(default_factory=dict)
    hyper: Mapping[str, Any] = field(default_factory=dict)
    heads: Mapping[int, int] = field(default_factory=dict)

    def canonical(self, state: State) -> dict[str, torch.Tensor]:
        """Return the tensors under our keys.

        Raises:
            CheckpointError: Two tensors claim one key.
        """
        renamed: dict[str, torch.Tensor] = {}
        for key, value in state.items():
            ours = self._rename(key)
            if ours in renamed:
                raise CheckpointError(f"two tensors of the file are {ours}, one of them {key}")
            renamed[ours] = value
        return renamed

    def _rename(self, key: str) -> str:
        for pattern, ours in self.renames.items():
            if match := re.fullmatch(pattern, key):
                return match.expand(ours)
        return key


_EXACT = {"gelu": "none", "norm_epsilon": 1e-6}

OWN = Layout("the study", "embedding.patch_embeddings.projection.weight")

LAYOUTS = (
    OWN,
    Layout(
        "timm",
        "patch_embed.proj.weight",
        {
            "cls_token": "embedding.cls_token",
            "pos_embed": "embedding.position_embeddings",
            r"patch_embed\.proj\.(\w+)": r"embedding.patch_embeddings.projection.\1",
            r"blocks\.(\d+)\.attn\.qkv\.(\w+)": r"encoder.blocks.\1.attention.qkv_projection.\2",
            r"blocks\.(\d+)\.attn\.proj\.(\w+)": (
                r"encoder.blocks.\1.attention.output_projection.\2"
            ),
            r"blocks\.(\d+)\.norm([12])\.(\w+)": r"encoder.blocks.\1.layernorm_\2.\3",
            r"blocks\.(\d+)\.mlp\.fc([12])\.(\w+)": r"encoder.blocks.\1.mlp.dense_\2.\3",
            r"(?:fc_)?norm\.(\w+)": r"layernorm.\1",
            r"head\.(\w+)": r"classifier.\1",
        },
        _EXACT,
        _FAMILY_HEADS,
    ),
    Layout(
        "torchvision",
        "conv_proj.weight",
        {
            "class_token": "embedding.cls_token",
            r"encoder\.pos_embedding": "embedding.position_embeddings",
            r"conv_proj\.(\w+)": r"embedding.patch_embeddings.projection.\1",
            r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.in_proj_(\w+)": (
                r"encoder.blocks.\1.attention.qkv_projection.\2"
            ),
            r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.out_proj\.(\w+)": (
                r"encoder.blocks.\1.attention.output_projection.\2"
            ),
            r"encoder\.layers\.encoder_layer_(\d+)\.ln_([12])\.(\w+)": (
                r"encoder.blocks.\1.layernorm_\2.\3"
            ),
            r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:0|linear_1)\.(\w+)": (
                r"encoder.blocks.\1.mlp.dense_1.\2"
            ),
            r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.(?:3|linear_2)\.(\w+)": (
                r"encoder.blocks.\1.mlp.dense_2.\2"
            ),
            r"encoder\.ln\.(\w+)": r"layernorm.\1",
            r"heads\.head\.(\w+)": r"classifier.\1",
        },
        _EXACT,
        _FAMILY_HEADS,
    ),
)


def layout_of(state: State) -> Layout:
    """Return the layout of a state dict.

    Raises:
        CheckpointError: It has none of the layouts.
    """
    for layout in LAYOUTS:
        if layout.patches in state:
            return layout
    expected = ", ".join(layout.patches for layout in LAYOUTS)
    raise CheckpointError(f"the file has none of {expected}: it is not a vision transformer")


_HEAD = re.compile(r"(.*\.attention)\.heads\.(\d+)\.(query|key|value)\.(weight|bias)")
_HEAD_MATRIX = re.compile(r"(.*\.attention)\.heads\.(\d+)\.(E_[KV])")


def join_heads(state: State) -> tuple[dict[str, torch.Tensor], int | None]:
    """Merge the tensors of networks with one layer per head into those of one layer.

    Returns:
        The tensors, and the number of heads; None if the state dict has no such layers.

    Raises:
        CheckpointError: Some of the heads' tensors are missing, or of other shapes.
    """
    joined = {key: value for key, value in state.items() if ".attention.heads." not in key}
    parts: dict[str, dict[tuple[int, int], torch.Tensor]] = {}
    for key, value in state.items():
        if match := _HEAD.fullmatch(key):
            site, head, role, kind = match.groups()
            place = ("query", "key", "value").index(role), int(head)
            parts.setdefault(f"{site}.qkv_projection.{kind}", {})[place] = value
        elif match := _HEAD_MATRIX.fullmatch(key):
            site, head, name = match.groups()
            parts.setdefault(f"{site}.{name}", {})[0, int(head)] = value
        elif ".attention.heads." in key:
            joined[key] = value  # unknown: refused by its name where the network is filled
    heads = 1 + max((head for part in parts.values() for _, head in part), default=-1)
    for key, part in parts.items():
        roles = 3 if ".qkv_projection." in key else 1
        rows = [part.get((role, head)) for role in range(roles) for head in range(heads)]
        present = [row for row in rows if row is not None]
        if len(present) < len(rows) or len({row.shape for row in present}) != 1:
            raise CheckpointError(
                f"the heads of {key.rpartition('.')[0]} differ: {len(present)} of {len(rows)} "
                f"tensors for {key.rpartition('.')[2]}, shapes "
                f"{sorted({tuple(row.shape) for row in present})}"
            )
        joined[key] = torch.cat(present) if roles == 3 else torch.stack(present)
    return joined, heads or None
