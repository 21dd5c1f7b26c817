"""``nystra run`` with a video: a file or the frames of a folder, through a model file."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ....core.errors import NystraError
from ....core.files.writing import check_folder_name
from ...images.images import STREAM, Naming
from ...options import ClusterOptions
from ...pool.calls import Pool
from ...progress import progress_bar
from ...session import Session
from ...video.clip import FrameSource
from ...video.containers import WRITTEN, is_written
from ...video.file_sink import VideoSink
from ...video.file_source import VideoFile
from ...video.folder_sink import FolderSink
from ...video.folder_source import FrameFolder
from ..registry import Report
from ..restoration.auxiliary_roles import AuxiliaryInputs
from ..restoration.options import RunOptions
from ..restoration.restorer import restorer_for
from ..result import in_one_line
from .clip_restorer import clip_restorer_for
from .frame_restorer import (
    FrameRestorer,
    RestoredFrame,
    SingleFrameRestorer,
    WindowedRestorer,
    fixed_tiling,
    share_tiles,
)
from .options import VideoOptions
from .result import VideoResult


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
        output: A video file (mp4, m4v, mov, mkv), or a folder for frames, which is created.
        options: Options shared with images. Format, suffix and quality apply to frames in a
            folder; a mask or a reference is a file for all frames, or a folder with the names of
            the frames.
        video: Options of videos.
        report: Called with (result, frames done, total number of frames) after each frame.
        cluster: Runs the network on the workers of a cluster; see `on_cluster`.

    Returns:
        The result of the video.

    Raises:
        NystraError: The input, an option or the model is invalid; frames in a folder are
            kept, and the message says how to continue.
        BackendUnavailableError: PyAV, which video files need, or Ray is missing, or no cluster
            answers within ten seconds.
    """
    begin = time.perf_counter()
    how, clip = options or RunOptions(), video or VideoOptions()
    path, target = Path(input), os.fspath(output)
    _check_flags(path, target, how, clip)
    if is_written(target) and how.skip_existing and Path(target).exists():
        return [VideoResult(str(path), "skipped", target, reason=f"{target} exists")]
    source = open_source(path, clip)
    with ExitStack() as workers:
        pool = None
        if cluster is not None:
            from ..restoration.on_cluster import cluster_pool  # most runs have none

            pool = workers.enter_context(cluster_pool(session, how, cluster))
        restorer = frame_restorer_for(session, source, how, clip, pool)
        sink = _open_sink(source, target, restorer.scale, how, clip)
        work = _Work(source, restorer, sink, path, target)
        result = work.run(report, quiet=how.quiet)
    warnings = [*source.clip.warnings, *work.warnings(), *sink.warnings]
    return [replace(result, warnings=warnings, seconds=time.perf_counter() - begin)]


def open_source(path: Path, options: VideoOptions) -> FrameSource:
    """Return the source of frames: a folder or a video file.

    Raises:
        NystraError: There are none, or they cannot be read.
    """
    if path.is_dir():
        return FrameFolder(path, options.fps)
    if not os.path.lexists(path):
        raise NystraError(f"no video or folder of frames at {path}")
    return VideoFile(path)


def frame_restorer_for(
    session: Session,
    source: FrameSource,
    options: RunOptions,
    video: VideoOptions,
    pool: Pool | None = None,
) -> FrameRestorer:
    """Return the restorer of a source's frames, with a model of images or of frames.

    The workers of a pool get a frame each with a model of images; they share the tiles of each
    window with one of frames.

    Args:
        session: The model.
        source: The frames.
        options: The options shared with images.
        video: Options of videos.
        pool: Its workers run the network; None: this process.

    Raises:
        NystraError: The model takes neither, or the options contradict it, or workers cannot share
            its tiles.
    """
    paths = options.auxiliary()
    if session.facts.input("frames") is not None:
        if paths:
            raise NystraError(f"a video model takes no {' and no '.join(paths)}: omit it")
        clips = clip_restorer_for(session, video.noise)
        how = fixed_tiling(clips.network, source.clip, options)
        if pool is not None:
            clips = replace(clips, network=share_tiles(clips.network, pool))
        return WindowedRestorer(clips, how, video.time_overlap)
    for flag, value in (("`time_overlap`", video.time_overlap), ("`noise`", video.noise)):
        if value is not None:
            raise NystraError(f"{flag} does not apply to a model of single images: omit it")
    restorer = restorer_for(session)
    auxiliary = AuxiliaryInputs.match(restorer.auxiliary, paths)
    tiling = fixed_tiling(restorer, source.clip, options)
    return SingleFrameRestorer(restorer, tiling, auxiliary, options.max_memory, pool)


def _open_sink(
    source: FrameSource, target: str, scale: int, options: RunOptions, video: VideoOptions
) -> FolderSink | VideoSink:
    """Return the sink of the restored frames: a video or a folder."""
    if not is_written(target):
        return FolderSink(
            Path(target),
            source,
            Naming(options.format, options.suffix),
            overwrite=options.overwrite,
            skip_existing=options.skip_existing,
            quality=options.quality,
        )
    if (options.format, options.suffix, options.quality) != (None, "", None):
        raise NystraError(
            "`format`, `suffix` and `quality` do not apply to a video: give `codec` and `crf`"
        )
    return VideoSink(
        Path(target),
        source,
        scale,
        codec=video.codec,
        crf=video.crf,
        overwrite=options.overwrite,
    )


class _Work:
    """One run: frames from a source through a restorer into a sink."""

    def __init__(
        self,
        source: FrameSource,
        restorer: FrameRestorer,
        sink: FolderSink | VideoSink,
        path: Path,
        target: str,
    ) -> None:
        self._source, self._restorer, self._sink = source, restorer, sink
        self._path, self._target = path, target
        self._odd: Counter[str] = Counter()
        self._seconds, self._tiles, self._reused = 0.0, 0, 0

    def run(self, report: Report | None, *, quiet: bool) -> VideoResult:
        """Restore all wanted frames, and return the result."""
        count = self._source.clip.count
        todo = sum(self._sink.wants(index) for index in range(count))
        bar = progress_bar(self._path.name, unit="frame", quiet=quiet)
        try:
            with self._sink.opened(), bar as move:
                restored = self._restorer.restore(self._source, self._sink.wants)
                for done, each in enumerate(restored, 1):
                    self._sink.write(each.frame, each.image)
                    result = self._frame_result(each)
                    move(done, todo)
                    if report is not None:
                        report(result, done, todo)
        except (Exception, KeyboardInterrupt) as error:
            plain = in_one_line(error, self._path) if isinstance(error, Exception) else error
            raise _with_words(plain, self._sink.advice) from error
        height, width = self._source.clip.size
        scale = self._restorer.scale
        return VideoResult(
            str(self._path),
            output=self._target,
            input_size=(width, height),
            output_size=(width * scale, height * scale),
            model_seconds=self._seconds,
            tiles=self._tiles,
            reused=self._reused,
            frames=todo,
            kept=count - todo,
        )

    def warnings(self) -> list[str]:
        """Return the warnings about frames, each text once."""
        return [
            text if times == 1 else f"{text} ({times} frames)" for text, times in self._odd.items()
        ]

    def _frame_result(self, restored: RestoredFrame) -> VideoResult:
        self._odd.update(restored.warnings)
        self._seconds += restored.seconds
        self._tiles += restored.tiles
        self._reused += restored.reused
        height, width = restored.image.size
        return VideoResult(
            f"{self._path} frame {restored.frame.index + 1}",
            output=self._target,
            output_size=(width, height),
            seconds=restored.seconds,
            model_seconds=restored.seconds,
            tiles=restored.tiles,
            reused=restored.reused,
            frames=1,
        )


def _with_words(error: BaseException, text: str) -> BaseException:
    """Return an error of the same class with a sentence on the kept frames."""
    before = str(error).rstrip(". ")
    return type(error)(". ".join(part for part in (before, text) if part))


def _check_flags(path: Path, target: str, options: RunOptions, video: VideoOptions) -> None:
    if STREAM in (path, Path(target)):
        raise NystraError("a video is not read from or written to -: give a file or a folder")
    if options.recursive:
        raise NystraError("`recursive` does not apply to the frames of one video: omit it")
    if options.jobs not in (None, 1):
        raise NystraError("`jobs` shares the images of a folder, not a video: omit it")
    if not path.is_dir() and video.fps is not None:
        raise NystraError("`fps` does not apply to a video file, which has time stamps")
    if not is_written(target):
        kinds = ", ".join(WRITTEN)
        check_folder_name(target, f"a video ({kinds})")
        if video.codec is not None or video.crf is not None:
            raise NystraError(
                f"`codec` and `crf` are for a video as the output ({kinds}), got {target}"
            )
        if video.fps is not None:
            raise NystraError("`fps` does not apply to a folder of frames as the output")
