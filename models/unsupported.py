"""Networks that are recognized by their keys but not supported: names for the error."""

from __future__ import annotations

UNSUPPORTED = {
    "DRCT": ("layers.0.swin1.attn.qkv.weight|layers.0.residual_group.swin1.attn.qkv.weight",),
    "Swin2SR": ("layers.0.residual_group.blocks.0.attn.logit_scale",),
    "DAT": ("before_RG.1.weight", "layers.0.blocks.0.*"),
    "Restormer": ("encoder_level1.0.attn.temperature", "decoder_level1.0.attn.temperature"),
    "SRFormer": (
        "layers.0.residual_group.blocks.0.attn.q.weight",
        "layers.0.residual_group.blocks.0.attn.kv.weight",
    ),
    "SCUNet": ("m_body.0.trans_block.msa.relative_position_params",),
    "GRL": ("layers.0.blocks.0.attn.window_attn.attn_transform.logit_scale",),
    "NAFNet": ("intro.weight", "ending.weight"),
    "SPAN": ("block_1.c1_r.*", "conv_cat.weight"),
    "RRDBNet (ESRGAN, Real-ESRGAN)": (
        "body.0.rdb1.conv1.weight|RRDB_trunk.0.RDB1.conv1.weight|*1.sub.0.RDB1.conv1.0.weight",
    ),
}
"""Name -> patterns of its keys, as in the rows of the registry."""
