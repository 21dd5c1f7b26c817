"""``nystra run``: one image, or a folder of images, through a model file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from ....core.files.reading import why_missing
from ....core.files.writing import check_can_make, check_folder_name
from ...images.image_data import ImageData
from ...images.images import READ_SUFFIXES, STREAM, SUFFIXES, Naming, format_named
from ...options import ClusterOptions
from ...progress import progress_bar
from ...session import Session
from ..registry import Report
from ..video.options import VideoOptions, check_no_video, means_video
from .image_job import ImageJob, check_pair, read_early
from .options import RunOptions
from .restorer import restorer_for
from .result import ImageResult, Pair

_SIGNATURES = (
    *(b"\x89PNG\r\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    *(b"GIF8", b"RIFF", b"BM"),
)


def list_images(
    source: Path, without: Path | None = None, *, recursive: bool = False
) -> tuple[list[Path], list[Path]]:
    """Return the given images, and the other files among them.

    Args:
        source: An image, a folder, or `STREAM`.
        without: A folder to skip.
        recursive: Include subfolders.

    Raises:
        NystraError: There is no such image or folder, or the folder holds no images.
    """
    if source == STREAM or not source.is_dir():
        if source != STREAM and not os.path.lexists(source):
            reason = why_missing(source)
            raise NystraError(
                f"there is no image or folder at {source}" + (f": {reason}" if reason else "")
            )
        return [source], []
    files = _files(source, without if recursive else None, recursive)
    images = [file for file in files if _is_image(file)]
    if not images:
        advice = "" if recursive else " (`recursive` looks into subfolders)"
        kinds = ", ".join(READ_SUFFIXES)
        raise NystraError(f"the folder {source} holds no images: {kinds}{advice}")
    readable = set(images)
    return images, [file for file in files if file not in readable]


def _check_format(target: Path, naming: Naming) -> None:
    if naming.suffix:
        raise NystraError("`suffix` is for outputs in a folder: give a folder as the output")
    if target == STREAM or naming.format is None:
        return
    if SUFFIXES.get(target.suffix.lower()) != format_named(naming.format):
        raise NystraError(f"the output {target} and `format` {naming.format} contradict each other")


def _files(folder: Path, without: Path | None, recursive: bool) -> list[Path]:
    """Return the files of a folder, sorted; hidden ones and links to folders are left out."""
    files: list[Path] = []
    folders: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            files.append(path)
        elif recursive and not path.is_symlink() and path.resolve() != _resolve(without):
            folders.append(path)
    for path in folders:
        files.extend(_files(path, without, recursive))
    return files


def _resolve(folder: Path | None) -> Path | None:
    return None if folder is None else folder.resolve()


def _is_image(path: Path) -> bool:
    """Decide by the suffix, or by the first bytes of the file if the suffix is unknown."""
    if path.suffix.lower() in READ_SUFFIXES:
        return True
    if path.suffix or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(12)
    except OSError:
        return False
    return head.startswith(_SIGNATURES) or head[4:12] == b"ftypavif"


def run_restoration(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    video: VideoOptions | None = None,
    *,
    report: Report | None = None,
    cluster: ClusterOptions | None = None,
) -> Sequence[ImageResult]:
    """Run a model on images, or on a video frame by frame.

    It is a video if the input or output has the suffix of one, or if ``video`` is set for a folder
    of frames; otherwise images.

    Args:
        session: The model.
        input: As in `run_images` or `run_video`.
        output: As in `run_images` or `run_video`.
        options: Further options.
        video: The options of a video.
        report: As in `run_images` or `run_video`.
        cluster: Spreads the work over the workers of a cluster; see `on_cluster`.

    Raises:
        NystraError: As they do; also if an option of videos is given for images.
    """
    clip = video or VideoOptions()
    if means_video(input, output, clip):
        from ..video.run import run_video  # images do not wait for it

        return run_video(
            session, input, output, options, video=clip, report=report, cluster=cluster
        )
    check_no_video(clip)
    return run_images(session, input, output, options, report=report, cluster=cluster)


def run_images(
    model: str | os.PathLike[str] | Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    *,
    report: Report | None = None,
    cluster: ClusterOptions | None = None,
    **how_run: Any,
) -> list[ImageResult]:
    """Run a model on one image or on all images of a folder.

    Args:
        model: A model file, or an open session.
        input: An image, a folder, or ``-`` for the standard input.
        output: The image to write, a folder in which file names are kept, or ``-`` for the
            standard output. A folder as the input needs a folder, which is created.
        options: Further options.
        report: Called with (result, images done, total number of images) after each image.
        cluster: Spreads the images of a folder over the workers of a cluster; see `on_cluster`.
        **how_run: Settings of a model file: ``backend``, ``threads``, ..., as `SessionSpec` takes
            them.

    Returns:
        The result of each image; a `DistributedResult` on a cluster. In a folder an image that
            fails does not stop the others: check ``status``.

    Raises:
        NystraError: The model or the only image is invalid, or outputs exist and neither
            ``overwrite`` nor ``skip_existing`` is set; nothing was written. Also if a cluster has
            no worker that can open the model, or is given one image.
        BackendUnavailableError: Ray is missing, or no cluster answers within ten seconds.
    """
    how = options or RunOptions()
    how.auxiliary()  # the cheap checks come before the model is loaded
    pairs, results, folder = _plan_images(input, output, how)
    if cluster is not None and not folder:
        raise NystraError(
            f"{input} is one image, and a cluster shares the images of a folder or the frames of a "
            "video: run it without a cluster"
        )
    if not pairs:
        return results
    only: ImageData | None = None
    if not folder:
        check_pair(*pairs[0], overwrite=how.overwrite)
        only = read_early(pairs[0][0])
    session = model if isinstance(model, Session) else Session(model, **how_run)
    job = ImageJob(restorer_for(session), how)
    unit = "tile" if cluster is None else "image"
    with progress_bar(Path(input).name, unit=unit, quiet=how.quiet) as move:
        if folder:
            from .folder import restore_folder  # one image does not wait for it

            return results + restore_folder(job, session, pairs, move, report, cluster)
        result = job.restore(*pairs[0], only, move)
        if report is not None:
            report(result, 1, 1)
    return [result]


def _plan_images(
    input: str | os.PathLike[str], output: str | os.PathLike[str], how: RunOptions
) -> tuple[list[Pair], list[ImageResult], bool]:
    """Return the images to restore, before any is read.

    Returns:
        Images and their outputs; results of skipped images; whether a folder was given. An output
            that ends in a slash, or is a folder, gets files of the names of the images.

    Raises:
        NystraError: There is nothing, input and output do not go together, or outputs of a folder
            exist and may not be replaced.
    """
    naming = Naming(how.format, how.suffix)
    source, text, target = Path(input), os.fspath(output), Path(output)
    folder = source != STREAM and source.is_dir()
    if folder:
        if target == STREAM or (target.exists() and not target.is_dir()):
            raise NystraError(
                f"the input {source} is a folder, so the output {target} has to be a folder too"
            )
        check_folder_name(text, f"a folder, since the input {source} is one")
    images, others = list_images(source, target, recursive=how.recursive)
    if folder:
        check_can_make(target)
        places = [target / file.relative_to(source).parent / naming.name(file) for file in images]
    elif target != STREAM and (text.endswith(("/", os.sep)) or target.is_dir()):
        places = [target / naming.name(source)]
    else:
        _check_format(target, naming)
        places = [target]
    results = [ImageResult(str(path), "skipped", reason="no image") for path in others]
    pairs = []
    for image, place in zip(images, places, strict=True):
        if how.skip_existing and place != STREAM and place.exists():
            reason = f"{place} exists"
            results.append(ImageResult(str(image), "skipped", str(place), reason=reason))
        else:
            pairs.append((image, place))
    existing = [place for _, place in pairs if folder and place.exists()]
    if existing and not how.overwrite:
        raise NystraError(
            f"{len(existing)} of {len(pairs)} outputs exist, the first is {existing[0]}: add "
            "`skip_existing` to write only the others, or `overwrite` to replace them"
        )
    return pairs, results, folder
