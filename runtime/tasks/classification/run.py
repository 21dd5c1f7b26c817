"""What ``nystra run`` does with a classifier: what is on a picture, or on each of a folder."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ....core.files.writing import atomic_write_bytes
from ...images.naming import STREAM
from ...progress import progress_bar
from ...session import Session
from ..errors import in_one_line
from ..restoration.picture_job import read_input
from ..restoration.worklist import list_pictures
from ..task import Report
from .answer import ranked
from .classifier import classifier_for
from .labels import read_labels
from .listing import check_listing, listing
from .options import ClassOptions
from .result import ClassResult


def classify_pictures(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    options: ClassOptions | None = None,
    *,
    report: Report | None = None,
) -> list[ClassResult]:
    """Say which classes a picture, or each picture of a folder, most likely belongs to.

    Args:
        session: Of a file of the task ``classification``.
        input: A picture, a folder, or ``-`` for the standard input.
        output: The one file of all results, ``.csv`` or ``.json``; ``-`` for the standard output;
            None writes none, or where a format is given to the standard output.
        options: What is asked for besides.
        report: Called with (result, pictures done, pictures in all) after each picture.

    Returns:
        What is on each picture. In a folder a picture that fails does not stop the others.

    Raises:
        NystraError: The model, the labels or the only picture cannot be used, there are no
            pictures, or the output cannot be written; nothing was.
    """
    how = options or ClassOptions()
    source = Path(input)
    pictures, others = list_pictures(source, recursive=how.recursive)
    target = None if output is None else Path(output)
    if target is None and how.format is not None:
        target = STREAM
    kind = None
    if target is not None:
        kind = check_listing(target, source, how.format, overwrite=how.overwrite)
    classify = classifier_for(session, () if how.labels is None else read_labels(how.labels))
    where = None if target is None else str(target)
    results = [ClassResult(str(path), status="skipped", reason="no picture") for path in others]
    with progress_bar(source.name, unit="picture", quiet=how.quiet) as move:
        for index, here in enumerate(pictures):
            begin = time.perf_counter()
            try:
                picture = read_input(here)
                logits = classify(picture.pixels)
                classes = ranked(logits, classify.preprocessing.labels, how.top)
                seconds = time.perf_counter() - begin
                size = picture.size[::-1]
                result = ClassResult(
                    str(here), output=where, classes=classes, input_size=size, seconds=seconds
                )
            except Exception as error:  # one bad picture, however bad, never stops the others
                problem = in_one_line(error, here, "classified", "take a smaller picture")
                if not source.is_dir():
                    raise problem from error
                result = ClassResult(str(here), status="failed", error=str(problem))
            results.append(result)
            move(index + 1, len(pictures))
            if report is not None:
                report(result, index + 1, len(pictures))
    if target is not None and kind is not None:
        _write(target, listing(results, kind))
    return results


def _write(target: Path, content: bytes) -> None:
    if target == STREAM:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        atomic_write_bytes(target, content)
