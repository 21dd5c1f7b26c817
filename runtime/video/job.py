"""What ``nystra run`` does with a video: a file or the frames of a folder, through a model file."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...plugins.errors import NystraError
from ...plugins.files import file_sha256
from ..pictures.images import SUFFIXES
from ..progress import progress_bar
from ..restoring.companions import Companions
from ..restoring.job import in_one_line
from ..restoring.session_restorer import restorer_for
from ..restoring.worklist import STREAM, Naming
from ..session import Session
from .clip import Sink, Source
from .clip_restorer import clip_restorer_for
from .file_sink import VideoSink
from .file_source import VideoFile
from .folder_sink import FolderSink
from .folder_source import FrameFolder
from .making import InWindows, Made, Maker, OneByOne, settled
from .options import VIDEO_SUFFIXES, VideoOptions, is_video

Report = Callable[[dict[str, Any], int, int], None]


def run_video(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    tile: int = 0,
    overlap: int | None = None,
    max_memory: int | None = None,
    overwrite: bool = False,
    skip_existing: bool = False,
    recursive: bool = False,
    format: str | None = None,
    suffix: str = "",
    quality: int | None = None,
    quiet: bool = False,
    mask: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    report: Report | None = None,
    video: VideoOptions | None = None,
) -> list[dict[str, Any]]:
    """Run a model on a video, frame by frame or cut in time, as the model takes it.

    Args:
        session: The model: of pictures or of frames.
        input: A video file, or a folder of frames.
        output: A video file (mp4, mov, mkv), or a folder for frames, which is created.
        tile: As in `run_pictures`.
        overlap: As in `run_pictures`.
        max_memory: As in `run_pictures`.
        overwrite: Replace what is there; never the input itself.
        skip_existing: Leave out frames, or a video, that are there.
        recursive: Means nothing to a video: refused.
        format: Of frames in a folder: as in `run_pictures`.
        suffix: Of frames in a folder: as in `run_pictures`.
        quality: Of frames in a folder: as in `run_pictures`.
        quiet: Show no progress bar.
        mask: One for all frames, or a folder of them with the names of the frames.
        reference: The same of the reference.
        report: Called with (result, frames done, frames to do) after each frame.
        video: What is asked for besides.

    Returns:
        One result, as of `run_pictures`, with ``frames``: how many were made, and ``kept``: how
        many were there.

    Raises:
        NystraError: Something cannot be used; frames that were finished are kept, and the message
            says how to go on.
        BackendUnavailableError: A video file is asked for, and PyAV is missing.
    """
    begin = time.perf_counter()
    options = video or VideoOptions()
    companions = Companions(
        None if mask is None else Path(mask), None if reference is None else Path(reference)
    )
    companions.check_exist()
    here, there = Path(input), os.fspath(output)
    _check_flags(here, there, options, overwrite, skip_existing, recursive)
    if is_video(there) and skip_existing and Path(there).exists():
        return [_result(here, there, status="skipped", reason=f"{there} exists")]
    source = open_source(here, options)
    tiling = (tile, overlap, max_memory)
    maker = frame_maker(session, source, companions, tiling, options)
    sink: Sink
    if is_video(there):
        if (format, suffix, quality) != (None, "", None):
            raise NystraError(
                "--format, --suffix and --quality do not apply to a video: give --codec and --crf"
            )
        job = {
            "model": file_sha256(session.path),
            "tile": f"{tile} {overlap}",
            "overlap in time": f"{options.time_overlap}",
            "noise": f"{options.noise}",
            "mask or reference": f"{mask} {reference}",
        }
        sink = VideoSink(Path(there), source, maker.scale, options, job, overwrite=overwrite)
    else:
        sink = FolderSink(
            Path(there),
            source,
            Naming(format, suffix),
            overwrite=overwrite,
            skip_existing=skip_existing,
            quality=quality,
        )
    work = _Work(source, maker, sink, here, there)
    made = work.run(report, quiet=quiet)
    doubts = [*source.clip.warnings, *_untimed(source, there), *work.warnings()]
    return [{**made, "warnings": doubts, "seconds": time.perf_counter() - begin}]


def open_source(path: Path, options: VideoOptions) -> Source:
    """Return the frames of a folder or a video file.

    Raises:
        NystraError: There are none, or they cannot be read.
    """
    if path.is_dir():
        return FrameFolder(path, options.fps)
    if not os.path.lexists(path):
        raise NystraError(f"there is no video or folder of frames at {path}")
    return VideoFile(path)


def frame_maker(
    session: Session,
    source: Source,
    companions: Companions,
    tiling: tuple[int, int | None, int | None],
    options: VideoOptions,
) -> Maker:
    """Return what restores the frames of a source with a model of pictures or of frames.

    Args:
        session: The model.
        source: The frames.
        companions: Masks and references.
        tiling: Tile, overlap and memory as asked for.
        options: What is asked for besides.

    Raises:
        NystraError: The model takes neither, or what is asked for contradicts it.
    """
    if session.facts.input("frames") is not None:
        if companions != Companions():
            raise NystraError("a model of frames takes no mask and no reference: leave them out")
        clips = clip_restorer_for(session, options.noise)
        how = settled(clips.network, source.clip, *tiling)
        return InWindows(clips, how, options.time_overlap)
    for flag, given in (("--time-overlap", options.time_overlap), ("--noise", options.noise)):
        if given is not None:
            raise NystraError(f"{flag} does not apply to a model of single pictures: leave it out")
    restorer = restorer_for(session)
    restorer.check_companions(companions.mask is not None, companions.reference is not None)
    return OneByOne(restorer, settled(restorer, source.clip, *tiling), companions)


class _Work:
    """One run: frames from a source through a maker into a sink."""

    def __init__(self, source: Source, maker: Maker, sink: Sink, here: Path, there: str) -> None:
        self._source, self._maker, self._sink = source, maker, sink
        self._here, self._there = here, there
        self._odd: Counter[str] = Counter()
        self._seconds, self._tiles = 0.0, 0

    def run(self, report: Report | None, *, quiet: bool) -> dict[str, Any]:
        """Make all frames that are wanted, and return the result."""
        count = self._source.clip.count
        todo = sum(self._sink.wants(index) for index in range(count))
        try:
            with progress_bar(self._here.name, unit="frame", quiet=quiet) as move:
                for done, made in enumerate(self._maker.make(self._source, self._sink.wants), 1):
                    self._sink.write(made.frame, made.picture)
                    result = self._frame_result(made)
                    move(done, todo)
                    if report is not None:
                        report(result, done, todo)
            self._sink.finish()
        except (Exception, KeyboardInterrupt) as error:  # whatever it is, frames are kept
            plain = in_one_line(error, self._here) if isinstance(error, Exception) else error
            raise _with_words(plain, self._sink.keep()) from error
        height, width = (side * self._maker.scale for side in self._source.clip.size)
        return _result(
            self._here,
            self._there,
            input_size=self._source.clip.size[::-1],
            output_size=(width, height),
            model_seconds=self._seconds,
            tiles=self._tiles,
            frames=todo,
            kept=count - todo,
        )

    def warnings(self) -> list[str]:
        """Return what was odd about frames, each text once."""
        return [
            text if times == 1 else f"{text} ({times} frames)" for text, times in self._odd.items()
        ]

    def _frame_result(self, made: Made) -> dict[str, Any]:
        self._odd.update(made.warnings)
        self._seconds += made.seconds
        self._tiles += made.tiles
        return _result(
            Path(f"{self._here} frame {made.frame.index + 1}"),
            self._there,
            output_size=made.picture.size[::-1],
            seconds=made.seconds,
            model_seconds=made.seconds,
            tiles=made.tiles,
            frames=1,
        )


def _with_words(error: BaseException, text: str) -> BaseException:
    """Return an error of the same kind that also says what is kept."""
    before = str(error).rstrip(". ")
    return type(error)(". ".join(part for part in (before, text) if part))


def _check_flags(
    here: Path,
    there: str,
    options: VideoOptions,
    overwrite: bool,
    skip_existing: bool,
    recursive: bool,
) -> None:
    if overwrite and skip_existing:
        raise NystraError("--overwrite and --skip-existing contradict each other: give one")
    if STREAM in (here, Path(there)):
        raise NystraError("a video is not read from or written to -: give a file or a folder")
    if recursive:
        raise NystraError("--recursive does not apply to the frames of one video: leave it out")
    if not here.is_dir() and options.fps is not None:
        raise NystraError("--fps does not apply to a video file, which has its own time stamps")
    if not is_video(there):
        if Path(there).suffix.lower() in SUFFIXES and not Path(there).is_dir():
            raise NystraError(
                f"the frames of {here} do not go into one picture, {there}: give a folder or a "
                f"video ({', '.join(VIDEO_SUFFIXES)})"
            )
        if options.codec is not None or options.crf is not None:
            kinds = ", ".join(VIDEO_SUFFIXES)
            raise NystraError(
                f"--codec and --crf are for a video as the output ({kinds}), got {there}"
            )
        if options.fps is not None:
            raise NystraError("--fps does not apply to a folder of frames as the output")


def _untimed(source: Source, there: str) -> list[str]:
    if source.clip.even or is_video(there):
        return []
    text = "the video has a variable frame rate, and frames in a folder do not say when they are "
    return [f"{text}shown: give a video as the output to keep that"]


def _result(here: Path, there: str, **values: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "input": str(here),
        "status": "done",
        "output": there,
        "error": None,
        "reason": None,
        "warnings": [],
        "input_size": None,
        "output_size": None,
        "seconds": None,
        "model_seconds": None,
        "tiles": None,
        "frames": 0,
        "kept": 0,
    }
    return {**empty, **values}
