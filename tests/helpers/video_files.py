"""Small videos, and small networks on frames, for the tests of videos."""

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata

TICKS = Fraction(1, 90000)


def scene(index: int, height: int = 24, width: int = 32, peak: int = 255) -> np.ndarray:
    """Return a frame (H, W, 3) of integers: smooth, moving, and different for each number."""
    rows, columns = np.mgrid[:height, :width]
    planes = [
        (np.sin((rows + index) / 9) + 1) / 2,
        (np.cos((columns - 2 * index) / 11) + 1) / 2,
        np.full((height, width), 0.1 + index % 16 / 20),
    ]
    return np.rint(np.stack(planes, 2) * peak).astype(np.uint16)


def save_video(
    path: Path,
    times: Sequence[int],
    *,
    pixel_format: str = "yuv420p",
    codec: str = "libx264",
    size: tuple[int, int] = (24, 32),
    sound: bool = False,
    audio_codec: str = "aac",
    tags: tuple[int, int] = (1, 1),
    light: tuple[int, int] = (1, 1),
    turned: int = 0,
    aspect: Fraction = Fraction(1),
    options: dict[str, str] | None = None,
) -> Path:
    """Write `scene` after `scene`, nearly without loss.

    Args:
        path: The file.
        times: When each frame is shown, in `TICKS`.
        pixel_format: FFmpeg's name.
        codec: FFmpeg's name.
        size: Height and width.
        sound: Add a second stream.
        audio_codec: Its codec.
        tags: Numbers of the matrix and of the range (1 limited, 2 full).
        light: Numbers of the primaries and of the transfer.
        turned: Degrees by which players turn it to the left.
        aspect: Width over height of a pixel.
        options: Options of the container.
    """
    import av

    rate = Fraction(len(times) - 1, max(times[-1] - times[0], 1)) / TICKS or Fraction(25)
    with av.open(str(path), "w", options=options or {}) as container:
        quality = {"crf": "2", "x265-params": "log-level=none"}
        stream = container.add_stream(codec, rate=rate.limit_denominator(1001), options=quality)
        (stream.height, stream.width), stream.pix_fmt = size, pixel_format
        stream.time_base = stream.codec_context.time_base = TICKS
        stream.codec_context.colorspace, stream.codec_context.color_range = tags
        stream.codec_context.color_primaries, stream.codec_context.color_trc = light
        stream.codec_context.sample_aspect_ratio = aspect
        if turned:
            stream.set_display_rotation(turned)
        audio = container.add_stream(audio_codec, rate=8000, layout="mono") if sound else None
        for index, time in enumerate(times):
            container.mux(stream.encode(_frame(index, time, size, pixel_format, tags)))
        container.mux(stream.encode(None))
        for start in range(0, 8000 * len(times) // 25, 1024) if audio else ():
            tone = np.rint(np.sin(np.arange(start, start + 1024) / 9) * 9999).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(tone[None], format="s16", layout="mono")
            frame.rate, frame.pts = 8000, start
            container.mux(audio.encode(frame))
        if audio:
            container.mux(audio.encode(None))
    return path


def _frame(
    index: int, time: int, size: tuple[int, int], pixel_format: str, tags: tuple[int, int]
) -> Any:
    import av

    pixels = scene(index, *size, peak=255 << 8)  # white, as swscale has it
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb48le")
    frame = frame.reformat(
        format=pixel_format, dst_colorspace=tags[0], dst_color_range=tags[1], src_color_range=2
    )
    frame.pts, frame.time_base = time, TICKS
    frame.colorspace, frame.color_range = tags
    return frame


def look(path: Path) -> Any:
    """Return the properties of a video in PyAV, its decoded frames, and their times."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        return SimpleNamespace(
            codec=stream.codec_context.name,
            rate=stream.average_rate,
            aspect=stream.codec_context.sample_aspect_ratio,
            light=(stream.codec_context.color_primaries, stream.codec_context.color_trc),
            frames=frames,
            times=[frame.pts * frame.time_base for frame in frames],
        )


def planes(frame: Any, kind: Any = np.uint8) -> list[np.ndarray]:
    """Return the planes of a decoded frame."""
    lines = [np.frombuffer(plane, kind).reshape(plane.height, -1) for plane in frame.planes]
    return [whole[:, : plane.width] for whole, plane in zip(lines, frame.planes, strict=True)]


def save_frames(folder: Path, count: int, size: tuple[int, int] = (24, 32)) -> Path:
    """Write frames named ``f1.png``, ``f2.png``, ... without leading zeros."""
    folder.mkdir()
    for index in range(count):
        pixels = scene(index, *size).astype(np.float32) / 255
        write_image(folder / f"f{index + 1}.png", ImageData(pixels))
    return folder


def save_temporal_mean(path: Path, length: int | str = 8, scale: int = 2) -> Path:
    """Write a network that takes the mean of each frame and its neighbors, then enlarges.

    The first and the last input frame are their own neighbors.
    """
    shape = [1, length, 3, "height", "width"]
    large = [1, length, 3, "height_out", "width_out"]
    nodes = [
        helper.make_node("Slice", ["frames", "zero", "one", "one"], ["first"]),
        helper.make_node("Slice", ["frames", "minus", "end", "one"], ["last"]),
        helper.make_node("Slice", ["frames", "zero", "minus", "one"], ["early"]),
        helper.make_node("Slice", ["frames", "one", "end", "one"], ["late"]),
        helper.make_node("Concat", ["first", "early"], ["before"], axis=1),
        helper.make_node("Concat", ["late", "last"], ["after"], axis=1),
        helper.make_node("Mean", ["before", "frames", "after"], ["mean"]),
        helper.make_node("Resize", ["mean", "", "scales"], ["output"], mode="nearest"),
    ]
    whole = {"zero": 0, "one": 1, "minus": -1, "end": 1 << 40}
    # Slice takes starts, ends and axes: the axis of frames is 1 as well.
    constants = [numpy_helper.from_array(np.array([v], np.int64), k) for k, v in whole.items()]
    scales = numpy_helper.from_array(np.array([1, 1, 1, scale, scale], np.float32), "scales")
    graph = helper.make_graph(
        nodes,
        "temporal_mean",
        [helper.make_tensor_value_info("frames", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, large)],
        [*constants, scales],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    common = {"layout": "NTCHW", "range": [0, 1], "role": "frames"}
    io = [{"name": "frames", **common}, {"name": "output", **common, "multiple": scale}]
    more = {"nystra.task": "video", "nystra.io": json.dumps(io)}
    helper.set_model_props(model, nystra_metadata(scale, **more))
    onnx.save(model, path)
    return path


def temporal_mean(frames: Sequence[np.ndarray], scale: int = 2) -> list[np.ndarray]:
    """Return the output of the network of `save_temporal_mean` for a whole video."""
    count = len(frames)
    means = [
        (frames[max(i - 1, 0)] + frames[i] + frames[min(i + 1, count - 1)]) / 3
        for i in range(count)
    ]
    return [mean.repeat(scale, 0).repeat(scale, 1) for mean in means]
