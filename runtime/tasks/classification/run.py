"""``nystra run`` with a classifier: one image, or the images of a folder."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ....core.files.writing import atomic_write_bytes
from ...images.images import STREAM
from ...progress import progress_bar
from ...session import Session
from ..registry import Report
from ..restoration.image_job import read_input
from ..restoration.run import list_images
from ..result import in_one_line
from .classifier import classifier_for
from .listing import check_listing, format_listing, read_labels
from .options import ClassOptions
from .result import ClassResult, rank_classes


def classify_images(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    options: ClassOptions | None = None,
    *,
    report: Report | None = None,
) -> list[ClassResult]:
    """Classify one image, or all images of a folder.

    Args:
        session: A session of a file of the task ``classification``.
        input: An image, a folder, or ``-`` for the standard input.
        output: The file of all results, ``.csv`` or ``.json``; ``-`` for the standard output; None
            writes no file, or to the standard output if a format is given.
        options: Further options.
        report: Called with (result, images done, total number of images) after each image.

    Returns:
        The result of each image. In a folder an image that fails does not stop the others.

    Raises:
        NystraError: The model, the labels or the only image is invalid, there are no images, or
            the output cannot be written; nothing was written.
    """
    how = options or ClassOptions()
    source = Path(input)
    images, others = list_images(source, recursive=how.recursive)
    target = None if output is None else Path(output)
    if target is None and how.format is not None:
        target = STREAM
    kind = None
    if target is not None:
        kind = check_listing(target, source, how.format, overwrite=how.overwrite)
    classify = classifier_for(session, () if how.labels is None else read_labels(how.labels))
    where = None if target is None else str(target)
    results = [ClassResult(str(path), status="skipped", reason="no image") for path in others]
    with progress_bar(source.name, unit="image", quiet=how.quiet) as move:
        for index, path in enumerate(images):
            begin = time.perf_counter()
            try:
                image = read_input(path)
                logits = classify(image.pixels)
                classes = rank_classes(logits, classify.preprocessing.labels, how.top)
                seconds = time.perf_counter() - begin
                size = image.size[::-1]
                result = ClassResult(
                    str(path), output=where, classes=classes, input_size=size, seconds=seconds
                )
            except Exception as error:  # a bad image never stops the others
                problem = in_one_line(error, path, "classified", "use a smaller image")
                if not source.is_dir():
                    raise problem from error
                result = ClassResult(str(path), status="failed", error=str(problem))
            results.append(result)
            move(index + 1, len(images))
            if report is not None:
                report(result, index + 1, len(images))
    if target is not None and kind is not None:
        _write(target, format_listing(results, kind))
    return results


def _write(target: Path, content: bytes) -> None:
    if target == STREAM:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        atomic_write_bytes(target, content)
