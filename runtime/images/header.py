"""The size of a picture, read off its header."""

from __future__ import annotations

import os
import warnings

from ...core.files.reading import open_regular
from . import codecs
from .picture_file import upright_size


def read_picture_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return height and width of a picture as `read_picture` would return it.

    Raises:
        NystraError: As `read_picture`; damage behind the header goes unseen.
    """
    with open_regular(path, "the picture") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with codecs.opened(stream, str(path)) as file:
            return upright_size(file)
