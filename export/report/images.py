"""Figures and images as data URIs."""

from __future__ import annotations

import base64
import io
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import BackendUnavailableError
from ...core.installation import not_installed
from ...runtime.images.image_data import ImageData
from ...runtime.images.images import encode_image
from ..load.images import Pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_matplotlib() -> None:
    """Raise BackendUnavailableError, with the package to install, if figures cannot be drawn."""
    try:
        import_module("matplotlib.figure")
    except ModuleNotFoundError:
        raise BackendUnavailableError(
            not_installed("matplotlib, which `report` needs,", "report")
        ) from None


def figure_uri(figure: Figure) -> str:
    """Return a matplotlib figure as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return _uri(stream.getvalue())


def image_uri(pixels: Pixels) -> str:
    """Return an image (H, W, 1 or 3) as PNG; values are clipped to 0..1."""
    shown = np.clip(pixels, 0.0, 1.0).astype(np.float32)
    return _uri(encode_image(ImageData(shown), "PNG"))


def _uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
