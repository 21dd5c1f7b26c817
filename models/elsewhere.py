"""Networks that nystra tells by their keys and has no network for: names for the refusal."""

from __future__ import annotations

ELSEWHERE = {
    "DRCT": ("layers.0.swin1.attn.qkv.weight|layers.0.residual_group.swin1.attn.qkv.weight",),
    "Swin2SR": ("layers.0.residual_group.blocks.0.attn.logit_scale",),
    "DAT": ("before_RG.1.weight", "layers.0.blocks.0.*"),
    "Restormer": ("encoder_level1.0.attn.temperature", "decoder_level1.0.attn.temperature"),
    "RRDBNet (ESRGAN, Real-ESRGAN)": (
        "body.0.rdb1.conv1.weight|RRDB_trunk.0.RDB1.conv1.weight|1.sub.0.RDB1.conv1.0.weight",
    ),
}
"""Name -> patterns of keys, as in the rows of the registry."""
