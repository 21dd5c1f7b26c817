"""``nystra run``: one image, or a folder of images, through a model file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from ...images.image_data import ImageData
from ...images.images import STREAM, Naming
from ...progress import progress_bar
from ...session import Session
from ..task import Report
from .image_job import ImageJob, read_early
from .options import RunOptions
from .result import ImageResult
from .session_restorer import restorer_for
from .worklist import check_pair, list_work


def run_images(
    model: str | os.PathLike[str] | Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    *,
    report: Report | None = None,
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
        **how_run: Settings of a model file: ``backend``, ``threads``, ..., as `SessionSpec` takes
            them.

    Returns:
        The result of each image. In a folder an image that fails does not stop the others: check
            ``status``.

    Raises:
        NystraError: The model or the only image is invalid, or outputs exist and neither
            ``overwrite`` nor ``skip_existing`` is set; nothing was written.
    """
    how = options or RunOptions()
    how.auxiliary()  # the cheap checks come before the model is loaded
    pairs, results, folder = plan_images(input, output, how)
    if not pairs:
        return results
    only: ImageData | None = None
    if not folder:
        check_pair(*pairs[0], overwrite=how.overwrite)
        only = read_early(pairs[0][0])
    session = model if isinstance(model, Session) else Session(model, **how_run)
    job = ImageJob(restorer_for(session), how)
    with progress_bar(Path(input).name, unit="tile", quiet=how.quiet) as move:
        if folder:
            from .folder import restore_folder  # one image does not wait for it

            return results + restore_folder(job, session, pairs, move, report)
        result = job.restore_only(*pairs[0], only, move)
        if report is not None:
            report(result, 1, 1)
    return [result]


def plan_images(
    input: str | os.PathLike[str], output: str | os.PathLike[str], how: RunOptions
) -> tuple[list[tuple[Path, Path]], list[ImageResult], bool]:
    """Return the images to restore, before any is read.

    Returns:
        Images and their outputs; results of skipped images; whether a folder was given.

    Raises:
        NystraError: There is nothing, or outputs of a folder exist and may not be replaced.
    """
    naming = Naming(how.format, how.suffix)
    work = list_work(Path(input), os.fspath(output), naming, recursive=how.recursive)
    results = [ImageResult(str(path), "skipped", reason="no image") for path in work.skipped]
    pairs = []
    for here, there in work.pairs:
        if how.skip_existing and there != STREAM and there.exists():
            reason = f"{there} exists"
            skipped = ImageResult(str(here), "skipped", str(there), reason=reason)
            results.append(skipped)
        else:
            pairs.append((here, there))
    if work.folder:
        _check_outputs(pairs, how.overwrite)
    return pairs, results, work.folder


def _check_outputs(pairs: list[tuple[Path, Path]], overwrite: bool) -> None:
    """Refuse existing outputs in a folder before any image is restored."""
    there = [] if overwrite else [target for _, target in pairs if target.exists()]
    if there:
        raise NystraError(
            f"{len(there)} of {len(pairs)} outputs exist, the first is {there[0]}: add "
            "`skip_existing` to write only the others, or `overwrite` to replace them"
        )
