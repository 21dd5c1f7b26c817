"""The text of the script that VapourSynth runs."""

from __future__ import annotations

from ..host_model import HostModel
from .options import VapourSynthOptions

_SCRIPT = '''"""Images {scale} times as large in VapourSynth, by the plug-in vapoursynth-mlrt-ort.

    pip install vapoursynth vapoursynth-mlrt-ort vapoursynth-bestsource    # Python 3.12
    vspipe -c y4m -a source=in.mkv {name}.vpy out.y4m

A script of your own takes restore() from here: it makes an {format} clip {scale} times as large.
"""

import os
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when the plug-in loads onnxruntime
import vapoursynth as vs  # noqa: E402

core = vs.core
MODEL = Path(__file__).resolve().with_name("model.onnx")
TILE = {tile}  # side of a tile in pixels, both margins included; 0: whole frames
MARGIN = {margin}  # pixels that are computed on each side of a tile and cut off
STREAMS = {streams}  # frames that are computed at the same time


def restore(clip):
    """Return the clip {scale} times as large; takes and gives values in 0..1."""
    if clip.format.id != vs.{format}:
        raise vs.Error(f"the model takes vs.{format}, got {{clip.format.name}}: use core.resize")
    sides = [min(TILE, side) if TILE else side for side in (clip.width, clip.height)]
    margins = [
        MARGIN if tile < side else 0
        for tile, side in zip(sides, (clip.width, clip.height), strict=True)
    ]
    clip = core.std.Expr(clip, "{before}")
    clip = core.ort.Model([clip], str(MODEL), margins, sides, num_streams=STREAMS)
    return core.std.Expr(clip, "{after} 0 max 1 min")


{any_format}

if "source" in globals():  # vspipe -a source=FILE
    restore_any(core.bs.VideoSource(source)).set_output()  # noqa: F821
'''


_COLOR = '''def matrix_of(clip):
    """Return the color matrix of the first frame, or the usual one of its size."""
    named = clip.get_frame(0).props.get("_Matrix", vs.MATRIX_UNSPECIFIED)
    if named not in (vs.MATRIX_UNSPECIFIED, vs.MATRIX_RGB):
        return named
    return vs.MATRIX_BT709 if clip.height > 576 else vs.MATRIX_ST170_M


def restore_any(clip):
    """Return a clip of any format {scale} times as large, in its own format."""
    if clip.format.color_family == vs.RGB:
        large = restore(core.resize.Bicubic(clip, format=vs.RGBS))
        return core.resize.Bicubic(large, format=clip.format.id, dither_type="error_diffusion")
    matrix = matrix_of(clip)
    large = restore(core.resize.Bicubic(clip, format=vs.RGBS, matrix_in=matrix))
    return core.resize.Bicubic(
        large, format=clip.format.id, matrix=matrix, dither_type="error_diffusion"
    )
'''

_GRAY = '''def restore_any(clip):
    """Return a gray or YUV clip {scale} times as large; its colors are upscaled by a spline."""
    if clip.format.color_family == vs.RGB:
        raise vs.Error("the model is for luma: use a gray or a YUV clip")
    luma = core.std.ShufflePlanes(clip, 0, vs.GRAY)
    large = restore(core.resize.Bicubic(luma, format=vs.GRAYS))
    large = core.resize.Bicubic(large, format=luma.format.id, dither_type="error_diffusion")
    if clip.format.color_family == vs.GRAY:
        return large
    colors = core.resize.Spline36(clip, large.width, large.height)
    return core.std.ShufflePlanes([large, colors], [0, 1, 2], vs.YUV)
'''


def script(name: str, model: HostModel, options: VapourSynthOptions) -> str:
    """Return the script of a model.

    Args:
        name: Name of the script, without its suffix, as `check_model_name` accepts it.
        model: The model; the image it gives has as many channels as the one it takes.
        options: How it is run.
    """
    color = model.channels[0] == 3
    (low, high), (dark, bright) = model.ranges
    return _SCRIPT.format(
        name=name,
        scale=model.scale,
        format="RGBS" if color else "GRAYS",
        tile=options.tile,
        margin=options.margin,
        streams=options.streams,
        before=f"x {high - low:g} * {low:g} +",
        after=f"x {dark:g} - {bright - dark:g} /",
        any_format=(_COLOR if color else _GRAY).format(scale=model.scale),
    )
