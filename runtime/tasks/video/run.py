"""``nystra run`` with a video, or with the frames of a folder for a model of frames."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ....core.errors import NystraError
from ....core.files.writing import check_folder_name
from ...images.images import Naming
from ...options import ClusterOptions
from ...pool.calls import Pool
from ...progress import progress_bar
from ...session import Session
from ...video.containers import WRITTEN, is_written
from ...video.file_sink import VideoSink
from ...video.file_source import VideoFile
from ...video.frame_folder import FolderSink, FrameFolder
from ..registry import Report
from ..restoration.auxiliary_roles import AuxiliaryInputs
from ..restoration.options import RunOptions
from ..restoration.restorer import RestoredImage, restorer_for
from ..result import in_one_line
from .clip_restorer import clip_restorer_for
from .frame_restorer import (
    FrameSource,
    choose_tiling,
    restore_singly,
    restore_windows,
    share_tiles,
)
from .options import VideoOptions
from .result import VideoResult

_OF_FILES = ("codec", "crf", "skip_existing")
_OF_FOLDERS = ("format", "suffix", "quality")
"""Options that apply to videos alone, and to folders of frames alone."""


def run_video(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    video: VideoOptions | None = None,
    *,
    report: Report | None = None,
    cluster: ClusterOptions | None = None,
) -> list[VideoResult]:
    """Run a model on a video: frame by frame, or in overlapping clips for a video model.

    Args:
        session: A session of an image model or a video model.
        input: A video file, or a folder of frames.
        output: For a file a video file (mp4, m4v, mov, mkv), for a folder a folder, which is
            created.
        options: Options shared with images. Format, suffix and quality apply to frames in a
            folder; a mask or a reference is a file for all frames, or a folder with the names of
            the frames.
        video: Options of videos.
        report: Called with (result, frames done, total number of frames) after each frame.
        cluster: Runs the network on the workers of a cluster; see `on_cluster`.

    Returns:
        The result of the video.

    Raises:
        NystraError: The input, an option or the model is invalid; frames in a folder are kept.
        BackendUnavailableError: PyAV, which video files need, or Ray is missing, or no cluster
            answers within ten seconds.
    """
    begin = time.perf_counter()
    how, clip = options or RunOptions(), video or VideoOptions()
    path, target = Path(input), os.fspath(output)
    _check_flags(path, target, how, clip)
    if is_written(target) and how.skip_existing and Path(target).exists():
        return [VideoResult(str(path), "skipped", target, reason=f"{target} exists")]
    source = FrameFolder(path) if path.is_dir() else VideoFile(path)
    with ExitStack() as workers:
        pool = None
        if cluster is not None:
            from ..restoration.on_cluster import cluster_pool  # most runs have none

            pool = workers.enter_context(cluster_pool(session, how, cluster))
        scale, frames = restore_frames(session, source, how, clip, pool)
        sink = _open_sink(source, Path(target), scale, how, clip)
        warnings: dict[str, None] = {}
        seconds, tiles = 0.0, 0
        try:
            bar = progress_bar(path.name, unit="frame", quiet=how.quiet)
            with sink.open(), bar as move:
                for index, restored in enumerate(frames):
                    sink.write(index, restored.image)
                    warnings |= dict.fromkeys(restored.warnings)
                    seconds, tiles = seconds + restored.seconds, tiles + restored.tiles
                    move(index + 1, source.count)
                    if report is not None:
                        result = _of_frame(f"{path} frame {index + 1}", target, restored)
                        report(result, index + 1, source.count)
        except NystraError:
            raise
        except Exception as error:  # raised again as one line
            raise in_one_line(error, path) from error
    height, width = source.size
    result = VideoResult(
        str(path),
        output=target,
        warnings=[*source.warnings, *warnings, *sink.warnings],
        input_size=(width, height),
        output_size=(width * scale, height * scale),
        seconds=time.perf_counter() - begin,
        model_seconds=seconds,
        tiles=tiles,
        frames=source.count,
    )
    return [result]


def restore_frames(
    session: Session,
    source: FrameSource,
    options: RunOptions,
    video: VideoOptions,
    pool: Pool | None = None,
) -> tuple[int, Iterator[RestoredImage]]:
    """Return the scale of a model, and the restored frames of a source, not yet computed.

    The workers of a pool, if there is one, get a frame each with a model of images; they share the
    tiles of each window with one of frames.

    Raises:
        NystraError: The model takes neither, or the options contradict it, or workers cannot share
            its tiles.
    """
    paths = options.auxiliary()
    if session.facts.input("frames") is not None:
        if paths:
            raise NystraError(f"a video model takes no {' and no '.join(paths)}: omit it")
        clips = clip_restorer_for(session, video.noise)
        scale, tiling = clips.network.scale, choose_tiling(clips.network, source.size, options)
        if pool is not None:
            clips = replace(clips, network=share_tiles(clips.network, pool))
        return scale, restore_windows(clips, tiling, video.time_overlap, source)
    for flag, value in (("`time_overlap`", video.time_overlap), ("`noise`", video.noise)):
        if value is not None:
            raise NystraError(f"{flag} does not apply to a model of single images: omit it")
    restorer = restorer_for(session)
    auxiliary = AuxiliaryInputs.match(restorer.auxiliary, paths)
    tiling = choose_tiling(restorer, source.size, options)
    memory = options.max_memory
    return restorer.scale, restore_singly(restorer, tiling, auxiliary, source, memory, pool)


def _open_sink(
    source: FrameSource, target: Path, scale: int, options: RunOptions, video: VideoOptions
) -> FolderSink | VideoSink:
    if isinstance(source, FrameFolder):
        naming = Naming(options.format, options.suffix)
        return FolderSink(
            target, source, naming, overwrite=options.overwrite, quality=options.quality
        )
    return VideoSink(
        target, source, scale, codec=video.codec, crf=video.crf, overwrite=options.overwrite
    )


def _of_frame(name: str, target: str, restored: RestoredImage) -> VideoResult:
    return VideoResult(
        name,
        output=target,
        output_size=restored.image.size[::-1],
        seconds=restored.seconds,
        model_seconds=restored.seconds,
        tiles=restored.tiles,
        frames=1,
    )


def _check_flags(path: Path, target: str, options: RunOptions, video: VideoOptions) -> None:
    """Refuse an output that is not of the kind of the input, and options for the other kind."""
    if not os.path.lexists(path):
        raise NystraError(f"no video or folder of frames at {path}")
    folder = path.is_dir()
    if folder and is_written(target):
        raise NystraError(
            f"the input {path} is a folder, so the output {target} has to be a folder too. A video "
            "of its images is made by ffmpeg; see docs/running.md"
        )
    if folder:
        check_folder_name(target, f"a folder, since the input {path} is one")
    elif not is_written(target):
        raise NystraError(
            f"the output of the video {path} is {target}, expected a video ({', '.join(WRITTEN)}). "
            "Images of its frames are made by ffmpeg; see docs/running.md"
        )
    changes = options.list_changes() | video.list_changes()
    for name in ("recursive", "jobs", *(_OF_FILES if folder else _OF_FOLDERS)):
        if name in changes:
            kind = "the frames of one video" if folder else "a video file"
            raise NystraError(f"`{name}` does not apply to {kind}: omit it")
