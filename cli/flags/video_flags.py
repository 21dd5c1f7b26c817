"""The flags of ``nystra run`` that only videos have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...runtime.tasks.video.options import VideoOptions


def add_video_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    video = parser.add_argument_group("video (mp4, mov, mkv, or a folder of frames)")
    video.add_argument(
        "--video",
        action="store_true",
        help="the folder holds the frames of one video, in the order of the numbers in their names "
        "(said already by a video as the output, and by a model of frames)",
    )
    video.add_argument(
        "--fps", metavar="N", help="frames a second of a folder that becomes a video, 30000/1001"
    )
    video.add_argument(
        "--codec", metavar="NAME", help="h264 or hevc (default: hevc above 8 bits, else h264)"
    )
    video.add_argument("--crf", type=int, metavar="N", help="0 (best, largest) to 51 (default: 18)")
    video.add_argument(
        "--time-overlap",
        type=int,
        metavar="N",
        help="frames that two runs of a model of frames have in common (default: a quarter)",
    )
    video.add_argument(
        "--noise",
        type=float,
        metavar="S",
        help="standard deviation of the noise, 0 to 255, for a model of frames that asks for it",
    )


def video_options(args: argparse.Namespace) -> VideoOptions:
    """Return what was given.

    Raises:
        NystraError: No video has it.
    """
    from ...runtime.tasks.video.options import VideoOptions, parse_fps

    fps = None if args.fps is None else parse_fps(args.fps)
    return VideoOptions(args.video, fps, args.codec, args.crf, args.time_overlap, args.noise)
