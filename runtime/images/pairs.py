"""Which input belongs to which ground truth, by file name."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...core.errors import NystraError
from .images import READ_SUFFIXES

_TOKEN = r"[-_. ]?(?:srf[-_]?\d+|bicubic|x\d+|lr|hr|gt|lq|hq)"
_TAIL = re.compile(rf"(?:{_TOKEN})+$", re.IGNORECASE)
_LOW = re.compile(r"[-_. ](?:lr|lq)(?:[-_. ]?x\d+)?$", re.IGNORECASE)
_HIGH = re.compile(r"[-_. ](?:hr|hq|gt)(?:[-_. ]?x\d+)?$", re.IGNORECASE)


def pair_images(
    inputs: str | os.PathLike[str], truths: str | os.PathLike[str]
) -> list[tuple[Path, Path]]:
    """Return (input, ground truth) for every input image, sorted by name.

    A name matches the same name first, then the same name without endings such as ``x2``,
    ``_SRF_2_LR``, ``_HR``, ``_bicubic``: ``babyx2.png`` and ``baby.png``, ``img_001_SRF_2_LR.png``
    and ``img_001_SRF_2_HR.png``. Both may lie in one folder if their names end in LR and HR.

    Args:
        inputs: The folder of the model's inputs.
        truths: The folder of the expected outputs.

    Raises:
        NystraError: A folder is missing or holds no images, or an image has no partner or two.
    """
    low, high = _images(inputs, _HIGH, _LOW), _images(truths, _LOW, _HIGH)
    exact: dict[str, list[Path]] = {}
    loose: dict[str, list[Path]] = {}
    for path in high:
        exact.setdefault(path.stem.lower(), []).append(path)
        loose.setdefault(_core(path), []).append(path)
    pairs = []
    for path in low:
        candidates = exact.get(path.stem.lower()) or loose.get(_core(path), [])
        candidates = [item for item in candidates if item.name == path.name] or candidates
        if len(candidates) != 1:
            names = ", ".join(item.name for item in candidates) or "none"
            raise NystraError(
                f"expected one ground truth in {truths} for {path.name}, found {names}: name them "
                "alike, such as baby.png or babyx2.png and baby.png"
            )
        pairs.append((path, candidates[0]))
    return pairs


def list_folder(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the images of a folder, sorted by name; hidden ones are left out.

    Raises:
        NystraError: There is no such folder, or no image in it.
    """
    place = Path(folder)
    if not place.is_dir():
        raise NystraError(f"no folder at {place}, expected a folder of images")
    visible = (path for path in place.iterdir() if not path.name.startswith("."))
    images = sorted(
        path for path in visible if path.suffix.lower() in READ_SUFFIXES and path.is_file()
    )
    if not images:
        raise NystraError(f"the folder {place} holds no images: {', '.join(READ_SUFFIXES)}")
    return images


def _images(
    folder: str | os.PathLike[str], others: re.Pattern[str], own: re.Pattern[str]
) -> list[Path]:
    images = list_folder(folder)
    if any(own.search(path.stem) for path in images):
        images = [path for path in images if not others.search(path.stem)]
    return images


def _core(path: Path) -> str:
    stem = path.stem.lower()
    return _TAIL.sub("", stem) or stem
